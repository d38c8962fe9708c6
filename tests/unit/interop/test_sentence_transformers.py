"""Folders of sentence-transformers: which pooling they declare, and what is refused."""

import json

import pytest

from heedful.errors import DamagedError, RequestError
from heedful.interop.checkpoint import Checkpoint
from heedful.interop.sentence_transformers import read_sentence_model

KINDS = {"": "Transformer", "1_Pooling": "Pooling"}


def folder_of(path, pooling, sentence=None, tokenizer=None, **more):
    steps = [
        {"path": p, "type": f"sentence_transformers.models.{kind}"} for p, kind in {**KINDS, **more}.items()
    ]
    contents = {
        "config.json": {},
        "modules.json": steps,
        "1_Pooling/config.json": pooling,
        "sentence_bert_config.json": sentence or {},
        "tokenizer_config.json": tokenizer or {},
    }
    (path / "1_Pooling").mkdir()
    for name, content in contents.items():
        (path / name).write_text(json.dumps(content), "utf-8")
    return Checkpoint(path)


POOLINGS = {
    "mean": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
    "first": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "max": {"pooling_mode": "max"},
}


@pytest.mark.parametrize("name", POOLINGS)
def test_a_pooling_is_read(tmp_path, name):
    model = read_sentence_model(folder_of(tmp_path, POOLINGS[name], {"max_seq_length": 9}))
    assert (model.pooling, model.longest, model.notes) == (name, 9, [])


def test_a_pooling_without_a_mode_is_the_mean_as_there(tmp_path):
    assert read_sentence_model(folder_of(tmp_path, {})).pooling == "mean"


def test_other_folders_are_none_of_them(tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert read_sentence_model(Checkpoint(tmp_path)) is None


@pytest.mark.parametrize(
    "pooling, more, message",
    [
        ({}, {"2_Dense": "Dense"}, "the step Dense is not supported"),
        ({}, {"1_Pooling": "Normalize"}, "expected a step Pooling"),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            {},
            "cls and mean: expected one of",
        ),
        ({"pooling_mode_lasttoken": True}, {}, "lasttoken: expected one of"),
        ({"include_prompt": False}, {}, "include_prompt: False"),
    ],
)
def test_what_heedful_does_not_compute_is_refused(tmp_path, pooling, more, message):
    with pytest.raises(RequestError, match=message):
        read_sentence_model(folder_of(tmp_path, pooling, **more))


def test_lower_case_before_a_tokenizer_that_reads_case_is_refused(tmp_path):
    checkpoint = folder_of(tmp_path, {}, {"do_lower_case": True}, {"do_lower_case": False})
    with pytest.raises(RequestError, match="do_lower_case: true, but the tokenizer reads case"):
        read_sentence_model(checkpoint)


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"path": ""}]'])
def test_damaged_steps_are_refused(tmp_path, content):
    checkpoint = folder_of(tmp_path, {})
    (tmp_path / "modules.json").write_text(content, "utf-8")
    with pytest.raises(DamagedError, match=r"modules.json: expected"):
        read_sentence_model(checkpoint)

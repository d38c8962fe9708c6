"""All settings in the way of an export are named at once, for recipes and runs."""

import pytest

from heedful.errors import RequestError
from heedful.interop.conversion import FORMATS, export_run, obstacles
from heedful.model_summary.described_model import RequestedSizes, find_model


def keys_in_the_way(name, form, *overrides):
    described = find_model(name, RequestedSizes(), list(overrides))
    reasons = obstacles(described.recipe, described.model)[form]
    return [reason.partition(":")[0].partition("=")[0] for reason in reasons]


@pytest.mark.parametrize(
    ("recipe", "form"), [("phrasebook-de", "marian"), ("digits", "vit"), ("my-own-text", "gpt2")]
)
def test_recipes_that_can_be_exported_have_nothing_in_the_way(recipe, form):
    assert keys_in_the_way(recipe, form) == []


def test_all_settings_are_named_at_once():
    assert keys_in_the_way("wikitext2-lm", "gpt2") == [
        "model.layer.norm.kind",
        "model.layer.mixer.bias",
        "model.layer.channels.kind",
        "model.layer.channels.bias",
        "model.positions.kind",
        "model.layer.mixer.n_kv_heads",
        "tokenizer.subwords.kind",
    ]
    changed = "model.layer.norm=layer", "model.layer.mixer.bias=true", "model.positions=learned"
    assert keys_in_the_way("wikitext2-lm", "gpt2", *changed) == [
        "model.layer.channels.kind",
        "model.layer.channels.bias",
        "model.layer.mixer.n_kv_heads",
        "tokenizer.subwords.kind",
    ]


@pytest.mark.parametrize(
    ("recipe", "form", "keys"),
    [
        ("fashion-resnet", "vit", ["model.kind"]),
        ("fashion-mixer", "vit", ["model.layer.mixer.kind"]),
        ("phrasebook-rnn", "marian", ["model.kind"]),
        ("phrasebook-lstm", "gpt2", ["model.layer.mixer.kind"]),
        ("sst2", "gpt2", ["model.kind"]),
    ],
)
def test_other_kinds_of_models_are_named_and_keys_that_they_lack_are_not(recipe, form, keys):
    assert keys_in_the_way(recipe, form)[:1] == keys


def test_a_format_for_other_tasks_names_those_that_hold_the_task():
    described = find_model("digits", RequestedSizes())
    found = obstacles(described.recipe, described.model)
    assert found.keys() == FORMATS.keys()
    (reason,) = found["marian"]
    assert reason == "expected a run of task translation, got image-classification; use vit"


def test_an_export_names_all_settings_in_the_way(make_run, tmp_path):
    recipe = {
        "task": {"kind": "language-modelling"},
        "tokenizer": {"subwords": {"kind": "word", "min_frequency": 1}},
        "model": {"kind": "language-model", "d_model": 8, "n_layers": 1, "context": 16,
                  "layer": {"mixer": {"n_heads": 2}, "norm": "rms", "channels": {"d_ff": 8}}},
    }  # fmt: skip
    run = make_run(tmp_path / "run", recipe, [{"text": "a small text"}])
    with pytest.raises(RequestError) as refused:
        export_run(run, "gpt2")
    lines = str(refused.value).split("\n  ")
    assert lines[0].startswith("model.layer.norm.kind=rms: not supported by GPT-2")
    assert any(line.startswith("tokenizer.subwords.kind=word") for line in lines)
    assert len(lines) >= 2

"""The folder of another library: what is read of it, and every way in which it can be wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from heedful.errors import DamagedError, RequestError
from heedful.files import sha256
from heedful.interop.checkpoint import Checkpoint, Settings, write_checkpoint
from heedful.interop.conversion import format_called, format_of


@pytest.fixture
def folder(tmp_path):
    write_checkpoint(tmp_path, {"model_type": "gpt2", "n": 3}, {"a": torch.ones(2), "b": torch.zeros(3)})
    return tmp_path


def test_what_is_written_is_read(folder):
    checkpoint = Checkpoint(folder)
    assert checkpoint.config.get("n", int) == 3
    assert {name: tensor.tolist() for name, tensor in checkpoint.tensors().items()} == {
        "a": [1.0, 1.0],
        "b": [0.0, 0.0, 0.0],
    }
    assert checkpoint.hashes() == {
        name: sha256(folder / name) for name in ("config.json", "model.safetensors")
    }


def test_weights_in_several_files_are_read_together(folder):
    (folder / "model.safetensors").unlink()
    save_file({"a": torch.ones(2)}, folder / "model-1.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "model-2.safetensors")
    index = folder / "model.safetensors.index.json"
    parts = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index.write_text(json.dumps({"weight_map": parts}), "utf-8")
    checkpoint = Checkpoint(folder)
    assert sorted(checkpoint.tensors()) == ["a", "b"]
    assert checkpoint.weights == index
    assert len(checkpoint.hashes()) == 3
    index.write_text(json.dumps({"weight_map": {"a": "../model-1.safetensors"}}), "utf-8")
    with pytest.raises(DamagedError, match="must name files of the same folder"):
        Checkpoint(folder).tensors()
    index.write_text("{}", "utf-8")
    with pytest.raises(DamagedError, match="has no weight_map"):
        Checkpoint(folder).tensors()


def test_a_folder_that_is_none_is_told_so(tmp_path, folder):
    with pytest.raises(RequestError, match=r"nowhere: no such folder; .*config.json and model.safetensors"):
        Checkpoint(tmp_path / "nowhere")
    with pytest.raises(RequestError, match=r"config.json: expected a folder .*, got a file; give the folder"):
        Checkpoint(folder / "config.json")
    (folder / "config.json").unlink()
    with pytest.raises(RequestError, match=r"has no config.json"):
        Checkpoint(folder)


def test_a_pickle_is_refused_with_advice(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RequestError, match=r"pytorch_model.bin: not supported, since .*`save_pretrained"):
        Checkpoint(folder).tensors()
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(RequestError, match=r"has no model.safetensors$"):
        Checkpoint(folder).tensors()


def test_damaged_files_are_named(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match=r"model.safetensors: cannot be read as safetensors"):
        Checkpoint(folder).tensors()
    (folder / "config.json").write_text("[1]", "utf-8")
    with pytest.raises(DamagedError, match=r"config.json: expected a JSON object"):
        _ = Checkpoint(folder).config
    (folder / "config.json").write_text("{", "utf-8")
    with pytest.raises(DamagedError, match=r"config.json: cannot be read as JSON"):
        _ = Checkpoint(folder).config


def test_formats_are_known_by_their_names(folder):
    assert format_of(Checkpoint(folder)).name == "gpt2"
    assert format_called("marian").name == "marian"
    with pytest.raises(RequestError, match=r"format gtp2: unknown \(did you mean 'gpt2'\?\)"):
        format_called("gtp2")


@pytest.mark.parametrize(
    "kind, message",
    [
        ("gtp2", "'gtp2' is not supported (did you mean 'gpt2'?); expected one of gpt2, marian, bert, vit"),
        (
            "t5",
            "'t5' is not supported: its positions are relative; of encoder-decoders, only Marian is;",
        ),
        (
            "roberta",
            "'roberta' is not supported: its positions begin at 2; of encoders, only BERT is; expected",
        ),
        (
            "llama",
            "can be trained here, but not imported; of language models, only GPT-2 is; expected",
        ),
        (None, "model_type: required key is missing"),
    ],
)
def test_another_architecture_is_refused(folder, kind, message):
    (folder / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    with pytest.raises(RequestError) as error:
        format_of(Checkpoint(folder))
    assert message in str(error.value)


SETTINGS = {"n": 3, "flag": True, "rate": 0.5, "name": "x", "null": None}


def test_values_are_checked_where_they_are_read():
    settings = Settings(SETTINGS, "folder/config.json")
    assert settings.get("null", int, 7) == 7
    assert settings.positive_int("n") == 3
    assert settings.strings("no list") == []
    assert settings.rate("rate", 0.1) == 0.5
    assert settings.choice("name", {"x": "ours"}, "y") == "ours"
    settings.refuse("null", "never")


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda s: s.get("flag", int), "flag: expected an integer, got True"),
        (lambda s: s.get("name", (int, float)), "name: expected an integer or a number, got 'x'"),
        (lambda s: s.strings("name"), "name: expected a list, got 'x'"),
        (lambda s: s.strings("mixed"), "mixed: expected a list of strings, got ['x', {}]"),
        (lambda s: s.positive_int("missing"), "missing: required key is missing"),
        (lambda s: s.rate("n", 0.0), "n: must be in [0, 1), got 3.0"),
        (lambda s: s.choice("name", {"a": "b"}, "a"), "name: expected one of a, got 'x'"),
        (lambda s: s.refuse("flag", "not so"), "flag: True: not so"),
        (lambda s: s.refuse("n", "not so", (1,)), "n: 3: not so"),
    ],
)
def test_a_wrong_value_is_told_with_its_key(ask, message):
    with pytest.raises(RequestError) as error:
        ask(Settings({**SETTINGS, "mixed": ["x", {}]}, "folder/config.json"))
    assert str(error.value) == f"folder/config.json: {message}"


def test_a_configuration_that_nests_too_deep_is_told(folder):
    (folder / "config.json").write_text('{"a": ' * 200_000)
    with pytest.raises(DamagedError, match=r"config\.json: cannot be read as JSON"):
        _ = Checkpoint(folder).config

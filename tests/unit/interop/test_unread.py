"""What a folder holds is read, known to change nothing, or named on import."""

import json

import pytest

from heedful.errors import RequestError
from heedful.interop.checkpoint import Checkpoint, Settings
from heedful.interop.conversion import import_run
from heedful.interop.unread import ANY, MAX_NAMED, unread_keys


def lines_of(folder, tmp_path):
    lines = []
    import_run(folder, tmp_path / "run", lines.append)
    return [line for line in lines if "not read" in line]


def put(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


def test_a_folder_of_which_everything_is_read_has_no_note(gpt2, tmp_path):
    put(gpt2, "README.md", "a model")
    put(gpt2, "LICENSE", "free")
    put(gpt2, ".gitattributes", "*.bin")
    put(gpt2, "tokenizer_config.json", {"eos_token": "<|endoftext|>", "pad_token": None})
    put(gpt2, "special_tokens_map.json", {"eos_token": {"content": "<|endoftext|>", "lstrip": False}})
    put(gpt2, "generation_config.json", {"_from_model_config": True, "eos_token_id": 310})
    assert json.loads((gpt2 / "config.json").read_text("utf-8"))["eos_token_id"] == 310
    assert lines_of(gpt2, tmp_path) == []


def test_another_end_token_for_generation_is_named(gpt2, tmp_path):
    put(gpt2, "generation_config.json", {"eos_token_id": [310, 5]})
    assert lines_of(gpt2, tmp_path) == ["note: not read: generation_config.json: eos_token_id"]


FILES = {
    "training_args.bin": "x",
    "pytorch_model.bin": "x",
    "modeling_own.py": "x",
    "chat_template.jinja": "x",
    "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    "deep/er/file.txt": "x",
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_no_one_reads_are_named(gpt2, tmp_path, name):
    put(gpt2, name, FILES[name])
    assert lines_of(gpt2, tmp_path) == [f"note: not read: {name}"]


KEYS = {
    "config.json": {
        "auto_map": {"AutoModel": "own.Model"},
        "prefix": "Translate: ",
        "pruned_heads": {"0": [1]},
    },
    "generation_config.json": {
        "repetition_penalty": 1.2,
        "suppress_tokens": [7],
        "forced_bos_token_id": 3,
        "min_length": 4,
        "no_repeat_ngram_size": 3,
        "bad_words_ids": [[5]],
        "num_return_sequences": 2,
    },
    "tokenizer_config.json": {
        "chat_template": "{{ messages }}",
        "clean_up_tokenization_spaces": True,
        "split_special_tokens": True,
        "a_new_key": 1,
    },
}


@pytest.mark.parametrize("file, key", [(file, key) for file, keys in KEYS.items() for key in keys])
def test_keys_that_no_one_reads_are_named_with_their_file(gpt2, tmp_path, file, key):
    path = gpt2 / file
    content = json.loads(path.read_text("utf-8")) if path.exists() else {}
    put(gpt2, file, content | {key: KEYS[file][key]})
    assert lines_of(gpt2, tmp_path) == [f"note: not read: {file}: {key}"]


def test_generation_settings_of_older_folders_are_read_in_the_configuration(changed, tmp_path):
    folder = changed(repetition_penalty=1.2, do_sample=True, temperature=0.5)
    assert lines_of(folder, tmp_path) == ["note: not read: config.json: repetition_penalty"]


def test_they_are_ignored_where_the_newer_file_exists_as_in_transformers(changed, tmp_path):
    folder = changed(repetition_penalty=1.2, do_sample=True, temperature=0.5)
    put(folder, "generation_config.json", {"do_sample": False})
    assert lines_of(folder, tmp_path) == []


def test_a_key_is_harmless_with_some_values_or_with_any():
    settings = Settings({"a": 1, "b": 2, "c": None, "d": 4, "e": 5}, "f")
    settings.keys_read.add("d")
    assert [*unread_keys(settings, {"a": ANY, "b": (3,)})] == ["b", "e"]
    assert [*unread_keys(settings, {"a": (1,), "b": (2,), "e": ANY})] == []


def test_a_long_list_is_cut_with_its_number(gpt2, tmp_path):
    for number in range(MAX_NAMED + 3):
        put(gpt2, f"file{number:02}.bin", "x")
    (line,) = lines_of(gpt2, tmp_path)
    assert line.endswith("file11.bin and 3 more")


def test_an_adapter_is_refused_with_the_remedy(gpt2):
    put(gpt2, "adapter_config.json", {"peft_type": "LORA"})
    with pytest.raises(RequestError, match=r"an adapter changes what the model computes.*merge_and_unload"):
        Checkpoint(gpt2)


@pytest.mark.parametrize("key", ["add_bos_token", "add_eos_token"])
def test_tokens_that_are_added_to_every_text_are_refused(gpt2, tmp_path, key):
    put(gpt2, "tokenizer_config.json", {key: True})
    with pytest.raises(RequestError, match=f"{key}: True: heedful adds no token"):
        import_run(gpt2, tmp_path / "run")


def test_special_tokens_that_two_files_spell_differently_are_refused(gpt2, tmp_path):
    put(gpt2, "tokenizer_config.json", {"bos_token": "<a>"})
    put(gpt2, "special_tokens_map.json", {"bos_token": "<b>"})
    with pytest.raises(RequestError, match=r"bos_token: '<b>', but tokenizer_config.json has '<a>'"):
        import_run(gpt2, tmp_path / "run")


def test_added_tokens_must_be_in_the_vocabulary(gpt2, tmp_path):
    put(gpt2, "tokenizer_config.json", {"added_tokens_decoder": {"400": {"content": "<new>"}}})
    with pytest.raises(RequestError, match=r"'<new>' has the id 400.*it is missing"):
        import_run(gpt2, tmp_path / "run")


def test_a_shorter_limit_of_the_tokenizer_is_named(gpt2, tmp_path):
    put(gpt2, "tokenizer_config.json", {"model_max_length": 7})
    assert ["model_max_length=7 is not read" in line for line in lines_of(gpt2, tmp_path)] == [True]

import json
import os
import random
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.errors import DamagedError, RequestError, WorkError
from heedful.files import json_sha256 as sha256
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

LINES = ["A man in a blue shirt.", "Zwei junge weiße Männer <s>", "日本語 🙂"] * 3
KINDS = {
    "bpe": {"kind": "bpe", "merges": 40},
    "byte-bpe": {"kind": "byte-bpe", "merges": 40},
    "unigram": {"kind": "unigram", "vocab_size": 330},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 60},
    "word": {"kind": "word"},
    "character": {"kind": "character"},
    "byte": {"kind": "byte"},
}
TEXTS = ["", "A man <s> </s>", "  Zwei\n\n Männer日 ", "shirt\0"]


@cache
def tokenizer(name):
    config = TypeAdapter(TokenizerConfig).validate_python(KINDS[name])
    return train_tokenizer(config, LINES, PreprocessingConfig(normalization="nfc"))


@pytest.mark.parametrize("name", KINDS)
def test_a_loaded_tokenizer_equals_the_saved_one(name, tmp_path):
    saved = tokenizer(name)
    path = tmp_path / "tokenizer.json"
    saved.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.encode_batch(TEXTS) == saved.encode_batch(TEXTS)
    assert loaded.model.pieces == saved.model.pieces
    assert loaded.model.labels == saved.model.labels
    assert loaded.fingerprint == saved.fingerprint
    assert loaded.same_pieces_as(saved)
    assert loaded.preprocessing == saved.preprocessing
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_the_file_names_its_format_and_version(tmp_path):
    tokenizer("bpe").save(tmp_path / "t.json")
    record = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert record["format"] == "heedful-tokenizer"
    assert record["version"] == 1
    assert record["sha256"] == sha256(tokenizer("bpe").content)
    assert record["content"]["config"]["kind"] == "bpe"
    assert record["content"]["preprocessing"]["normalization"] == "nfc"


SCRIPT = """
import json, sys
from pathlib import Path
from heedful.text.tokenizer import Tokenizer
folder, texts = json.load(sys.stdin)
found = {p.stem: Tokenizer.load(p).encode_batch(texts) for p in Path(folder).glob("*.json")}
print(json.dumps(found))
"""


def test_a_fresh_process_gives_the_same_ids(tmp_path):
    for name in KINDS:
        tokenizer(name).save(tmp_path / f"{name}.json")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([str(tmp_path), TEXTS]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {name: tokenizer(name).encode_batch(TEXTS) for name in KINDS}


def outcome(path):
    try:
        return Tokenizer.load(path).fingerprint
    except (DamagedError, RequestError) as error:
        return "refused" if str(path) in str(error) else "refused without its name"


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_one_wrong_byte_is_never_read_as_another_tokenizer(tmp_path, place, value):
    path = tmp_path / "t.json"
    tokenizer("word").save(path)
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = value
    path.write_bytes(raw)
    assert outcome(path) in ("refused", tokenizer("word").fingerprint)


def test_a_truncated_file_is_damaged(tmp_path):
    path = tmp_path / "t.json"
    tokenizer("bpe").save(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DamagedError, match=r"t\.json"):
        Tokenizer.load(path)


def test_a_changed_vocabulary_is_damaged(tmp_path):
    path = tmp_path / "t.json"
    tokenizer("character").save(path)
    record = json.loads(path.read_text(encoding="utf-8"))
    record["content"]["data"]["characters"] += "q"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DamagedError, match="SHA-256"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"config": {"kind": "byte"}, "preprocessing": {"colour": 1}, "data": {}},
        {"config": {"kind": "runes"}, "preprocessing": {}, "data": {}},
        {"config": {"kind": "word"}, "preprocessing": {}, "data": {"model": {}}},
        {"config": {"kind": "character"}, "preprocessing": {}, "data": {}},
    ],
)
def test_invalid_content_is_refused(tmp_path, content):
    path = tmp_path / "t.json"
    record = {"format": "heedful-tokenizer", "version": 1, "sha256": sha256(content), "content": content}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DamagedError, match=r"t\.json"):
        Tokenizer.load(path)


def test_a_vocabulary_without_our_specials_is_refused(tmp_path):
    from tokenizers import Tokenizer as Library
    from tokenizers.models import WordLevel

    library = json.loads(Library(WordLevel({"<unk>": 0, "man": 1}, "<unk>")).to_str())
    content = {"config": {"kind": "word"}, "preprocessing": {}, "data": library}
    path = tmp_path / "t.json"
    record = {"format": "heedful-tokenizer", "version": 1, "sha256": sha256(content), "content": content}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(DamagedError, match="must begin with the special tokens"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "raw", [b"the man 4\na dog 3\n", b"[1, 2]", b'{"model": {}}', b"", b"\xff\xfe\0"], ids=repr
)
def test_foreign_files_are_refused_by_name(tmp_path, raw):
    path = tmp_path / "vocab.txt"
    path.write_bytes(raw)
    with pytest.raises(RequestError, match=r"vocab\.txt: not a heedful tokenizer"):
        Tokenizer.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RequestError, match=r"none\.json: cannot read"):
        Tokenizer.load(tmp_path / "none.json")


def test_another_version_is_refused(tmp_path):
    path = tmp_path / "t.json"
    tokenizer("byte").save(path)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(RequestError, match="version 2"):
        Tokenizer.load(path)


def test_a_save_that_fails_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    tokenizer("byte").save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match=r"t\.json: cannot be written.*No space"):
        tokenizer("word").save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(WorkError, match=r"nowhere.*No such file"):
        tokenizer("byte").save(tmp_path / "nowhere" / "t.json")


# Files that were made to harm, with the right hash ------------------------------------------------------

PADDING = {
    "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 2**31,
    "pad_type_id": 0, "pad_token": "x",
}  # fmt: skip
TRUNCATION = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
POST_PROCESSOR = {"type": "BertProcessing", "sep": ["x", 2**31], "cls": ["y", 2**31]}
AFTERWARDS = {"padding": PADDING, "truncation": TRUNCATION, "post_processor": POST_PROCESSOR}


def write_changed(path, content):
    record = {"format": "heedful-tokenizer", "version": 1, "sha256": sha256(content), "content": content}
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.mark.parametrize("name", ["bpe", "unigram", "wordpiece", "word"])
@pytest.mark.parametrize("key", AFTERWARDS)
def test_steps_that_change_ids_after_encoding_are_refused(name, key, tmp_path):
    content = tokenizer(name).content
    write_changed(tmp_path / "t.json", {**content, "data": {**content["data"], key: AFTERWARDS[key]}})
    with pytest.raises(DamagedError, match=rf"t\.json: .*{key} must be null"):
        Tokenizer.load(tmp_path / "t.json")


def leaves(value, path=()):
    """The paths to all that is neither a list nor an object, and to these."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))


HOSTILE = [None, -1, 0, 7, 2**31, 2**63, 1e300, "", "a", "<unk> ", [], {}, True]


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_refused_or_stays_within_its_vocabulary(name, tmp_path, amount):
    draw, content = random.Random(1), tokenizer(name).content
    places = [path for path in leaves(content["data"]) if path]
    for _ in range(amount(20, 1000)):
        changed = json.loads(json.dumps(content))
        if not places:
            return
        *path, last = draw.choice([draw.choice(places), *(p for p in places if len(p) <= 2)])
        inner = changed["data"]
        for key in path:
            inner = inner[key]
        inner[last] = draw.choice(HOSTILE)
        write_changed(tmp_path / "t.json", changed)
        try:
            loaded = Tokenizer.load(tmp_path / "t.json")
            found = loaded.encode_batch(TEXTS)
        except Exception:  # refused, or none of its texts can be encoded
            continue
        assert all(0 <= i < loaded.vocab_size for ids in found for i in ids), (path, last, inner[last])

"""Files of all kinds of tokenizers are crafted, with hashes that fit: they can be used, or are refused."""

import json
import random
import re

import pytest
from crafting import RAW, changes, seal

from heedful import limits
from heedful.errors import DamagedError, RequestError
from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    ByteConfig,
    CharacterConfig,
    UnigramConfig,
    WordConfig,
    WordPieceConfig,
)
from heedful.text.tokenizer import Tokenizer
from heedful.text.training import train_tokenizer

TEXTS = ["a b c", "the dog and the cat", "Übung macht den Meister", "low lower lowest"]
UNSEEN = ["", " ", "x\t\n", "東京 \U0001f600 \x00", "a" * 300, "</s> <unk> <0xE2>"]
KINDS = {
    "bpe": BpeConfig(kind="bpe", merges=20),
    "bpe without bytes": BpeConfig(kind="bpe", merges=20, byte_fallback=False),
    "byte-bpe": ByteBpeConfig(kind="byte-bpe", merges=20),
    "unigram": UnigramConfig(kind="unigram", vocab_size=300),
    "wordpiece": WordPieceConfig(kind="wordpiece", vocab_size=60),
    "word": WordConfig(kind="word"),
    "character": CharacterConfig(kind="character"),
    "byte": ByteConfig(kind="byte"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_crafted_tokenizer_can_be_used_or_is_refused(kind, tmp_path, amount):
    path, changed_path = tmp_path / "a.tokenizer.json", tmp_path / "b.tokenizer.json"
    train_tokenizer(KINDS[kind], TEXTS).save(path)
    content = path.read_bytes()
    cases = [
        (how, lambda make=make: json.dumps(make()).encode()) for how, make in changes(json.loads(content))
    ]
    raw = [(how, lambda change=change: change(content)) for how, change in RAW.items()]
    n_refused = 0
    for how, make_content in [*raw, *random.Random(kind).sample(cases, min(len(cases), amount(300, 10**6)))]:
        changed_path.write_bytes(make_content())
        seal(tmp_path, changed_path)
        message = refusal(changed_path, how)
        n_refused += bool(message)
        assert not message or message.startswith(f"{changed_path}: "), how
        assert len(message) < 2_000, how
    assert n_refused > len(RAW) / 2


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word"])
def test_a_token_longer_than_any_text_is_refused_shortly(kind, tmp_path, monkeypatch):
    path, changed_path = tmp_path / "a.tokenizer.json", tmp_path / "b.tokenizer.json"
    train_tokenizer(KINDS[kind], TEXTS).save(path)
    record = json.loads(path.read_bytes())
    model = record["content"]["data"]["model"]
    vocabulary = model["vocab"]
    if "merges" in model:
        model["merges"] = []
    monkeypatch.setattr(limits, "LONGEST_TEXT", 1000)
    for n, is_refused in ((200, False), (1100, True)):
        if isinstance(vocabulary, dict):
            last = max(vocabulary, key=vocabulary.__getitem__)
            vocabulary["x" * n] = vocabulary.pop(last)
        else:
            vocabulary[-1][0] = "x" * n
        changed_path.write_bytes(json.dumps(record).encode())
        seal(tmp_path, changed_path)
        message = refusal(changed_path, kind)
        assert bool(message) == is_refused, message
        assert not message or re.search(r"a token of 1,10\d bytes, more than 1,000: ", message)
        assert len(message) < 400


def refusal(path, how):
    """Return the message with which a tokenizer is refused; empty if it can be used."""
    try:
        use(path)
    except (DamagedError, RequestError) as error:
        return str(error)
    except BaseException as error:  # a panic of the library is no Exception
        raise RuntimeError(how) from error
    return ""


def use(path):
    """Load a tokenizer, encode and decode."""
    tokenizer = Tokenizer.load(path)
    for texts in (TEXTS, UNSEEN):
        for ids in tokenizer.encode_batch(texts):
            assert all(0 <= i < tokenizer.vocab_size for i in ids)
            tokenizer.decode(ids)
            tokenizer.tokens(ids)
            tokenizer.split_words(ids)

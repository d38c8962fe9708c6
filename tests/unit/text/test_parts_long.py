"""Long texts in chunks: nothing is lost, and the tokens are those of the whole text."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.text.configuration import TokenizerConfig
from heedful.text.parts import encode_long, split_text
from heedful.text.training import train_tokenizer

LINES = [
    "A man in a blue shirt, 3 meters high.",
    "  two  spaces\tund weiße Männer <0x41>",
    "नमस्ते 日本語 🙂",
] * 3
FAITHFUL = {
    "bpe": {"kind": "bpe", "merges": 60},
    "bpe-space": {"kind": "bpe", "merges": 60, "split": "space"},
    "byte-bpe": {"kind": "byte-bpe", "merges": 90},
    "byte-bpe-gpt2": {"kind": "byte-bpe", "merges": 90, "split": "gpt2"},
    "unigram": {"kind": "unigram", "vocab_size": 380},
    "character": {"kind": "character", "byte_fallback": True},
    "byte": {"kind": "byte"},
}
KINDS = {**FAITHFUL, "wordpiece": {"kind": "wordpiece", "vocab_size": 120}, "word": {"kind": "word"}}
PARTS = st.sampled_from(
    [" ", "  ", "\n", "\t", "\u3000", "\x1c", "▁", "##", "'s", "<0x41>", "a", "man", "3", "ß", "日", "é"]
)
TEXT = st.lists(PARTS, max_size=60).map("".join)


@cache
def tokenizer(name):
    return train_tokenizer(TypeAdapter(TokenizerConfig).validate_python(KINDS[name]), iter(LINES))


@given(TEXT, st.integers(1, 30))
def test_chunks_join_to_the_text_and_begin_at_spaces_between_words(text, size):
    first, *others = pieces = list(split_text(text, size))
    assert "".join(pieces) == text
    for before, piece in zip([first, *others], others):
        assert len(before) >= size
        assert piece[0] == " "
        assert before[-1].isalnum()
        assert piece[1].isalnum()


def test_a_long_word_stays_whole():
    assert list(split_text("a bb " + "c" * 50 + " dd e", 4)) == ["a bb", " " + "c" * 50, " dd e"]
    assert list(split_text("", 4)) == [""]


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=TEXT, size=st.integers(1, 40))
def test_the_tokens_are_those_of_the_whole_text(name, text, size):
    own = tokenizer(name)
    ids = [i for piece in encode_long(own, text, size) for i in piece]
    assert ids == own.encode(text)
    if name in FAITHFUL:
        assert own.decode(ids) == text

"""Notes on words that are not in the vocabulary: how many, of how many, and which."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.tasks.inputs.texts import (
    MOST_NAMED,
    is_of_unknown_words,
    join_notes,
    unknown_note,
    unknown_notes,
    unknown_notes_by_column,
)
from heedful.text.configuration import ByteConfig, CharacterConfig, PreprocessingConfig, WordConfig
from heedful.text.tokenizer import EncodedTexts
from heedful.text.training import train_tokenizer

KNOWN = ["the", "cat", "sat", "down"]
STRANGE = ["unicorn", "zebra", "Quagga"]
WORDS = train_tokenizer(WordConfig(kind="word"), [" ".join(KNOWN)] * 2)


def note(tokenizer, *texts, side=""):
    return unknown_note(tokenizer, texts, tokenizer.encode_batch(texts), side)


def test_the_words_that_are_not_known_are_counted():
    assert note(WORDS, "unicorn zebra", side="source") == (
        "2 of 2 source words are unknown to this run ('unicorn', 'zebra')"
    )
    assert note(WORDS, "the zebra sat") == "1 of 3 words is unknown to this run ('zebra')"
    assert note(WORDS, "the cat", "zebra, cat") == (
        "2 of 5 words are unknown to this run ('zebra', ',')"  # the comma is a word too
    )
    assert note(WORDS, "the cat") is None
    assert note(WORDS, "") is None


@given(st.lists(st.sampled_from(KNOWN + STRANGE), max_size=9))
@settings(max_examples=30, deadline=None)
def test_all_are_named_once_in_order_and_the_count_is_that_of_the_words(words):
    strange = [word for word in words if word in STRANGE]
    found = note(WORDS, " ".join(words))
    if not strange:
        assert found is None
        return
    assert found.startswith(f"{len(strange)} of {len(words)} words ")
    assert found.endswith(f"({', '.join(map(repr, dict.fromkeys(strange)))})")
    assert WORDS.unknown_words(" ".join(words)) == strange


def test_of_many_unknown_words_the_first_are_named():
    strange = [f"x{i}y" for i in range(MOST_NAMED + 3)]
    names = ", ".join(f"'{word}'" for word in strange[:MOST_NAMED])
    assert note(WORDS, " ".join(strange)).endswith(f"unknown to this run ({names} and 3 more)")


@pytest.mark.parametrize("side", ["", "source"])
def test_a_note_of_unknown_words_alone_is_told_from_others(side):
    for texts in (["unicorn"], ["the zebra"], ["zebra"] * 1_200):
        unknown = note(WORDS, *texts, side=side)
        assert is_of_unknown_words(unknown)
    assert not is_of_unknown_words("cut from 12 to 4 tokens")
    assert not is_of_unknown_words("the input is empty")


def test_words_are_told_as_they_are_read():
    side = train_tokenizer(
        WordConfig(kind="word", split="space"),
        ["the cat ."] * 2,
        PreprocessingConfig(moses="en", lowercase=True),
    )
    assert note(side, "The Zebra.") == "1 of 3 words is unknown to this run ('zebra')"


def test_pieces_are_not_called_words():
    signs = train_tokenizer(CharacterConfig(kind="character", byte_fallback=False), ["the cat sat"] * 2)
    assert note(signs, "the bat") == "1 of 7 tokens is unknown to this run (in 'bat')"
    assert note(signs, "the tea") is None


def test_bytes_are_all_known():
    assert note(train_tokenizer(ByteConfig(kind="byte"), ["a"]), "unicorn ☃") is None


def test_special_tokens_among_the_ids_are_no_words():
    specials = WORDS.specials
    ids = [[specials.classify, *WORDS.encode("the zebra"), specials.mask, specials.separate]]
    assert unknown_note(WORDS, ["the zebra"], ids).startswith("1 of 2 words")


def test_a_data_set_is_counted_side_by_side():
    texts = ["the cat", "a zebra sat", "the unicorn"]
    assert unknown_notes("target", EncodedTexts.encode(WORDS, texts), predicted=True) == [
        "3 of 7 target words (42.9%) are unknown to this run (the first: 'a'); "
        "the perplexity counts them as <unk>, whatever they are"
    ]
    assert unknown_notes("source", EncodedTexts.encode(WORDS, ["the cat"])) == []
    assert unknown_notes_by_column(
        WORDS, [{"text": "the cat", "pair": "cat"}, {"text": "the", "pair": "dog sat"}]
    ) == ["1 of 3 pair words (33.3%) is unknown to this run (the first: 'dog')"]
    assert unknown_notes_by_column(WORDS, []) == []


@pytest.mark.parametrize(
    "notes, expected",
    [
        ((None, None), ()),
        (("a", None), ("a",)),
        ((None, "b"), ("b",)),
        (("a", "b"), ("a", "b")),
        (("a", ("b", "c"), (), None), ("a", "b", "c")),
    ],
)
def test_several_notes_are_told_together(notes, expected):
    assert join_notes(*notes) == expected

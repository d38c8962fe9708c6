"""Text around gaps has the same ids as in the whole text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.configuration import (
    BpeConfig,
    ByteBpeConfig,
    CharacterConfig,
    PreprocessingConfig,
    UnigramConfig,
    WordConfig,
)
from heedful.text.parts import around_masks
from heedful.text.training import train_tokenizer

TEXTS = ["the old cat sat on the mat.", "a cat, the old mat; (a hat) and that's that."] * 20
KINDS = {
    "bpe": BpeConfig(kind="bpe", vocab_size=330, split="space"),
    "byte-bpe": ByteBpeConfig(kind="byte-bpe", vocab_size=330),
    "gpt2": ByteBpeConfig(kind="byte-bpe", vocab_size=330, split="gpt2"),
    "unigram": UnigramConfig(kind="unigram", vocab_size=300),
    "word": WordConfig(kind="word"),
    "character": CharacterConfig(kind="character"),
}
GAP = "\ue000"


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(KINDS[request.param], TEXTS)


def test_a_gap_replaces_the_ids_of_a_word(tokenizer):
    """Every word of texts in turn; what is left of the text is as it was, and nothing is added."""
    if tokenizer.model.config.kind == "character":
        pytest.skip("words are no tokens there")
    for text in TEXTS[:2]:
        whole = tokenizer.encode(text)
        for match in re.finditer(r"\S+", text):
            first, last = match.span()
            around = around_masks(tokenizer, [text[:first], text[last:]])
            before, after = around.parts
            assert whole[: len(before)] == before
            assert whole[len(whole) - len(after) :] == after
            filling = whole[len(before) : len(whole) - len(after)]
            assert tokenizer.decode(filling).replace(" ", "") == match.group()
            if around.spaced[0]:
                assert tokenizer.model.pieces[filling[0]].startswith(b" ")


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "gpt2", "unigram"])
def test_text_directly_after_a_gap_has_no_space_before_it(kind):
    tokenizer = train_tokenizer(KINDS[kind], TEXTS)
    _, after = around_masks(tokenizer, ["the old ", ". the mat"]).parts
    assert b"".join(tokenizer.token_bytes(after, is_continuation=True)) == b". the mat"
    _, after = around_masks(tokenizer, ["the old ", " cat"]).parts
    assert b"".join(tokenizer.token_bytes(after, is_continuation=True)) == b" cat"


def test_fillings_begin_with_the_space_that_was_there(tokenizer):
    carries = tokenizer.model.config.kind not in ("word", "character")
    begins = getattr(tokenizer.model.config, "split", None) != "gpt2"
    cases = {
        "the | cat": [True],
        "| cat": [begins],
        "un|ed": [False],
        "a || b": [True, False],
        "a | | b": [True, True],
    }
    for text, spaced in cases.items():
        assert around_masks(tokenizer, text.split("|")).spaced == [carries and each for each in spaced]


@given(parts=st.lists(st.text("ab .,\n\u0301é", max_size=9), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
@pytest.mark.parametrize("kind", ["bpe", "gpt2"])
def test_no_character_is_lost_or_added(kind, parts):
    """But for the spaces that fillings bring, and the one that a whole text puts before itself."""
    tokenizer = train_tokenizer(KINDS[kind], TEXTS)
    around = around_masks(tokenizer, parts)
    assert len(around.parts) == len(parts)
    spelled = [
        b"".join(tokenizer.token_bytes(ids, is_continuation=number > 0)).decode()
        for number, ids in enumerate(around.parts)
    ]
    for number, (own, part) in enumerate(zip(spelled, parts, strict=True)):
        wanted = part.removesuffix(" ") if number < len(parts) - 1 else part
        # A lone space has no word to stand before.
        assert own == wanted or (own == "" and wanted == " ")


def test_parts_are_pre_processed():
    tokenizer = train_tokenizer(KINDS["bpe"], TEXTS, PreprocessingConfig(lowercase=True, moses="en"))
    before, after = around_masks(tokenizer, ["The OLD ", ". The mat"]).parts
    assert tokenizer.decode(before) == "the old"
    # Moses sets marks apart, so there the mark is a word.
    assert b"".join(tokenizer.token_bytes(after, is_continuation=True)) == b" . the mat"

"""What stands along an axis: special tokens, words across pieces, patches."""

import numpy as np
import pytest

from heedful.tasks.model_input import Axis, patches_axis, text_axis, words_axis
from heedful.text.configuration import BpeConfig, WordConfig
from heedful.text.scripts import NO_WORD
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer


@pytest.fixture(scope="module")
def pieces():
    config = BpeConfig(kind="bpe", merges=3, min_frequency=1)
    return train_tokenizer(config, iter(["low lower lowest", "newer wider"]))


@pytest.fixture(scope="module")
def whole():
    return train_tokenizer(WordConfig(kind="word"), iter(["the cat sat"]))


def test_pieces_know_their_words(pieces):
    ids = pieces.encode("lower newer")
    axis = text_axis(pieces, [SPECIALS.start, *ids, SPECIALS.end])
    assert len(ids) > 2
    assert axis.surface == ("lower", "newer")
    assert (axis.words[0], axis.words[-1]) == (-1, -1)
    wanted = pieces.split_words(ids)[1]
    assert NO_WORD in wanted
    for i in reversed(range(len(ids))):  # white space alone belongs to the word that it stands before
        wanted[i] = wanted[i + 1] if wanted[i] == NO_WORD else wanted[i]
    assert list(axis.words[1:-1]) == wanted


def test_several_texts_are_counted_on(pieces):
    first, second = pieces.encode("low lower"), pieces.encode("wider")
    ids = [SPECIALS.classify, *first, SPECIALS.separate, *second, SPECIALS.separate]
    axis = text_axis(pieces, ids)
    assert axis.surface == ("low", "lower", "wider")
    assert set(axis.words[len(first) + 2 : -1]) == {2}


def test_an_unknown_word_is_a_word(whole):
    axis = text_axis(whole, [*whole.encode("the dog sat"), SPECIALS.end])
    assert axis.tokens[1] == "<unk>"
    assert axis.surface == ("the", "<unk>", "sat")
    assert axis.words == (0, 1, 2, -1)


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ("the dog sat", ("the", "dog", "sat")),
        ("zebra cat zoo", ("zebra", "cat", "zoo")),
        ("the dog sat and more", ("the", "dog", "sat", "and", "more")),
    ],
)
def test_an_unknown_word_is_named_as_it_was_given(whole, text, surface):
    axis = text_axis(whole, [*whole.encode(text), SPECIALS.end], [text])
    assert "<unk>" in axis.tokens
    assert axis.surface == surface


def test_unknown_words_of_several_texts_are_each_their_own(whole):
    first, second = whole.encode("the dog"), whole.encode("zebra sat")
    ids = [SPECIALS.classify, *first, SPECIALS.separate, *second, SPECIALS.separate]
    assert text_axis(whole, ids, ["the dog", "zebra sat"]).surface == ("the", "dog", "zebra", "sat")


def test_a_text_of_other_words_names_none(whole):
    ids = whole.encode("the dog sat")
    for other in ("a dog sat", "the dog", ""):
        assert text_axis(whole, ids, [other]).surface == ("the", "<unk>", "sat")


def test_no_text_has_no_words(pieces):
    assert text_axis(pieces, [SPECIALS.end]) == Axis(("</s>",), (-1,))


def test_given_words_keep_their_blanks(pieces):
    ids = [pieces.encode("low wider"), pieces.encode("newer")]
    axis = words_axis(
        pieces, [SPECIALS.classify, *ids[0], *ids[1], SPECIALS.separate], ["low wider", "newer"], ids
    )
    assert axis.surface == ("low wider", "newer")
    assert axis.words == (-1, *[0] * len(ids[0]), *[1] * len(ids[1]), -1)


def test_patches_are_named_by_row_and_column():
    axis = patches_axis((1, 3), 1, np.zeros((3, 2, 6), np.uint8))
    assert axis.tokens == ("<cls>", "1,1", "1,2", "1,3")
    assert axis.image.startswith(b"\x89PNG")

"""Sentence-boundary properties of pieces."""

import pytest
from pydantic import TypeAdapter

from heedful.text.configuration import TokenizerConfig
from heedful.text.sentences import SentenceSigns
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer

TEXT = 'He left. "Why?" she asked (twice!) \n他走了。她说：“好！”\n Well…'


def signs(kind, text=TEXT, **options):
    config = TypeAdapter(TokenizerConfig).validate_python({"kind": kind, **options})
    tokenizer = train_tokenizer(config, [text] * 3)
    found = SentenceSigns.of(tokenizer)

    def those(name):
        pieces = enumerate(tokenizer.model.pieces)
        return {piece.decode("utf-8", "replace") for i, piece in pieces if getattr(found, name)[i] and piece}

    return found, those


def test_properties_of_single_characters():
    _, those = signs("character")
    assert those("stops") == {".", "?", "!", "…"}
    assert those("breaks") == {"。", "！", "\n"}
    assert those("passed") == {" ", "\n", ")", "”", ".", "?", "!", "…", "。", "！"}
    assert those("quotes") == {'"', "“"}
    assert those("spaced") == those("spacing") == {" ", "\n"}


def test_pieces_end_as_their_last_character_that_does_not_close():
    _, those = signs("bpe", 'He left." She (too.) No.) \n\n' * 3, vocab_size=600)
    assert {'."', ".)"} <= those("stops")
    assert not those("stops") & {'"', ")", " left", "\n"}
    assert those("spaced") >= {" left", " She"}
    assert "." not in those("spaced")


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
def test_whole_words_begin_words_and_so_does_an_unknown_one(kind):
    found, those = signs(kind, "He left. She", **({"vocab_size": 99} if kind == "wordpiece" else {}))
    assert " ." in those("stops") & those("spaced")
    assert found.spaced[SPECIALS.unknown]


def test_special_tokens_are_not_white_space_and_a_word_begins_after_end():
    found, _ = signs("character")
    n = len(SPECIALS)
    assert not (found.passed | found.quotes | found.stops | found.breaks | found.spaced)[:n].any()
    assert [i for i in range(n) if found.spacing[i]] == [SPECIALS.end]

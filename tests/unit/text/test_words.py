"""Words with their ids, and the characters that each id covers."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.text.specials import SPECIALS
from heedful.text.training import train_tokenizer
from heedful.text.words import (
    blank_words,
    encode_with_spans,
    spans,
    surface_words,
    with_original_words,
    word_ids,
    word_indices_of_ids,
    word_of_each_id,
)

LINES = ["the old man sleeps in the blue room , he said .", "schöne Bäume und alte Häuser 1923-24"] * 3
KINDS = {
    "bpe": {"kind": "bpe", "merges": 40},
    "bpe-space": {"kind": "bpe", "merges": 40, "split": "space"},
    "byte-bpe": {"kind": "byte-bpe", "merges": 40},
    "byte-bpe-gpt2": {"kind": "byte-bpe", "merges": 40, "split": "gpt2"},
    "unigram-space": {"kind": "unigram", "vocab_size": 300, "split": "space"},
    "wordpiece": {"kind": "wordpiece", "vocab_size": 80},
    "word": {"kind": "word"},
    "character": {"kind": "character"},
    "byte": {"kind": "byte"},
}
WORDS = st.lists(st.text("theomansÄäé1,.-'", min_size=1, max_size=6), min_size=1, max_size=5)


@cache
def tokenizer(name, lowercase=False):
    config = TypeAdapter(TokenizerConfig).validate_python(KINDS[name])
    return train_tokenizer(config, iter(LINES), PreprocessingConfig(lowercase=lowercase))


@pytest.mark.parametrize("name", KINDS)
@given(WORDS)
def test_the_ids_of_words_are_those_of_their_text(name, words):
    made = tokenizer(name)
    assert [i for own in word_ids(made, words) for i in own] == made.encode(" ".join(words))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@given(WORDS)
def test_ids_cover_their_words_in_order(name, words):
    made, text = tokenizer(name), "  ".join(words)
    found = encode_with_spans(made, text)
    assert len(found.ids) == len(found.spans)
    place = 0
    for word, ids in zip(words, word_ids(made, words), strict=True):
        own = spans(made, word, ids)
        first = text.index(word, place)
        assert found.spans[: len(ids)] == [(first + a, first + b) for a, b in own]
        found = type(found)(found.ids[len(ids) :], found.spans[len(ids) :])
        place = first + len(word)
        assert max(b for _, b in own) == len(word)
        assert all(0 <= a <= b <= len(word) for a, b in own)
        assert [a for a, _ in own] == sorted(a for a, _ in own)


@pytest.mark.parametrize("name", ["bpe", "byte-bpe", "byte-bpe-gpt2", "wordpiece", "word"])
def test_punctuation_has_its_own_span(name):
    made, text = tokenizer(name), "he sleeps in the room."
    found = encode_with_spans(made, text)
    first, last = found.covering((17, 21))
    assert text[found.spans[first][0] : found.spans[last][1]] == "room"


def test_an_unknown_word_is_one_token_that_covers_all_of_it():
    found = encode_with_spans(tokenizer("word"), "the zebra sleeps")
    assert found.ids[1] == SPECIALS.unknown
    assert found.spans == [(0, 3), (4, 9), (10, 16)]


def test_lowercasing_keeps_spans_although_it_changes_lengths():
    made = tokenizer("bpe", lowercase=True)
    assert encode_with_spans(made, "THE Old") == encode_with_spans(made, "the old")
    # The capital I with a dot takes two bytes, in lower case three.
    ids = word_ids(made, ["\u0130the"])[0]
    covered = spans(made, "\u0130the", ids)
    assert covered[0] == (0, 0 if made.tokens(ids)[0] == "▁" else 1)
    assert covered[-1][1] == 4
    assert {first for first, _ in covered} > {0, 1}
    # A final sigma depends on its neighbours: not the lower case of the character by itself.
    ids = word_ids(made, ["\u0130ΟΔΟΣ"])[0]
    assert spans(made, "\u0130ΟΔΟΣ", ids) == [(0, 5)] * len(ids)


def test_a_word_without_ids_is_unknown():
    assert word_ids(tokenizer("wordpiece"), ["the", "\u0000"])[1] == [SPECIALS.unknown]
    assert word_ids(tokenizer("word"), [""]) == [[SPECIALS.unknown]]
    assert word_ids(tokenizer("word"), []) == []


def test_a_span_that_no_id_overlaps_is_not_covered():
    found = encode_with_spans(tokenizer("word"), "the  man")
    assert found.covering((3, 5)) is None
    assert found.covering((2, 6)) == (0, 1)


@pytest.mark.parametrize("name", KINDS)
@given(WORDS)
def test_every_id_of_a_text_has_the_number_of_its_word(name, words):
    made = tokenizer(name, lowercase=True)
    (places,) = word_indices_of_ids(made, [words], [made.encode(" ".join(words))])
    own = word_ids(made, words)
    assert places == [number for number, ids in enumerate(own) for _ in ids]


@pytest.mark.parametrize("name", KINDS)
@given(WORDS, st.sampled_from([" ", "  ", "\u00a0", "\t"]), st.integers(0, 9))
def test_every_id_belongs_to_the_word_that_it_spells(name, words, separator, cut):
    """However words are separated; so do the ids of the beginning of a text."""
    made, text = tokenizer(name), separator.join(words)
    ids = made.encode(text)
    indices = word_of_each_id(made, ids, words)
    if indices is None:
        assert SPECIALS.unknown in ids
        return
    assert word_of_each_id(made, ids[:cut], words) == indices[:cut]
    known = [index for index in indices if index is not None]
    assert known == sorted(known)
    if SPECIALS.unknown not in ids:
        for index, word in enumerate(words):
            own = [i for i, other in zip(ids, indices, strict=True) if other == index]
            assert "".join(made.surface(own).split()) == word


def test_other_spellings_of_a_word_in_pieces_belong_to_it():
    made = tokenizer("bpe")
    ids = [i for piece in ("the", " ", "o", "l", "d") for i in made.encode_parts(["", piece], "")[1]]
    assert word_of_each_id(made, ids, ["the", "old"])[-3:] == [1, 1, 1]
    assert word_of_each_id(made, ids, ["the", "cold"]) is None
    assert word_of_each_id(made, [], []) == []


def test_a_text_with_other_ids_than_its_words_has_no_places():
    made = tokenizer("byte")
    found = word_indices_of_ids(
        made, [["a", "b"], ["a", "b"], []], [made.encode("a  b"), made.encode("a b"), []]
    )
    assert found == [None, [0, 1, 1], []]


def test_only_spaces_and_tabs_separate_words():
    assert blank_words("  a b\t\tc\u00a0d\u2003e \t") == ["a", "b", "c\u00a0d\u2003e"]
    assert blank_words(" \t") == blank_words("") == []


@pytest.mark.parametrize("kind", ["words", "pieces", "octets"])
def test_words_are_those_of_the_text_with_the_end_as_the_last(kind, request):
    tokenizer = request.getfixturevalue(kind)
    text = "the doghouse sees a dog"
    ids = tokenizer.encode(text.replace("doghouse", "dog") if kind == "words" else text)
    found, numbers = surface_words(tokenizer, ids)
    assert found == [*(text.replace("doghouse", "dog") if kind == "words" else text).split(), "</s>"]
    assert len(numbers) == len(ids) + 1
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(found)))
    for place, word in enumerate(found[:-1]):
        own = [i for i, number in zip(ids, numbers, strict=False) if number == place]
        assert tokenizer.surface(own).strip() == word


def test_white_space_belongs_to_what_comes_after_it(octets):
    found, numbers = surface_words(octets, octets.encode("a  b "))
    assert found == ["a", "b", "</s>"]
    assert numbers == [0, 1, 1, 1, 2, 2]


def test_unknown_words_are_words(words):
    found, numbers = surface_words(words, words.encode("zebra the zebra zebra cat zebra"))
    assert found == ["<unk>", "the", "<unk>", "<unk>", "cat", "<unk>", "</s>"]
    assert numbers == [0, 1, 2, 3, 4, 5, 6]


def test_an_unknown_sign_inside_a_word_stays_in_it(pieces):
    ids = pieces.encode("the doXg")
    assert pieces.specials.unknown in ids
    found, numbers = surface_words(pieces, ids)
    assert found == ["the", "dog", "</s>"]
    assert set(numbers) == {0, 1, 2}


def test_nothing_has_the_end_alone(words):
    assert surface_words(words, []) == (["</s>"], [0])


JAPANESE = ["猫が公園で犬を見る。", "犬は猫が好きだ。", "私は公園に行く。"] * 3


@cache
def japanese(name, **preprocessing):
    config = {"bpe-unknown": {"kind": "bpe", "merges": 9, "byte_fallback": False}, **KINDS}[name]
    config = TypeAdapter(TokenizerConfig).validate_python(config)
    return train_tokenizer(config, iter(JAPANESE), PreprocessingConfig(**preprocessing))


@pytest.mark.parametrize("name", ["bpe", "bpe-space", "byte-bpe", "wordpiece", "character", "byte"])
def test_pieces_are_words_where_a_script_has_no_spaces(name):
    made = japanese(name)
    ids = made.encode("猫が公園に行く。")
    found, indices = surface_words(made, ids)
    assert "".join(found) == "猫が公園に行く。</s>"
    assert len(found) > 3
    for position, word in enumerate(found[:-1]):
        own = [i for i, index in zip(ids, indices, strict=False) if index == position]
        assert made.surface(own).strip() == word


@pytest.mark.parametrize("name", ["bpe", "bpe-unknown", "byte-bpe", "wordpiece", "character"])
@given(st.text("猫が公園で犬鬱を。", min_size=1))
def test_spans_cover_a_text_without_spaces(name, text):
    made = japanese(name)
    encoded = encode_with_spans(made, text)
    covered = [text[a:b] for a, b in encoded.spans]
    for i, part in zip(encoded.ids, covered, strict=True):
        if i != SPECIALS.unknown:
            assert made.decode([i]) in part or "\ufffd" in made.decode([i])
    if "鬱" not in text:
        bounds = sorted(set(encoded.spans))  # two bytes of a character cover it both
        assert "".join(text[a:b] for a, b in bounds) == text or name == "byte-bpe"
        assert {index for a, b in bounds for index in range(a, b)} == set(range(len(text)))
    elif name == "character":
        assert covered == list(text)


def test_spans_refer_to_the_text_before_it_was_composed():
    made = japanese("bpe", normalization="nfc")
    text = "犬か\u3099公園て\u3099見る。"
    assert made.encode(text) == made.encode("犬が公園で見る。")
    encoded = encode_with_spans(made, text)
    first, last = encoded.covering((text.index("公園"), text.index("公園") + 2))
    assert text[encoded.spans[first][0] : encoded.spans[last][1]] == "公園"
    assert "".join(text[a:b] for a, b in encoded.spans) == text


def test_an_unknown_piece_covers_the_characters_between_its_neighbours():
    made = japanese("bpe-unknown")
    encoded = encode_with_spans(made, "猫が鬱蒼公園")
    unknown = [span for i, span in zip(encoded.ids, encoded.spans, strict=True) if i == SPECIALS.unknown]
    assert {"猫が鬱蒼公園"[a:b] for a, b in unknown} in ({"鬱蒼"}, {"鬱", "蒼"})


def test_unknown_words_of_a_script_without_spaces_are_characters():
    assert japanese("bpe-unknown").unknown_words("猫が鬱々と公園で寝る。") == ["鬱", "々", "と", "寝"]
    assert japanese("wordpiece").unknown_words("猫が鬱。") == ["鬱"]
    assert japanese("word").unknown_words("猫が公園。") == ["猫が公園"]  # what its vocabulary consists of


@pytest.mark.parametrize(
    "words, text, expected",
    [
        (["猫", "<unk>", "公園"], "猫鬱公園", ["猫", "鬱", "公園"]),
        (["<unk>", "<unk>", "が"], "鬱蒼が", ["鬱", "蒼", "が"]),
        (["<unk>", "が", "<unk>"], "鬱蒼が寝", ["鬱蒼", "が", "寝"]),
        (["<unk>", "<unk>", "が"], "鬱蒼々が", ["<unk>", "<unk>", "が"]),  # which is which is not clear
        (["猫", "<unk>"], "猫鬱公園で", ["猫", "<unk>"]),  # the text was truncated
        (["猫", "が"], "猫が公園で", ["猫", "が"]),
        (["犬", "<unk>"], "猫鬱", ["犬", "<unk>"]),
        (["<unk>", "cats"], "鬱 Cats", ["鬱", "cats"]),
        (["the", "<unk>"], "the zebra", ["the", "zebra"]),
    ],
)
def test_unknown_words_are_shown_as_in_the_text(words, text, expected):
    assert with_original_words(words, text) == expected

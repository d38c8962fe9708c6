"""Alignments of words as links of ids: held to the words that tokenizers say ids belong to."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from heedful.data.lines import LocatedRow, Location
from heedful.data.links import ALIGNMENT
from heedful.data.report import DataReport, Filter, keep
from heedful.errors import DataError
from heedful.tasks.generation.guidance import TOKENS_NOT_BY_WORD, cut_links, encode_linked
from heedful.tasks.inputs.processor import SOURCE, TARGET, Tokenizers
from heedful.text.configuration import PreprocessingConfig, TokenizerConfig
from heedful.text.scripts import NO_WORD
from heedful.text.training import train_tokenizer

LINES = ["The old man sleeps in the blue room", "der alte Bär , sagt er ."] * 3
KINDS = {
    "bpe": {"kind": "bpe", "merges": 20},
    "word": {"kind": "word", "split": "space"},
    "byte": {"kind": "byte"},
    "character": {"kind": "character"},
}


@cache
def tokenizers(name, moses=None):
    config = TypeAdapter(TokenizerConfig).validate_python(KINDS[name])
    own = PreprocessingConfig(lowercase=True, moses=moses)
    made = train_tokenizer(config, iter(LINES), own)
    return Tokenizers(made, made)


def encoded(name, *rows, moses=None):
    located = [
        LocatedRow(
            {SOURCE: source, TARGET: target} | ({} if links is None else {ALIGNMENT: links}),
            Location("train.en", n),
        )
        for n, (source, target, links) in enumerate(rows, 1)
    ]
    report = DataReport()
    return [row.row for row in encode_linked(tokenizers(name, moses), located, report, chunk=2)], report


def pairs(row):
    flat = row[ALIGNMENT]
    return list(zip(flat[::2], flat[1::2], strict=True))


def words_of(tokenizer, ids):
    """The number of each id's word, as the tokenizer tells it; a blank belongs to what comes after it."""
    numbers = tokenizer.split_words(ids)[1]
    for place in reversed(range(len(ids) - 1)):
        if numbers[place] == NO_WORD:
            numbers[place] = numbers[place + 1]
    return numbers


WORDS = st.lists(st.text("TheoldmaäÄ,.", min_size=1, max_size=5), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ["bpe", "byte", "character"])
@given(WORDS, WORDS, st.data())
def test_ids_have_the_links_of_their_words_and_no_others(name, source, target, data):
    every = [(i, j) for i in range(len(source)) for j in range(len(target))]
    links = set(data.draw(st.lists(st.sampled_from(every), max_size=6)))
    text = " ".join(f"{i}{'p' if (i + j) % 2 else '-'}{j}" for i, j in links)
    own = tokenizers(name)
    ((row, *_), report) = encoded(name, (" ".join(source), " ".join(target), text))
    assert row[SOURCE] == own.source.encode(" ".join(source))
    assert row[TARGET] == own.target.encode(" ".join(target))
    assert not report.noted
    sources, targets = (words_of(own.source, row[column]) for column in (SOURCE, TARGET))
    wanted = {(t, s) for t, j in enumerate(targets) for s, i in enumerate(sources) if (i, j) in links}
    assert pairs(row) == sorted(wanted)


def test_by_hand():
    (row, none, plain), _ = encoded("byte", ("ab c", "xy", "0-0 1-0"), ("a", "b", ""), ("a", "b", None))
    # Bytes: a b _ c; the blank belongs to the word after it.
    assert pairs(row) == [(t, s) for t in (0, 1) for s in (0, 1, 2, 3)]
    assert none[ALIGNMENT] == []
    assert ALIGNMENT not in plain


def test_moses_pieces_stay_in_their_word():
    (row,), report = encoded("word", ("don't go", "geh nicht", "0-1 1-0"), moses="en")
    assert not report.noted
    assert len(row[SOURCE]) == 3  # "don", "'t", "go"
    assert pairs(row) == [(0, 2), (1, 0), (1, 1)]


def test_texts_whose_ids_are_not_those_of_their_words_are_trained_without_links():
    """Two blanks are two bytes in the text; between words there is one."""
    (row, other), report = encoded("byte", ("a  b", "x", "0-0"), ("a b", "x", "0-0"))
    assert row[ALIGNMENT] == []
    assert len(row[SOURCE]) == 4
    assert pairs(other) == [(0, 0)]
    assert report.noted[TOKENS_NOT_BY_WORD].examples == [Location("train.en", 1)]
    assert report.to_dict()["noted"] == {TOKENS_NOT_BY_WORD: {"count": 1, "examples": ["train.en:1"]}}
    assert any(TOKENS_NOT_BY_WORD in line for line in report.lines())


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-0 2-0", "train.en:2: alignment: link 2-0 is outside its sentence pair"),
        ("0-1", "train.en:2: alignment: link 0-1 is outside"),
        ("0-0 x", "train.en:2: alignment: expected a link, i-j (sure), ipj or i?j (possible), got 'x'"),
    ],
)
def test_a_wrong_link_stops_the_work_and_is_named(links, message):
    with pytest.raises(DataError) as caught:
        encoded("word", ("a", "b", "0-0"), ("a b", "c", links))
    assert str(caught.value).startswith(message)


def test_links_of_ids_that_are_cut_off_go():
    located = [LocatedRow({SOURCE: "a b c", TARGET: "x y", ALIGNMENT: "0-0 1-1 2-1"}, Location("t", 1))]
    report = DataReport()
    found = keep(
        encode_linked(tokenizers("word"), located, report),
        Filter(max_length={SOURCE: 2, TARGET: 2}),
        report,
        unchecked_columns=[ALIGNMENT],
    )
    ((row, _),) = cut_links(found)
    assert (len(row[SOURCE]), len(row[TARGET])) == (2, 2)
    assert pairs(row) == [(0, 0), (1, 1)]
    assert set(report.columns) == {SOURCE, TARGET}


def test_an_alignment_without_links_drops_no_row():
    located = [LocatedRow({SOURCE: "a", TARGET: "x", ALIGNMENT: ""}, Location("t", 1))]
    report = DataReport()
    (row,) = cut_links(
        keep(encode_linked(tokenizers("word"), located, report), Filter(), report, [ALIGNMENT])
    )
    assert row.row[ALIGNMENT] == []
    assert report.kept == 1

"""Sequences that come twice: what they hold, and how little can be known of the first."""

import itertools
import math

import pytest

from heedful.data.corpora import open_corpus
from heedful.data.corpora.repeats import SYMBOLS, chance, repeats
from heedful.errors import RequestError


def head(split, n, **options):
    return list(itertools.islice(repeats(split, **{"shortest": 4, "longest": 16, **options}), n))


def test_there_are_64_symbols():
    assert len(set(SYMBOLS)) == 64


@pytest.mark.parametrize("name, lengths", [("repeats", range(4, 17)), ("repeats-long", range(17, 33))])
def test_no_symbol_comes_twice_in_a_sequence_and_all_lengths_occur(name, lengths):
    rows = [row["source"].split() for row in open_corpus(name, "test")]
    assert len(rows) == 1000
    assert all(len(set(row)) == len(row) for row in rows)
    assert {len(row) for row in rows} == set(lengths)
    assert {symbol for row in rows for symbol in row} == set(SYMBOLS)


def test_the_target_is_the_source():
    for pair in head("train", 100):
        assert pair.target == pair.source
        assert pair.alignment == tuple((i, i) for i in range(len(pair.source.split())))


def test_every_symbol_is_equally_probable_at_every_place():
    """Within four standard deviations, of 3,000 sequences."""
    rows = [pair.source.split() for pair in head("train", 3000)]
    for place in (0, 3):
        counts = [sum(row[place] == symbol for row in rows) for symbol in SYMBOLS]
        mean = len(rows) / 64
        assert max(abs(count - mean) for count in counts) < 4 * math.sqrt(mean)


def test_chance_is_the_entropy_of_the_first_sequence():
    """Of one or two symbols, counted by hand: 64 + 64 x 63 sequences."""
    entropy = 0.5 * math.log(2 * 64) + 0.5 * math.log(2 * 64 * 63)
    assert chance(1, 2) == pytest.approx(entropy / 2.5)
    # What is sure of the length is none: only symbols count.
    assert chance(3, 3) == pytest.approx(math.log(64 * 63 * 62) / 4)


def test_a_seed_gives_one_corpus_and_splits_and_seeds_differ():
    first = head("train", 30)
    assert first == head("train", 30)
    assert all(first != other for other in (head("valid", 30), head("test", 30), head("train", 30, seed=1)))


def test_a_split_that_is_not_there_is_refused():
    with pytest.raises(RequestError, match=r"'tests' \(did you mean 'test'\?\).*'train', 'valid', 'test'"):
        repeats("tests", shortest=1, longest=2)

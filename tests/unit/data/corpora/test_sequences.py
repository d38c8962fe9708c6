"""The integer tasks and the sequences that come twice: sizes, lengths, and what each target is."""

import itertools
import math

import pytest

from heedful.data.corpora import open_corpus
from heedful.data.corpora.sequences import SYMBOLS, chance, repeats, reverse
from heedful.errors import RequestError

# Integers


def integers_of(split, n, **options):
    return list(itertools.islice(reverse(split, **options), n))


@pytest.mark.parametrize(
    "split, size, longest", [("train", 50_000, 25), ("valid", 1_000, 30), ("test", 1_000, 30)]
)
def test_sizes_lengths_and_range_are_joeynmts(split, size, longest):
    lengths, integers, rows = set(), set(), 0
    for pair in reverse(split):
        words = pair.source.split(" ")
        rows += 1
        lengths.add(len(words))
        integers.update(map(int, words))
    assert rows == size
    assert lengths == set(range(1, longest + 1))
    assert integers == set(range(50))


def test_reverse_is_the_source_backwards_aligned_crosswise():
    for pair in integers_of("train", 300):
        source = pair.source.split()
        n = len(source)
        assert pair.target.split() == source[::-1]
        assert pair.alignment == tuple((i, n - 1 - i) for i in range(n))
        assert pair.source_tags == pair.target_tags == ("NUM",) * n


def test_copy_and_sort():
    for copied, ordered in zip(
        integers_of("test", 200, task="copy"), integers_of("test", 200, task="sort"), strict=True
    ):
        integers = [int(word) for word in copied.source.split()]
        assert copied.target == copied.source == ordered.source
        assert [int(word) for word in ordered.target.split()] == sorted(integers)
        assert sorted(j for _, j in ordered.alignment) == list(range(len(integers)))
        target = ordered.target.split()
        assert all(ordered.source.split()[i] == target[j] for i, j in ordered.alignment)


def test_a_seed_gives_the_same_integers_and_splits_and_seeds_differ():
    first = integers_of("train", 50)
    assert first == integers_of("train", 50)
    others = [integers_of("valid", 50), integers_of("test", 50), integers_of("train", 50, seed=1)]
    assert all(first != other for other in others)
    assert first[0].source == FIRST


FIRST = "37 21 12 25 20 39 15 23 29 45 25 14 37 30 12 45 49 40 45 15 36 44"


def test_errors_name_what_there_is():
    with pytest.raises(RequestError, match=r"'revers' \(did you mean 'reverse'\?\)"):
        open_corpus("revers", "train")


def test_rows_of_the_built_in_source():
    row = next(iter(open_corpus("copy", "valid")))
    assert set(row) == {"source", "target", "alignment", "source_tags", "target_tags"}
    n = len(row["source"].split())
    assert row["alignment"] == " ".join(f"{i}-{i}" for i in range(n))


# Symbols


def symbols_of(split, n, **options):
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
    for pair in symbols_of("train", 100):
        assert pair.target == pair.source
        assert pair.alignment == tuple((i, i) for i in range(len(pair.source.split())))


def test_every_symbol_is_equally_probable_at_every_place():
    """Within four standard deviations, of 3,000 sequences."""
    rows = [pair.source.split() for pair in symbols_of("train", 3000)]
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


def test_a_seed_gives_the_same_symbols_and_splits_and_seeds_differ():
    first = symbols_of("train", 30)
    assert first == symbols_of("train", 30)
    assert all(
        first != other
        for other in (symbols_of("valid", 30), symbols_of("test", 30), symbols_of("train", 30, seed=1))
    )

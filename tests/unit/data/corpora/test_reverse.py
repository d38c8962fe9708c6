"""The integer tasks: sizes, lengths, and what each target is."""

import itertools

import pytest

from heedful.data.corpora import open_corpus
from heedful.data.corpora.reverse import reverse
from heedful.errors import RequestError


def head(split, n, **options):
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
    for pair in head("train", 300):
        source = pair.source.split()
        n = len(source)
        assert pair.target.split() == source[::-1]
        assert pair.alignment == tuple((i, n - 1 - i) for i in range(n))
        assert pair.source_tags == pair.target_tags == ("NUM",) * n


def test_copy_and_sort():
    for copied, ordered in zip(head("test", 200, task="copy"), head("test", 200, task="sort"), strict=True):
        integers = [int(word) for word in copied.source.split()]
        assert copied.target == copied.source == ordered.source
        assert [int(word) for word in ordered.target.split()] == sorted(integers)
        assert sorted(j for _, j in ordered.alignment) == list(range(len(integers)))
        target = ordered.target.split()
        assert all(ordered.source.split()[i] == target[j] for i, j in ordered.alignment)


def test_a_seed_gives_one_corpus_and_splits_and_seeds_differ():
    first = head("train", 50)
    assert first == head("train", 50)
    others = [head("valid", 50), head("test", 50), head("train", 50, seed=1)]
    assert all(first != other for other in others)
    assert first[0].source == FIRST


FIRST = "37 21 12 25 20 39 15 23 29 45 25 14 37 30 12 45 49 40 45 15 36 44"


def test_errors_name_what_there_is():
    with pytest.raises(RequestError, match=r"'dev'.*'train', 'valid', 'test'"):
        reverse("dev")
    with pytest.raises(RequestError, match=r"'revers' \(did you mean 'reverse'\?\)"):
        reverse("train", task="revers")
    with pytest.raises(RequestError, match=r"'revers' \(did you mean 'reverse'\?\)"):
        open_corpus("revers", "train")


def test_rows_of_the_built_in_source():
    row = next(iter(open_corpus("copy", "valid")))
    assert set(row) == {"source", "target", "alignment", "source_tags", "target_tags"}
    n = len(row["source"].split())
    assert row["alignment"] == " ".join(f"{i}-{i}" for i in range(n))

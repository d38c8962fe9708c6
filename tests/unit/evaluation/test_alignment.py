import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError, RequestError
from heedful.evaluation.alignment import Alignment, alignment_error_rate, read_alignments


def test_by_hand():
    # A = {00, 11, 12, 30}; S = {00, 21}; P = S + {11, 22}: 1 sure and 2 possible of 4 + 2.
    gold = read_alignments(["0-0 2-1 1p1 2p2"], "gold", first=0)
    score = alignment_error_rate([{(0, 0), (1, 1), (1, 2), (3, 0)}], gold)
    assert score.value == pytest.approx(1 - (1 + 2) / (4 + 2))
    assert score.details == {"precision": 2 / 4, "recall": 1 / 2}
    assert score.counts == {"sentences": 1, "links": 4, "sure": 2, "possible": 4}


def test_it_is_taken_over_the_corpus_and_not_the_mean_of_sentences():
    gold = read_alignments(["0-0", "0-0 1-1 2-2 3-3 4-4"], "gold", first=0)
    score = alignment_error_rate([{(5, 5)}, {(i, i) for i in range(5)}], gold)
    assert score.value == pytest.approx(1 - (5 + 5) / (6 + 6))


def test_the_two_ways_of_counting():
    zero = read_alignments(["0-1 2p0", ""], "gold", first=0)
    assert zero == read_alignments(["1-2 3p1", " "], "gold", first=1)
    assert zero[0] == Alignment(frozenset({(0, 1)}), frozenset({(0, 1), (2, 0)}))
    assert zero[1] == Alignment(frozenset(), frozenset())


links = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=9)


@given(st.lists(st.tuples(links.filter(bool), links), min_size=1, max_size=5), st.data())
def test_anything_between_sure_and_possible_is_without_error(pairs, data):
    gold = [Alignment(sure, possible) for sure, possible in pairs]
    found = [g.sure | data.draw(st.frozensets(st.sampled_from(sorted(g.possible)))) for g in gold]
    assert alignment_error_rate(found, gold).value == 0


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=5))
def test_it_is_the_formula_link_by_link(rows):
    gold = [Alignment(sure, possible) for _, sure, possible in rows]
    found = [a for a, _, _ in rows]
    n = sum(len(a) + len(s) for a, s, _ in rows)
    if n == 0:
        return
    hits = sum((link in s) + (link in p or link in s) for a, s, p in rows for link in a)
    score = alignment_error_rate(found, gold)
    assert score.value == pytest.approx(1 - hits / n)
    assert 0 <= score.value <= 1


@given(links.filter(bool))
def test_sure_links_alone_give_one_minus_f1(sure):
    found = frozenset(sorted(sure)[::2]) | {(9, 9)}
    score = alignment_error_rate([found], [Alignment(sure, frozenset())])
    precision, recall = score.details["precision"], score.details["recall"]
    assert score.value == pytest.approx(1 - 2 * precision * recall / (precision + recall))
    assert score.signature == "possible:no"


def test_nothing_found():
    score = alignment_error_rate([frozenset()], [Alignment(frozenset({(0, 0)}), frozenset())])
    assert score.value == 1
    assert score.details == {"precision": None, "recall": 0.0}


@pytest.mark.parametrize(
    ("line", "first", "message"),
    [
        ("0-0 3x4", 0, "gold:2: '3x4' is no link; write i-j (sure) or ipj (possible)"),
        ("0-", 0, "gold:2: '0-' is no link"),
        ("1--2", 0, "gold:2: '1--2' is no link"),
        ("-1-2", 0, "gold:2: '-1-2' is no link"),
        ("0-0-0", 0, "gold:2: '0-0-0' is no link"),
        ("٣-1", 0, "gold:2: '٣-1' is no link"),
        ("1-0", 1, "gold:2: '1-0' names a word before the first, which is 1"),
    ],
)
def test_malformed_lines_are_named(line, first, message):
    with pytest.raises(DataError) as caught:
        read_alignments(["1-1", line], "gold", first=first)
    assert str(caught.value).startswith(message)


def test_unequal_and_empty_sets_are_refused():
    gold = read_alignments(["0-0", "0p1"], "gold", first=0)
    with pytest.raises(RequestError, match="1 alignments but 2 gold alignments"):
        alignment_error_rate([{(0, 0)}], gold)
    with pytest.raises(RequestError, match="nothing to score"):
        alignment_error_rate([], [])
    with pytest.raises(RequestError, match="no link was found, and no gold link is sure"):
        alignment_error_rate([frozenset()], gold[1:])


@pytest.mark.corpus
@pytest.mark.skipif("HEEDFUL_DATA" not in os.environ, reason="HEEDFUL_DATA is not set")
def test_published_gold_alignments_are_read():
    folder = Path(os.environ["HEEDFUL_DATA"]) / "align_enfr_hansards"
    with gzip.open(folder / "dev.gold.gz", "rt", encoding="utf-8") as file:
        gold = read_alignments(file, "dev.gold.gz", first=1)
    sides = []
    for side in ("en", "fr"):
        with gzip.open(folder / f"dev.{side}.gz", "rt", encoding="utf-8") as file:
            sides.append([len(line.split()) for line in file])
    assert len(gold) == len(sides[0]) == len(sides[1]) == 224
    for g, n_source, n_target in zip(gold, *sides, strict=True):
        assert all(i < n_source and j < n_target for i, j in g.possible)
    assert alignment_error_rate([g.sure for g in gold], gold).value == 0

import gzip
import os
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import DataError, RequestError
from heedful.tasks.metrics.alignment import (
    Alignment,
    alignment_error_rate,
    check_alignments,
    read_alignments,
    read_gold,
)
from heedful.text.words import blank_words


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
        ("0-0 3x4", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '3x4'"),
        ("0-", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '0-'"),
        ("1--2", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '1--2'"),
        ("-1-2", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '-1-2'"),
        ("0-0-0", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '0-0-0'"),
        ("٣-1", 0, "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '٣-1'"),
        ("1-0", 1, "gold:2: word indices must be at least 1, got '1-0'"),
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


def test_without_a_link_found_and_a_sure_one_the_rate_is_undefined():
    gold = read_alignments(["0p1"], "gold", first=0)
    score = alignment_error_rate([frozenset()], gold)
    assert isnan(score.value)
    assert score.to_dict()["value"] is None
    assert score.details == {"precision": None, "recall": None}
    assert score.counts == {"sentences": 1, "links": 0, "sure": 0, "possible": 1}


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


# Gold, in its forms

COLUMNS = ["0001 1 1 S", "0001 2 3 P", "", "3 1 2", "3 2 2 S 0.75", "3 0 2 S", "3 3 0 P"]
PHARAOH = ["1-1 2p3", "", "1-2 2-2"]


def test_columns_say_what_pharaoh_says():
    """The second pair has no link; word 0 is NULL."""
    by_columns = read_gold(COLUMNS, "gold", first=0, n_pairs=3)
    by_line = read_gold(PHARAOH, "gold", first=1, n_pairs=3)
    assert by_columns == by_line
    assert by_columns.first == 1
    assert by_columns.alignments[0] == Alignment(frozenset({(0, 0)}), frozenset({(1, 2)}))
    assert read_gold(["1-1 2?3", " ", "1-2 2-2"], "gold", first=1, n_pairs=3) == by_line


@pytest.mark.parametrize("lines", [["", "1 1 1 S"], ["", "0-0"]])
def test_the_form_is_that_of_the_first_line_with_a_word(lines):
    gold = read_gold(lines, "gold", first=0, n_pairs=2).alignments
    assert [len(each.sure) for each in gold] == ([1, 0] if "S" in lines[1] else [0, 1])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0"], "gold: expected 2 lines, one per sentence pair, got 1"),
        (["0-0", "", ""], "gold: expected 2 lines, one per sentence pair, got 3"),
        (["1 1 1 S", "1 2"], "gold:2: expected the numbers of sentence pair, source word and target word"),
        (["1 1 1 S", "1 2 2 Q"], "gold:2: expected the numbers of sentence pair"),
        (["1 1 1 S", "3 1 1 S"], "gold:2: sentence pair must be between 1 and 2, got 3"),
        (["0 1 1 S"], "gold:1: sentence pair must be between 1 and 2, got 0"),
        (["0-0", "1 1 1 S"], "gold:2: expected a link, i-j (sure), ipj or i?j (possible), got '1'"),
    ],
)
def test_gold_of_other_pairs_or_forms_is_refused(lines, message):
    with pytest.raises(DataError) as caught:
        read_gold(lines, "gold", first=0, n_pairs=2)
    assert str(caught.value).startswith(message)


def test_a_link_outside_of_its_pair_is_named_and_the_count_is_asked_about():
    words = [(3, 3), (2, 1)]
    check_alignments(read_gold(["2-2", "1p0"], "g", first=0, n_pairs=2), words, "g")
    with pytest.raises(DataError, match=r"g, pair 2: link 1-1 is outside .* count from 1\?"):
        check_alignments(read_gold(["1-1", "1p1"], "g", first=0, n_pairs=2), words, "g")
    with pytest.raises(DataError, match=r"g, pair 2: link 3-1 is outside") as caught:
        check_alignments(read_gold(["1-1", "3-1"], "g", first=1, n_pairs=2), words, "g")
    assert "?" not in str(caught.value)


@pytest.mark.corpus
@pytest.mark.skipif("HEEDFUL_DATA" not in os.environ, reason="HEEDFUL_DATA is not set")
@pytest.mark.parametrize(
    ("name", "sides", "n_pairs", "n_links"),
    [
        ("align_enfr_hansards", ("en", "fr"), 224, 9164),
        ("align_deen_smultron", ("de", "en"), 36, 668),
        ("align_jaen_kftt", ("ja", "en"), 291, 6916),
    ],
)
def test_gold_sets_fit_their_sentences_when_counted_from_1_and_not_from_0(name, sides, n_pairs, n_links):
    folder = Path(os.environ["HEEDFUL_DATA"]) / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not in HEEDFUL_DATA")

    def read(what):
        with gzip.open(folder / f"dev.{what}.gz", "rt", encoding="utf-8", newline="\n") as file:
            return [line.removesuffix("\n") for line in file]

    words = list(zip(*([len(blank_words(line)) for line in read(side)] for side in sides), strict=True))
    gold = read_gold(read("gold"), "gold", first=1, n_pairs=n_pairs)
    assert sum(len(each.possible) for each in gold.alignments) == n_links
    check_alignments(gold, words, "gold")
    with pytest.raises(DataError, match="count from 1"):
        check_alignments(read_gold(read("gold"), "gold", first=0, n_pairs=n_pairs), words, "gold")

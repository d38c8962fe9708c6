"""Likely mistakes in data: what is reported, and from which share on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.findings import Findings, Points, shared_rows
from heedful.data.lines import LocatedRow, Location
from heedful.data.store import RowDigest


def notes_of(rows, pair=None, label=None, **settings):
    findings = Findings(pair, label, **settings)
    located = [LocatedRow(row, Location("f", n)) for n, row in enumerate(rows, 1)]
    assert list(findings.through(located)) == located
    return findings.notes()


@pytest.mark.parametrize(
    ("n_identical", "noted"), [(2, []), (3, ["3 of 4 (75.0%)"]), (4, ["4 of 4 (100.0%)"])]
)
def test_more_than_half_of_the_pairs_identical(n_identical, noted):
    rows = [{"source": "a", "target": "a" if n < n_identical else "b"} for n in range(4)]
    assert notes_of(rows, pair=("source", "target")) == [
        f"data.train: source and target are identical in {share} rows; check the files and columns"
        for share in noted
    ]


def test_cells_that_are_hardly_texts_are_counted_once():
    rows = [{"text": text, "words": ["a"]} for text in ("a\0b", "a", "", " ", "\t\u00a0", "\0\0")]
    assert notes_of([*rows, {"text": "a b", "words": ["a", "\0"]}]) == [
        "data.train: 2 of 7 (28.6%) rows have white space alone as text; remove them if they are mistakes",
        "data.train: 3 cells contain NUL characters; if these are mistakes, remove them: "
        "tr -d '\\000' < FILE > NEW",
    ]
    assert notes_of([{"text": text, "words": ["a"]} for text in ("a b", "")]) == []


def test_texts_of_white_space_that_were_left_out_are_not_noted_again():
    findings = Findings(None, None)
    rows = [LocatedRow({"text": text}, Location("x", n)) for n, text in enumerate(["a", " ", "\t"])]
    assert list(findings.through(rows)) == rows
    assert len(findings.notes(n_dropped=1)) == 1
    assert findings.notes(n_dropped=2) == []


def test_labels_that_differ_in_case():
    assert notes_of([{"label": label} for label in ("pos", "Pos", "neg", "POS", "pos")], label="label") == [
        "data.train: 'POS' (1) and 'Pos' (1) and 'pos' (2) look alike, but differ in upper and lower case; "
        "they are different classes; make them equal if they are one"
    ]


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ("New York", "New\u00a0York", "look alike, but differ in white space"),
        ("New  York", "New York", "look alike, but differ in white space"),
        ("1", "1.0", "are the same number"),
        ("007", "7", "are the same number"),
        ("a\u200bb", "ab", "look alike, but differ in U+200B (ZERO WIDTH SPACE)"),
        ("сat", "cat", "look alike, but differ in U+0441 (CYRILLIC SMALL LETTER ES)"),
        ("ｐｏｓ", "pos", "look alike, but differ in U+FF50 (FULLWIDTH LATIN SMALL LETTER P)"),
    ],
)
@pytest.mark.parametrize("form", [lambda label: label, lambda label: [label]])
def test_labels_and_tags_that_are_nearly_the_same(first, second, differ, form):
    rows = [{"label": form(label)} for label in (first, second, second)]
    (note,) = notes_of([*rows, {"label": form("other")}], label="label")
    one, other = sorted([first, second])
    counts = {first: 1, second: 2}
    start = f"data.train: {one!r} ({counts[one]}) and {other!r} ({counts[other]}) "
    assert note == f"{start}{differ}; they are different classes; make them equal if they are one"


def test_different_labels_are_not_alike():
    assert notes_of([{"label": label} for label in ("1", "2", "1.5", "10", "a", "b")], label="label") == []


def test_missing_values_are_counted():
    rows = [{"text": "nan", "label": "NULL"}, {"text": "nan", "label": "a"}, {"text": "a nan", "label": "a"}]
    assert notes_of(rows, label="label") == [
        f"data.train: {n} rows have {value!r} as {column}, which programs write for a missing value; remove "
        "them if it is one"
        for n, value, column in (("2 of 3 (66.7%)", "nan", "text"), ("1 of 3 (33.3%)", "NULL", "label"))
    ]


@pytest.mark.parametrize("n_other", [1, 2])
def test_one_class_has_almost_all_rows(n_other):
    notes = notes_of([{"label": "a"}] * (100 - n_other) + [{"label": "b"}] * n_other, label="label")
    almost_all = "data.train: 99 of 100 (99.0%) rows have the label 'a'; accuracy says little about a model"
    assert notes == ([almost_all] if n_other == 1 else [])


ROWS = st.lists(st.fixed_dictionaries({"a": st.sampled_from("xyz"), "b": st.sampled_from("xyz")}), max_size=9)


@given(train=ROWS, other=ROWS)
def test_shared_rows_are_those_that_are_equal(train, other):
    digests = []
    for rows in (train, other):
        digests.append(RowDigest())
        for row in rows:
            digests[-1].update(row)
    n = sum(row in train for row in other)
    note = shared_rows(*(digest.row_hashes for digest in digests))
    assert note.partition(" rows")[0] == (f"{n} of {len(other)} ({n / len(other):.1%})" if n else "")


@pytest.mark.parametrize(("n_rows", "words", "noted"), [(1, ["a"], True), (2, ["a"], False), (1, "a", False)])
def test_a_file_that_is_one_sentence_is_reported(n_rows, words, noted):
    """A text may be a single document."""
    note = "data.train: there is only one row; in CoNLL files, a blank line separates sentences"
    assert notes_of([{"words": words}] * n_rows) == [note] * noted


def test_a_header_that_was_read_as_a_row_is_reported():
    def notes(labels, **settings):
        findings = Findings(None, "label", **settings)
        rows = [LocatedRow({"label": label}, Location("a.csv", n)) for n, label in enumerate(labels, 1)]
        assert list(findings.through(rows)) == rows
        return findings.notes()

    note = "data.train: a.csv:1: the label 'Topic' is only here; if this line is a header, set header: true"
    assert notes(["Topic", "a", "b", "a"], without_header=True) == [note]
    assert notes(["Topic", "a", "b", "a"]) == []
    assert notes(["a", "b", "a"], without_header=True) == []


@pytest.mark.parametrize(
    ("numbers", "noted"),
    [
        (["1.234", "12.000", "-734.001", "734"], ("3 of 4 (75.0%)", "1.234", "1234")),
        (["+1.234", "2.345", "3.456"], ("3 of 3 (100.0%)", "+1.234", "+1234")),
        (["1.234", "12.000", "734", "12"], None),  # too few
        (["1.234", "12.000", "0.734", "2.345"], None),  # no thousands begin with 0
        (["1.234", "12.000", "1234.567", "2.345"], None),
        (["1.234", "12.000", "2.345", "1.5"], None),
        (["1.2345", "12.0000", "2.3456"], None),
        (["1", "20", "300", "4000"], None),
    ],
)
def test_points_that_may_separate_thousands(numbers, noted):
    (*notes,) = Points.of(numbers).notes("label")
    findings = Findings(None, None, numeric=("label",))
    located = [LocatedRow({"label": number}, Location("f", n)) for n, number in enumerate(numbers, 1)]
    assert list(findings.through(located)) == located
    assert findings.notes() == [f"data.train: {note}" for note in notes]
    if noted is None:
        assert not notes
        return
    share, first, without = noted
    assert notes == [
        f"{share} numbers in label have three digits after the point, such as {first!r}, and are read as "
        f"decimals; if the point separates thousands, write {without!r}, and so in all rows"
    ]


@given(st.lists(st.integers(1000, 10**6 - 1), min_size=3))
def test_thousands_with_points_are_always_noted(numbers):
    assert list(Points.of(f"{number:,}".replace(",", ".") for number in numbers).notes("label"))


@pytest.mark.parametrize("mark", ["#", ";", "|", "/", " "])
def test_labels_that_consist_of_others(mark):
    labels = ["a", "b", f"a{mark}b", f"b{mark}a", f"b{mark}a", f"a{mark}c", mark, "d"]
    rows = [{"label": label} for label in labels]
    start = f"'a{mark}b' (1) and 'b{mark}a' (2) consist of other labels and {mark!r}; if it separates labels,"
    expected = (
        f"data.train: {start} train a recipe such as phrasebook-label-sets with task.separator={mark!r}"
    )
    assert [note for note in notes_of(rows, label="label") if "consist" in note] == [expected]
    expected = f"data.train: {start} set task.separator={mark!r}"
    notes = notes_of(rows, label="label", split=lambda text: text.split(","))
    assert [note for note in notes if "white space alone" not in note] == [expected]


def test_tags_with_a_comma():
    tags = ["O, B-PER, O", "O, O", "B-PER"]
    expected = (
        "data.train: 'B-PER,' (1) and 'O,' (2) consist of other labels and ','; if it separates labels, "
        "write only blanks between tags"
    )
    assert notes_of([{"tags": tag} for tag in tags], label="tags", split=str.split) == [expected]
    ordinary = ["AUX+PRON , AUX", "PRON JJ|NN ,", "JJ NN ; ,"]
    assert notes_of([{"tags": tag} for tag in ordinary], label="tags", split=str.split) == []


def test_lines_of_tags_are_counted_as_lists_of_tags():
    rows = [[("A", "B", "C")[(i >> k) % 3] for k in range(5)] for i in range(60)]
    as_lists = notes_of([{"tags": row} for row in rows], label="tags", split=str.split)
    as_lines = notes_of([{"tags": " ".join(row)} for row in rows], label="tags", split=str.split)
    assert as_lists == as_lines == []

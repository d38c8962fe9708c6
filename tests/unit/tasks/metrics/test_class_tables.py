"""Tables of classes on the terminal, against scikit-learn's report and matrix."""

import numpy as np
import pytest
from sklearn.metrics import classification_report, confusion_matrix

from heedful.tasks.metrics.class_rows import MOST_SCORES
from heedful.tasks.metrics.class_tables import MOST_COUNTS, MOST_NUMBERED, class_tables
from heedful.tasks.metrics.classification import classification_scores, label_set_scores
from heedful.tasks.metrics.segmentation import segmentation_scores

TARGETS = list("aabbbcca")
PREDICTED = list("abbbacca")


def details(predicted, targets, classes):
    return classification_scores(predicted, targets, classes)["accuracy"].details


def cells(lines):
    return [line.split() for line in lines]


def test_scores_and_counts_are_those_of_scikit_learn():
    blank, head, *lines = class_tables(details(PREDICTED, TARGETS, "abc"), 80)
    assert (blank, head.split()) == ("", ["class", "precision", "recall", "F1", "count"])
    report = classification_report(TARGETS, PREDICTED, output_dict=True)
    keys = ("precision", "recall", "f1-score", "support")
    expected = [[name, *(report[name][key] for key in keys)] for name in "abc"]
    shown = [[name, *map(float, numbers)] for name, *numbers in cells(lines[:3])]
    assert shown == [pytest.approx(row, abs=5e-5) for row in expected]
    blank, head, *rows = lines[3:]
    assert (blank, head.split()) == ("", ["true", "\\", "predicted", "a", "b", "c"])
    matrix = confusion_matrix(TARGETS, PREDICTED, labels=list("abc"))
    assert cells(rows) == [[name, *map(str, counts)] for name, counts in zip("abc", matrix, strict=True)]


def test_pixels_have_their_intersection_over_union():
    matrix = np.array([[6, 2, 0], [1, 3, 0], [0, 0, 0]])
    scores = segmentation_scores(matrix, ["sky", "sea", "sun"], "region:all")
    _, head, *lines = class_tables(scores[0].details, 80)
    assert head.split() == ["class", "precision", "recall", "IoU", "count"]
    assert cells(lines)[:3] == [
        ["sky", "0.8571", "0.7500", "0.6667", "8"],
        ["sea", "0.6000", "0.7500", "0.5000", "4"],
        ["sun", "-", "-", "-", "0"],
    ]
    assert [*class_tables(scores[1].details, 80)] == []


def test_an_undefined_rate_is_a_dash():
    lines = cells(class_tables(details(["a"], ["a"], "ab"), 80))
    assert ["b", "-", "-", "-", "0"] in lines


@pytest.mark.parametrize(
    "n", [2, MOST_COUNTS, MOST_COUNTS + 1, MOST_NUMBERED, MOST_NUMBERED + 1, MOST_SCORES, MOST_SCORES + 1]
)
def test_no_line_is_wider_than_the_terminal(n):
    names = [f"a class with quite a long name {i:03}" for i in range(n)]
    for width in (60, 400):
        lines = list(class_tables(details(names, names, names), width))
        assert max(map(len, lines)) <= width
        has_matrix = any("predicted" in line for line in lines)
        assert has_matrix == (n <= MOST_NUMBERED)
        has_names = any(line.startswith("true \\ predicted") for line in lines)
        assert has_names == (width == 400 and n <= MOST_COUNTS)
        assert has_matrix or lines[-1].endswith("in --json")


def test_sets_of_labels_have_scores_but_no_matrix():
    score, *_ = label_set_scores([{"a"}, {"b"}], [{"a"}, {"a", "b"}], "ab")
    assert cells(class_tables(score.details, 80)) == [
        [],
        ["class", "F1", "count"],
        ["a", "0.6667", "2"],
        ["b", "1.0000", "1"],
    ]


def test_other_scores_have_no_tables():
    assert list(class_tables({}, 80)) == []
    assert list(class_tables(classification_scores("ab", "ab")["macro_f1"].details, 80)) == []


def test_thresholds_stand_beside_the_scores_of_their_labels():
    details = {"classes": ["a", "new"], "f1": [0.5, None], "support": [3, 1], "threshold": [0.25, None]}
    assert list(class_tables(details, 80)) == [
        "",
        "class      F1  threshold  count",
        "a      0.5000     0.2500      3",
        "new         -          -      1",
    ]


def random_details(n, size):
    random = np.random.default_rng(n)
    names = [f"name-{i}" for i in range(n)]
    targets = [names[i] for i in random.integers(0, n, size)]
    predicted = [t if random.random() < 0.7 else names[random.integers(n)] for t in targets]
    return details(predicted, targets, names)


@pytest.mark.parametrize(("n", "size"), [(8, 500), (14, 300), (MOST_NUMBERED, 100), (MOST_NUMBERED, 90_000)])
def test_a_matrix_whose_names_do_not_fit_has_numbers_of_the_rows_above(n, size):
    found = random_details(n, size)
    table, title, *grid = (
        "\n".join(class_tables(found, 78))
        .strip("\n")
        .partition("confusion matrix (rows: true, columns: predicted)\n")
    )
    assert title
    legend = dict(line.split()[:2] for line in table.splitlines()[1:] if line)
    assert legend == {str(i): f"name-{i - 1}" for i in range(1, n + 1)}
    read = np.full((n, n), -1)
    for block in grid[0].split("\n\n"):
        head, *rows = block.splitlines()
        assert len(rows) == n
        assert max(map(len, (head, *rows))) <= 78
        for row in rows:
            number, *counts = row.split()
            for column, count in zip(head.split(), counts, strict=True):
                read[int(number) - 1, int(column) - 1] = 0 if count == "." else int(count)
    assert read.tolist() == found["confusion"]


def test_more_classes_are_in_the_json():
    *_, last = class_tables(random_details(MOST_NUMBERED + 1, 900), 78)
    assert last == f"the confusion matrix of {MOST_NUMBERED + 1} classes is in --json"

"""What a notebook shows of an evaluation: its content, as HTML and SVG that can be parsed."""

from xml.etree import ElementTree

import pytest

from heedful.tasks.evaluation import Evaluation
from heedful.tasks.metrics.calibration import calibration_scores
from heedful.tasks.metrics.classification import classification_scores
from heedful.tasks.metrics.pictures import pictures

TARGETS, PREDICTED = list("aabbbcca"), list("abbbacca")
SVG = "{http://www.w3.org/2000/svg}"


def parsed(element):
    return ElementTree.fromstring(element)


def test_a_confusion_matrix_is_a_table_whose_cells_have_text_and_titles():
    scores = classification_scores(PREDICTED, TARGETS, ["a", "b", "c & d", "c"]).values()
    table, matrix = map(parsed, pictures([*scores]))
    assert [cell.text for cell in table.iter("th")] == ["class", "precision", "recall", "F1", "count"]
    assert matrix.find("caption").text == "confusion matrix: true classes in rows"
    assert [cell.text for cell in matrix.find("thead").iter("th")][1:] == ["a", "b", "c & d", "c"]
    rows = {row.find("th").text: row.findall("td") for row in matrix.find("tbody").iter("tr")}
    assert [[cell.text for cell in cells] for cells in rows.values()] == [
        ["2", "1", "0", "0"], ["1", "2", "0", "0"], ["0", "0", "0", "0"], ["0", "0", "0", "2"],
    ]  # fmt: skip
    assert rows["a"][1].get("title") == "a, predicted b: 1 of 3"
    shades = {
        name: [float(c.get("style").rpartition(",")[2].strip(" )")) for c in rows[name]] for name in rows
    }
    assert shades["a"] == pytest.approx([0.47, 0.23, 0, 0])
    assert shades["c"] == pytest.approx([0, 0, 0, 0.7])
    assert shades["c & d"] == [0, 0, 0, 0]


def test_probabilities_have_a_reliability_diagram_and_a_coverage_curve():
    scores = calibration_scores([0.9, 0.8, 0.6, 0.55], [True, True, False, True], unit="rows")
    diagram, curve = map(parsed, pictures(scores))
    assert diagram.find(f"{SVG}title").text.startswith("accuracy over mean probability")
    assert len(diagram.findall(f"{SVG}circle")) == len(scores[0].details["bins"])
    assert len(diagram.findall(f"{SVG}polyline")) == 2  # the diagonal too
    assert curve.find(f"{SVG}title").text.startswith("accuracy over share of answers")
    assert len(curve.findall(f"{SVG}circle")) == len(scores[1].details["coverage"])


def test_an_evaluation_shows_them_in_a_notebook():
    classes = [str(i) for i in range(60)]
    evaluation = Evaluation("test", [*classification_scores(PREDICTED, TARGETS, list("abc")).values()])
    shown = evaluation._repr_html_()
    assert shown.count("<table>") == 3
    assert "confusion matrix" in shown
    many = Evaluation("test", [*classification_scores(classes, classes, classes).values()])
    assert many._repr_html_().count("<table>") == 1
    assert "the scores of 60 classes" in many._repr_html_()

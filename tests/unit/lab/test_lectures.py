"""The index of the lectures: all that it names is there; what they say wrongly is set right once."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
from lectures_index import read
from lectures_page import place_of

from heedful.errors import RequestError
from heedful.lab.corrections import corrections
from heedful.lab.registry import experiments
from heedful.models.registry import PRESETS
from heedful.recipes.resolve import shipped_recipes

# The index


ROOT = Path(__file__).parents[3]
INDEX = read(ROOT / "docs" / "teach" / "lectures.yaml")
N_ROWS = 97


def entries(field):
    """Those that name something there."""
    return [pytest.param(each, id=f"{each.row}") for each in INDEX.rows if getattr(each, field)]


def test_every_row_is_there_once():
    assert [each.row for each in INDEX.rows] == [*range(1, N_ROWS + 1)]


def test_every_row_has_a_symbol_a_test_and_an_experiment_or_a_recipe():
    lacking = [
        row.row for row in INDEX.rows if not (row.symbols and row.tests and (row.experiments or row.recipes))
    ]
    assert lacking == []


def test_every_row_stands_in_a_lecture_but_for_what_they_leave_out():
    assert [each.row for each in INDEX.rows if not each.lectures] == [57]


def test_numbered_figures_and_equations_are_all_there():
    assert [*INDEX.lectures["S1"].figures] == [f"figure {n}" for n in range(1, 33)]
    notes = INDEX.lectures["S4"]
    assert [name for name in notes.figures if name.startswith("figure")] == [
        f"figure {n}" for n in range(1, 6)
    ]
    numbered = [name for name in notes.equations if name.startswith("equation")]
    assert numbered == [f"equation {n}" for n in range(1, 6)]


@pytest.mark.parametrize("entry", entries("symbols"))
def test_symbols_are_public_and_defined_where_the_page_says(entry):
    for symbol in entry.symbols:
        assert not any(part.startswith("_") for part in symbol.split("."))
        found = resolve_name(symbol)
        file, _ = place_of(symbol)
        module = file.removeprefix("src/").removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        assert getattr(found, "__module__", module) == module, f"{symbol} is defined elsewhere"


@cache
def functions(path):
    return {
        node.name
        for node in ast.parse((ROOT / path).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("entry", entries("tests"))
def test_tests_are_there(entry):
    for test in entry.tests:
        path, _, name = test.partition("::")
        assert name in functions(path), test


@pytest.mark.parametrize("entry", INDEX.rows, ids=lambda each: f"{each.row}")
def test_experiments_are_those_that_say_they_are_about_the_row(entry):
    about = [name for name, each in experiments().items() if entry.row in each.claim.items]
    assert sorted(entry.experiments) == sorted(about)


def test_every_experiment_is_named():
    assert {name for each in INDEX.rows for name in each.experiments} == experiments().keys()


@pytest.mark.parametrize("field, known", [("presets", PRESETS), ("recipes", shipped_recipes())])
def test_presets_and_recipes_are_there(field, known):
    named = {name for each in INDEX.rows for name in getattr(each, field)}
    assert named
    assert named <= known.keys()


GOOD = """
lectures:
  S0: {title: One, by: A, form: slides, equations: {first: a = b, second: b = c}, figures: {figure 1: a line}}
  S4: {title: Two, by: B, form: notes, equations: {}, figures: {}}
rows:
  - row: 1
    title: First thing
    lectures: {S0: {equations: [first, second], figures: [figure 1]}}
    symbols: [heedful.nn.cells.Cell]
    experiments: [made-up]
  - row: 2
    title: Second thing (of two)
    lectures: {S4: {claims: [It is there.]}}
    no_experiment: It is no claim.
    not_here: Nobody needs it.
"""


def index_of(tmp_path, text):
    path = tmp_path / "index.yaml"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_an_index_is_read(tmp_path):
    index = index_of(tmp_path, GOOD)
    assert [each.title for each in index.rows] == ["First thing", "Second thing (of two)"]
    assert index.rows[0].lectures["S0"].equations == ("first", "second")
    assert (index.rows[1].no_experiment, index.rows[1].not_here) == ("It is no claim.", "Nobody needs it.")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("row: 2", "row: 3", "rows must be numbered from 1 in order: expected 2, got 3"),
        ("row: 2", "row: 1", "rows must be numbered from 1 in order: expected 2, got 1"),
        ("[first, second]", "[first]", "no row lists the equation of S0 named 'second'"),
        ("[first, second]", "[first, second, third]", "unknown equation of S0: 'third'"),
        (", figures: [figure 1]", "", "no row lists the figure of S0 named 'figure 1'"),
        (
            "figures: [figure 1]",
            "figures: [figure 1, figure 2]",
            "unknown figure of S0: 'figure 2'",
        ),
        ("    symbols: [heedful.nn.cells.Cell]\n", "", "index.yaml:6: .*not_here is required"),
        ("    no_experiment: It is no claim.\n", "", "index.yaml:11: .*no_experiment is required"),
        (
            "experiments: [made-up]",
            "experiments: [made-up]\n    no_experiment: It is no claim.",
            "index.yaml:11: .*no_experiment must be absent",
        ),
        ("symbols: [heedful.nn.cells.Cell]", "symbols: [torch.nn.LSTMCell]", "text that matches"),
        ("[heedful.nn.cells.Cell]", "[heedful.nn.cells.Cell, heedful.nn.cells.Cell]", "Cell is listed twice"),
        ("claims: [It is there.]", "claims: []", "must name an equation, a figure or a claim"),
        (
            "  S4: {title: Two, by: B, form: notes, equations: {}, figures: {}}\n",
            "",
            "unknown lecture S4",
        ),
        ("title: First thing", "title: First — thing", "title: expected text that matches"),
        ("not_here: Nobody", "not_hear: Nobody", "index.yaml:15: .*unknown key .did you mean 'not_here'"),
    ],
)
def test_an_index_that_does_not_hold_together_is_refused(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(RequestError, match=message):
        index_of(tmp_path, GOOD.replace(old, new, 1))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RequestError, match=r"nowhere\.yaml: cannot be read \(No such file"):
        read(tmp_path / "nowhere.yaml")


# Corrections


ROWS = {each.row: each for each in INDEX.rows}

# How many of a row's errors are known to stand in which lecture: none may get lost.
ERRORS = {
    (2, "S4"): 2,  # what the forget gate was added to; catastrophic forgetting
    (4, "S0"): 1,  # annotation
    (14, "S0"): 1,  # the root of the number of words
    (14, "S3"): 1,  # no root
    (16, "S2"): 1,  # a reference that is missing
    (20, "S0"): 1,  # 32,178
    (22, "S4"): 4,  # the scale outside; the name of the result; a column of Q; equation 4
    (24, "S1"): 2,  # N x d/H; 768 and 10
    (24, "S2"): 1,  # W_i^O
    (28, "S0"): 1,  # sums of rows
    (30, "S0"): 1,  # invariant
    (32, "S0"): 1,  # matrices on both sides
    (32, "S2"): 1,  # Press and Wolf
    (37, "S3"): 3,  # unit mean; one gain; no epsilon
    (42, "S0"): 2,  # two softmaxes; no scale
    (44, "S0"): 2,  # masked; no scale
    (47, "S0"): 2,  # the cosine's exponent; the last column
    (47, "S2"): 1,  # the base
    (51, "S4"): 1,  # a pre-trained matrix
    (54, "S0"): 1,  # no width
    (59, "S3"): 1,  # perplexities that are logarithms
    (74, "S1"): 2,  # 6 layers; part (b)
    (96, "S3"): 1,  # 11
}


def test_every_known_error_is_set_right():
    found = Counter((each.row, each.lecture) for each in corrections())
    assert {key: found[key] for key in ERRORS if found[key] < ERRORS[key]} == {}


def test_they_stand_in_the_order_of_the_rows_and_among_a_rows_lectures():
    rows = [each.row for each in corrections()]
    assert rows == sorted(rows)
    for each in corrections():
        assert each.lecture in ROWS[each.row].lectures


def test_each_is_told_once():
    assert len({(each.row, each.lecture, each.printed) for each in corrections()}) == len(corrections())
    assert all(each.printed != each.correct for each in corrections())


def test_every_experiment_that_finds_an_error_has_its_sentence_and_no_other_one():
    """What a lecture only asks is no error of its."""
    wrong = {
        name
        for name, each in experiments().items()
        if each.claim.expected[0] == "is wrong" and not each.claim.asked
    }
    assert {each.experiment for each in corrections() if each.experiment} == wrong


def test_an_experiment_is_about_the_row_of_the_error_that_it_finds():
    for each in corrections():
        if each.experiment:
            assert each.row in experiments()[each.experiment].claim.items

"""What the lectures say wrongly: that nothing is left out, and that experiments and sentences agree on it."""

from collections import Counter
from pathlib import Path

from heedful.lab.errors import corrections
from heedful.lab.lectures import read
from heedful.lab.registry import experiments

ROWS = {each.row: each for each in read(Path(__file__).parents[3] / "docs" / "lectures.yaml").rows}

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
    (28, "S0"): 2,  # sums of rows; congested
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
        name for name, each in experiments().items() if each.expected[0] == "is wrong" and not each.asked
    }
    assert {each.experiment for each in corrections() if each.experiment} == wrong


def test_an_experiment_is_about_the_row_of_the_error_that_it_finds():
    for each in corrections():
        if each.experiment:
            assert each.row in experiments()[each.experiment].items

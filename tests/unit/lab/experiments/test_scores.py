"""Experiments on scores: figures by formula, and the gradient of the softmax by its Jacobian."""

import statistics

import pytest
import torch
from sweep import Laws, hold_what_is_expected, made

from heedful.lab.experiments import scores
from heedful.lab.seeds import seeded
from heedful.nn.attention.scores import DotScore


class TestExperiments(Laws):
    family = "scores"


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", ["cosine-score", "additive-is-concat"])
def test_what_is_expected_is_measured(name, control):
    if (name, control) != ("additive-is-concat", True):  # whose claim is another score's
        hold_what_is_expected(name, control, rel=1e-6, abs=1e-4)


def test_variances_are_those_of_the_formula_within_a_tenth():
    hold_what_is_expected("dot-product-scale", rel=0.1, abs=0.1)
    for control in (False, True):
        hold_what_is_expected("scale-by-words", control, rel=0.1, abs=0.1)


def test_the_gradient_of_the_softmax_is_its_jacobians_norm():
    with seeded(5):
        found = scores.softmax_statistics(DotScore(), 7, 3)
    with seeded(5):
        drawn = [torch.randn(n, 7) for _ in range(3) for n in (scores.N_QUERIES, scores.N_KEYS)]
    norms, tops, values = [], [], []
    for q, k in zip(drawn[::2], drawn[1::2], strict=True):
        for row in (q @ k.T).double():
            jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), row)
            norms.append(jacobian.norm().item())
            tops.append(row.softmax(0).max().item())
            values += row.tolist()
    # torch's median of an even number of values is the lower of the middle two.
    assert found["gradient"] == pytest.approx(statistics.median_low(norms), rel=1e-6)
    assert found["greatest weight"] == pytest.approx(statistics.mean(tops), rel=1e-6)
    assert found["variance"] == pytest.approx(statistics.variance(values), rel=1e-6)


def test_pairs_are_drawn_in_the_order_of_the_first_form():
    (_, split), (_, joined) = made("additive-is-concat").panels[0].lines.values()
    assert split == sorted(split)
    assert joined == pytest.approx(split, abs=1e-5)  # so they are of the same pairs

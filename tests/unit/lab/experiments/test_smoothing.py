"""Label smoothing on a known chain: what it costs is computed from the chain."""

import numpy as np
import pytest
from sweep import Laws, value

from heedful.lab.experiments import smoothing


class TestExperiments(Laws):
    family = "smoothing"


def test_rows_of_the_chain_are_distributions_with_one_most_probable_symbol():
    p = smoothing.transition_probabilities().numpy()
    np.testing.assert_allclose(p.sum(-1), 1)
    first, second = np.sort(p)[:, -1], np.sort(p)[:, -2]
    assert (first > 2 * second).all()


def test_perplexity_is_worse_by_the_divergence_of_the_smoothed_distribution():
    """KL(p, (1 - ε) p + ε / V) in nats, averaged over the previous symbol."""
    p = smoothing.transition_probabilities().numpy()
    q = 0.9 * p + 0.1 / smoothing.SYMBOLS
    costs = (p * np.log(p / q)).sum(-1)
    own = value("label-smoothing", "perplexity with the smoothing")
    plain = value("label-smoothing", "perplexity without smoothing")
    assert np.log(own / plain) == pytest.approx(costs.mean(), abs=0.005)


def test_accuracy_is_that_of_the_most_probable_symbol():
    for name in ("right symbols without", "right symbols with the"):
        most = smoothing.transition_probabilities()[0].max().item()
        assert value("label-smoothing", name) == pytest.approx(most, abs=0.02)


def test_the_control_has_no_smoothing():
    names = "perplexity without smoothing", "perplexity with the smoothing"
    without, smoothed = (value("label-smoothing", name, control=True) for name in names)
    assert without == smoothed

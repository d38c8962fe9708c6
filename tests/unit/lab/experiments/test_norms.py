"""Experiments on norms: their figures against numpy and closed forms."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, measured, value

from heedful.lab.experiments import norms
from heedful.nn.layout import Layout
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm


class TestExperiments(Laws):
    family = "norms"


def test_the_mean_of_a_normalised_token_is_zero():
    x = norms._draw_tokens(20).double().numpy()
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert value("layer-norm-mean", "mean") == pytest.approx(y.mean(), abs=1e-6)
    assert value("layer-norm-mean", "its standard") == pytest.approx(y.std(-1).mean(), abs=1e-6)
    assert measured("layer-norm-mean", "mean").expected == 1
    assert measured("layer-norm-mean", "mean", control=True).expected == 0
    assert value("layer-norm-mean", "numbers of the gain") == norms.D
    gains = made("layer-norm-mean").table[2]
    assert gains["S3 prints"] == "0 / 0, NaN"


def test_the_image_shows_the_means():
    _, means = curve("layer-norm-mean", 0, "before the norm")
    np.testing.assert_allclose(means, norms._draw_tokens(20).mean(-1))


@pytest.mark.parametrize("m", [1, 2, 8])
def test_the_error_of_batch_statistics_is_numpys(m):
    x = norms._draw_tokens(4096)
    everything = x.double().numpy()
    among_all = (everything - everything.mean(0)) / np.sqrt(everything.var(0) + 1e-5)
    changes = []
    for t in range(5):
        rows = np.take(everything, range(m * t, m * t + m), axis=0)
        y = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
        changes.append(y[0] - among_all[m * t])
    wanted = np.sqrt(np.mean(np.square(changes)))
    assert norms._change_by_batch(lambda: BatchNorm(norms.D), x, m, 5) == pytest.approx(wanted, rel=1e-3)
    assert norms._change_by_batch(lambda: LayerNorm(norms.D), x, m, 5) == 0


def test_the_error_of_batch_statistics_falls_with_the_root_of_the_batch():
    table = {
        row["tokens in the batch"]: row["change of a token"]
        for row in made("layer-norm-batch-of-one", True).table
    }
    assert table[32] / table[128] == pytest.approx(2.0, rel=0.2)
    assert table[1] == pytest.approx(1.0, rel=0.1)  # x̂ itself is lost, whose size is 1


def test_a_single_token_is_erased_in_training_alone():
    assert value("batch-norm-batch-of-one", "largest |x̂| of a single token") == 0
    assert value("batch-norm-batch-of-one", "gradient") == 0
    assert value("batch-norm-batch-of-one", "largest |x̂| of a single token", control=True) > 1
    # In evaluation, y = (x - m) / √(v + ε): the gradient of w·y is w / √(v + ε).
    norm = BatchNorm(norms.D)
    for seed in range(30):
        norm(norms._draw_tokens(64, seed))
    weights = torch.randn(1, norms.D, generator=torch.Generator().manual_seed(5))
    wanted = (weights / (norm.running_variance + norm.eps).sqrt()).norm().item()
    assert value("batch-norm-batch-of-one", "gradient", control=True) == pytest.approx(wanted, rel=1e-5)


def test_what_is_coupled_says_so():
    for control, declared in ((False, 1), (True, 0)):
        figure = measured("batch-norm-couples", "declared", control)
        assert figure.value == figure.expected == declared
    assert value("batch-norm-couples", "change", control=True) == 0
    assert value("batch-norm-couples", "gradient", control=True) == 0


@pytest.mark.parametrize("beginning", ["mean over", "variance over"])
def test_padding_changes_statistics_as_the_formula_says(beginning):
    figure = measured("batch-norm-padding", beginning)
    assert figure.value == pytest.approx(figure.expected, rel=1e-4)


def test_counting_pads_is_batch_norm_over_the_rectangle():
    layout, x = Layout.of([3, 1]), norms._draw_tokens(4)
    rows = np.zeros((6, norms.D))
    rows[:4] = x.numpy()
    padded = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
    real = x.double().numpy()
    change = padded[:4] - (real - real.mean(0)) / np.sqrt(real.var(0) + 1e-5)
    root, largest = norms._difference_by_padding(layout, x)
    assert root == pytest.approx(math.sqrt(np.square(change).mean()), rel=1e-4)
    assert largest == pytest.approx(np.abs(change).max(), rel=1e-4)


def test_power_norm_keeps_the_mean_and_forgets_its_company():
    figure = measured("power-norm", "size of the features' means")
    assert figure.value == pytest.approx(figure.expected, rel=0.1)
    assert value("power-norm", "change of a token by its company, after") == 0
    assert value("power-norm", "the same during") > 0.1
    assert value("power-norm", "size of the features' means", control=True) < 1e-5


def test_looking_at_a_norm_leaves_it_as_it_was():
    norm = PowerNorm(norms.D, warmup=3)
    before = {name: v.clone() for name, v in norm.state_dict().items()}
    norms._change_by_rest_of_batch(norm)
    for name, v in norm.state_dict().items():
        assert torch.equal(v, before[name])


def test_the_running_mean_is_drawn():
    _, running = curve("power-norm", 0, "running")
    psi = 1.0
    for seed in range(100):
        psi = 0.9 * psi + 0.1 * norms._draw_tokens(16, seed).square().mean(0)[0].item()
    assert running[-1] == pytest.approx(psi, rel=1e-4)

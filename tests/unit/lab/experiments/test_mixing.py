"""Experiments on mixers: counts by formula, the task by counting, causality and sight by perturbation."""

import pytest
import torch
from sweep import Laws, curve, made, measured, value

from heedful.data.batch import Batch
from heedful.lab.experiments import mixing
from heedful.nn.layout import Layout, Tokens
from heedful.objectives.classification import class_logits


class TestExperiments(Laws):
    family = "mixing"


@pytest.mark.parametrize("control, k", [(False, 5), (True, 1)])
def test_convolutions_cost_what_the_formulas_say(control, k):
    d = 64
    for beginning in (
        f"parameters, separable, k = {k}",
        f"parameters, full, k = {k}",
        "operations for each token, separable",
        "operations for each token, full",
    ):
        figure = measured("separable-convolution", beginning, control)
        assert figure.value == figure.expected
    assert value("separable-convolution", "parameters, separable", control) == k * d + d * d
    kernels, parameters = curve("separable-convolution", 0, "full: k d²", control)
    assert list(parameters) == [k * d * d for k in kernels]


def test_the_class_tells_whether_the_ends_are_the_same():
    batch = mixing.draw_sequences_with_ends(50, torch.Generator().manual_seed(1))
    low = range(mixing.FIRST, mixing.FIRST + mixing.KINDS)
    for row, wanted in zip(batch.inputs.split(), batch.classes.tolist(), strict=True):
        classify, first, *between, last, separate = row
        assert (classify, separate) == (mixing.CLASSIFY, mixing.SEPARATE)
        assert len(between) == mixing.LENGTH - 2
        assert first in low
        assert last in low
        assert not set(between) & set(low)
        assert wanted == (first == last)
    assert 10 < sum(batch.classes.tolist()) < 40


def test_budgets_are_equal_to_a_hidden_unit():
    for control in (False, True):
        budgets = {row["mixer"]: row["parameters"] for row in made("mixers-at-equal-budget", control).table}
        unit = 2 * (2 * mixing.D + 1)  # of the feed-forwards of two blocks
        assert all(abs(n - budgets["attention"]) <= unit / 2 for n in budgets.values())
    free = {row["mixer"]: row["of its mixers"] for row in made("mixers-at-equal-budget").table}
    assert free["fourier"] == 0
    n, d_tokens = mixing.LENGTH + 2, (mixing.LENGTH + 2) // 2
    assert free["mlp"] == 2 * (2 * n * d_tokens + n + d_tokens)


@pytest.mark.parametrize("mixer", ["separable", "attention", "fourier", "mlp"])
def test_a_local_mixer_tells_of_both_ends_no_more_than_a_sum(mixer):
    """f(a, a) + f(b, b) = f(a, b) + f(b, a) for what is read out: each end adds its own, whatever the other.

    So no weights compare them; those of the other mixers may.
    """
    model = mixing.build_at_budget(mixer, 10_000).eval().double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)  # far from where all is nearly linear
    row = torch.randint(mixing.KINDS, mixing.SYMBOLS, (mixing.LENGTH,), generator=torch.Generator()).tolist()
    parts = [[[mixing.FIRST + i for i in [a, *row[1:-1], b]]] for a in (0, 1) for b in (0, 1)]
    batch = Batch.labelled(parts, [0] * 4, classify=mixing.CLASSIFY, separate=mixing.SEPARATE)
    with torch.no_grad():
        aa, ab, ba, bb = class_logits(model(batch.inputs), model.heads, batch.inputs.layout)
    size = (aa - bb).abs().max()
    assert size > 0
    more = ((aa + bb - ab - ba).abs().max() / size).item()
    assert (more < 1e-5) == (mixer == "separable")


def test_mixers_of_all_of_a_sequence_do_as_well_as_attention():
    assert value("mixers-at-equal-budget", "right classes, attention") > 0.9
    assert value("mixers-at-equal-budget", "right classes, separable", control=True) < 0.6


def test_a_fourier_transform_is_that_of_numbers():
    """A change of the last token reaches every other one by a cosine of known size."""
    with_change = mixing.change_of_earlier(mixing.PARTS["Fourier"]())
    n, d = mixing._N, mixing.D
    delta = torch.zeros(n, d, dtype=torch.float64)
    delta[-1] = 1.0
    wanted = torch.fft.fft2(delta).real[:-1].abs().max().item()
    assert with_change == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("name", list(mixing.PARTS))
def test_what_is_said_of_parts_is_so(name):
    (row,) = [r for r in made("mixers-in-place-of-attention").table if r["part"] == name]
    causal = name.startswith("causal")
    assert (row["change of earlier tokens"] == 0) == causal
    assert (row["reads longer sequences"] == "no") == (name == "network along positions")
    part = mixing.PARTS[name]()
    assert row["parameters"] == sum(p.numel() for p in part.parameters())
    assert part(torch.zeros(mixing._N, mixing.D), Layout.of([mixing._N])).shape == (mixing._N, mixing.D)


# Convolutions over text


@pytest.mark.parametrize("mixer, sees", [("LSTM", 9), ("convolution of 5", 5), ("convolution of 1", 1)])
def test_a_word_is_foretold_from_as_many_words_as_the_mixer_sees(mixer, sees):
    model = mixing.text_model(mixer).eval()
    ids = torch.arange(2, 11)
    last = model(Tokens(ids, Layout.of([9])))[-1, 0]
    (gradient,) = torch.autograd.grad(last, model.embedding.weight)
    assert [bool(gradient[i].any()) for i in ids] == [n >= 9 - sees for n in range(9)]


def test_operations_are_those_of_the_formulas():
    d = mixing.TEXT_WIDTH
    for control, kernel in ((False, 5), (True, 1)):
        found = value("convolution-or-lstm", f"operations a word, convolution of {kernel}", control)
        assert found == 2 * kernel * d**2
    assert value("convolution-or-lstm", "operations a word, LSTM") == 2 * 4 * (d + d) * d


def test_a_convolution_comes_near_and_one_word_is_too_little():
    lstm = value("convolution-or-lstm", "nats a word, LSTM")
    five = value("convolution-or-lstm", "nats a word, convolution of 5")
    one = value("convolution-or-lstm", "nats a word, convolution of 1", control=True)
    assert five < 1.05 * lstm < 1.08 * lstm < one
    rows = {row["mixer"]: row for row in made("convolution-or-lstm").table}
    assert rows["convolution of 5"]["parameters"] < rows["LSTM"]["parameters"]

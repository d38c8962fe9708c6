"""Experiments on recurrence: gradients by products of Jacobians, clipping by hand."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, made, measured, value

from heedful.lab import recurrence
from heedful.lab.seeds import seeded
from heedful.nn.cells import ElmanCell, LSTMCell
from heedful.nn.recurrent import Recurrence


class TestExperiments(Laws):
    family = "recurrence"


def test_an_rnns_gradient_is_the_product_of_its_jacobians():
    n, d = 7, recurrence.D
    found = recurrence.gradient_by_distance(recurrence.MIXERS["RNN"], n, seed=3)
    with seeded(3):
        cell = Recurrence(ElmanCell(d, d)).double().cell
        x, weights = torch.randn(n, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    w_h, w_x = cell.recurrent.weight.detach().numpy(), cell.input.weight.detach().numpy()
    states = [np.zeros(d)]
    for row in x.numpy():
        states.append(np.tanh(w_h @ states[-1] + w_x @ row + cell.input.bias.detach().numpy()))
    back = weights.numpy()
    for k, state in enumerate(reversed(states[1:])):
        through = (1 - state**2) * back
        assert found[k].item() == pytest.approx(np.linalg.norm(through @ w_x), rel=1e-9)
        back = through @ w_h


def test_factors_are_in_order():
    rnn, lstm, attention = (
        value("gradient-over-distance", f"what a token of distance leaves of the gradient, {name}")
        for name in recurrence.MIXERS
    )
    assert rnn < lstm < attention
    assert attention == pytest.approx(1.0, abs=0.03)
    table = made("gradient-over-distance").table
    assert table[0]["RNN"] == pytest.approx(1.0)
    # The factor is that of the curve: from 8 to 16 tokens it was applied eight times.
    by_distance = {row["distance"]: row["RNN"] for row in table}
    assert by_distance[16] / by_distance[8] == pytest.approx(rnn**8, rel=0.5)


def test_the_cell_of_1997_keeps_all_of_its_gradient():
    assert value("forget-gate", "gradient after 40 steps, LSTM of 1997") == 1.0
    assert value("forget-gate", "gradient after 40 steps, RNN") < 1e-3


def test_a_forget_gate_multiplies_the_gradient():
    n, d = 5, recurrence.D
    make = recurrence.MEMORIES[recurrence._GATED]
    found = recurrence.memory_kept(make, n, seed=2)
    with seeded(2):
        cell = LSTMCell(d, d, forget_bias=0.0).double()
        x, weights = torch.randn(n, 1, d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    gates = torch.sigmoid(cell.project(x)[:, 0, d : 2 * d])
    unit = weights / weights.norm()
    for t in range(n):
        assert found[t] == pytest.approx((unit * gates[: t + 1].prod(0)).norm().item(), rel=1e-9)


def test_clipping_keeps_the_direction_and_cures_only_what_is_large():
    assert measured("clipping", "gradient at the first token, before").expected == 1.5**29
    for control in (False, True):
        before = measured("clipping", "gradient at the first token, before", control)
        assert before.value == pytest.approx(before.expected, rel=1e-3)
        whole = value("clipping", "norm of all gradients, before", control)
        gain = 0.5 if control else 1.5
        assert whole == pytest.approx(math.sqrt(sum(gain ** (2 * k) for k in range(30))), rel=1e-3)
        clipped = value("clipping", "norm of all gradients, clipped", control)
        assert clipped == pytest.approx(min(1.0, whole), rel=1e-3)
        first = value("clipping", "gradient at the first token, clipped", control)
        assert first == pytest.approx(before.value * clipped / whole, rel=1e-6)

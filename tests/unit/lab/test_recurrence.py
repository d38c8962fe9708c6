"""Experiments on recurrence: gradients by products of Jacobians, depths by counting, clipping by hand."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, curve, made, measured, value

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


def test_the_depth_of_a_graph_is_that_of_its_longest_way():
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    c = a * b  # 2: a leaf and a product
    assert recurrence.depth(c) == 2
    d = c.exp()
    assert recurrence.depth(d.sin().cos() + c) == 6
    assert recurrence.depth(c + d.sin().cos()) == 6
    deep = a
    for _ in range(5000):
        deep = deep + 1
    assert recurrence.depth(deep) == 5001


def test_chains_grow_with_tokens_in_a_recurrence_and_with_layers_in_attention():
    growth = value("serial-encoder", "further operations in a row for each token, recurrent")
    assert growth == pytest.approx(round(growth), abs=1e-6)
    assert growth >= 3
    assert value(
        "serial-encoder", "further operations in a row for each token, attention", control=True
    ) == pytest.approx(0, abs=1e-9)
    one, two, three = (recurrence.depth(recurrence._attention_encoder(8, n)) for n in (1, 2, 3))
    assert two - one == three - two == value("serial-encoder", "further operations in a row for each layer")


def test_clocks_stand_in_the_table_alone():
    columns = set(made("serial-encoder").table[0])
    assert {"ms, recurrent", "ms, attention"} < columns
    assert not any("ms" in each.name.split() or each.unit == "ms" for each in made("serial-encoder").measured)


def test_weights_wait_over_steps_and_not_over_words():
    assert value("parallel-weights", "further operations in a row for each source word") == pytest.approx(
        0, abs=1e-9
    )
    assert value("parallel-weights", "further operations in a row for each step") > 3
    assert value(
        "parallel-weights", "further operations in a row for each step", control=True
    ) == pytest.approx(0, abs=1e-9)
    _, depths = curve("parallel-weights", 1, "Transformer")
    assert len(set(depths)) == 1

"""Tiny trainings against a plain loop; what is timed and what is not, by a clock made by hand."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.lab import tiny
from heedful.lab.seeds import seeded
from heedful.lab.tiny import Training, n_parameters, slope, train
from heedful.models import language_model
from heedful.models.language_model import LanguageModelConfig
from heedful.objectives.cross_entropy import NextToken
from heedful.training.optimizers import SGDConfig
from heedful.training.schedules import Constant

CONFIG = LanguageModelConfig(d_model=8, n_layers=1, context=7, dropout=0.0, layer={"mixer": {"n_heads": 2}})
ROWS = torch.randint(5, (4, 3, 8), generator=torch.Generator().manual_seed(1))


def model():
    with seeded(2):
        return language_model.build(CONFIG, 5)


def test_a_training_is_what_a_plain_loop_makes_of_it():
    ours, plain = model(), model()
    found = train(
        ours, NextToken(), (Batch.windows(rows.numpy()) for rows in ROWS), SGDConfig(), Constant(0.1, 2)
    )
    losses, norms = [], []
    for step, rows in enumerate(ROWS, 1):
        batch = Batch.windows(rows.numpy())
        logits = plain.heads["token"](plain(batch.inputs))
        loss = functional.cross_entropy(logits, rows[:, 1:].flatten())
        plain.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(math.sqrt(sum(p.grad.square().sum().item() for p in plain.parameters())))
        with torch.no_grad():
            for p in plain.parameters():
                p -= 0.1 * min(1.0, step / 2) * p.grad
    assert found.losses == pytest.approx(losses, rel=1e-5)
    assert found.norms == pytest.approx(norms, rel=1e-5)
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert not ours.training


def test_it_ends_with_a_loss_that_is_no_number():
    broken = model()
    nn.init.constant_(broken.heads["token"].weight, math.nan)
    batches = (Batch.windows(rows.numpy()) for rows in ROWS)
    found = train(broken, NextToken(), batches, SGDConfig(), Constant(0.1))
    assert len(found.losses) == 1
    assert found.norms == []
    assert found.end == math.inf


def test_the_end_is_the_mean_of_the_last_ten():
    assert Training([100.0] * 5 + [1.0, 3.0] * 5, []).end == 2.0
    assert Training([4.0, 2.0], []).end == 3.0


def test_the_slope_is_that_of_least_squares():
    x, y = np.array([1.0, 2.0, 4.0, 7.0]), np.array([3.0, 2.5, 4.0, 9.0])
    wanted = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    assert slope(list(x), list(y)) == pytest.approx(wanted)


def test_shared_parameters_are_counted_once():
    one, two = nn.Linear(3, 5), nn.Linear(5, 3, bias=False)
    assert n_parameters(one, two) == 35
    two.weight = one.weight
    assert n_parameters(one, two) == 20


def test_minimising_is_a_plain_loop_of_adam_on_lazy_losses():
    torch.manual_seed(0)  # of some weights, three updates of Adam leap over the minimum
    x, ours = torch.tensor([[1.0, 2.0]]), nn.Linear(2, 1, bias=False)
    plain = copy.deepcopy(ours)
    losses = list(tiny.minimise(ours, (ours(x).square().sum() for _ in range(3)), rate=0.1))
    optimizer, expected = torch.optim.Adam(plain.parameters(), 0.1), []
    for _ in range(3):
        loss = plain(x).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected)
    assert losses[0] > losses[-1]
    torch.testing.assert_close(ours.weight, plain.weight)


def test_items_are_drawn_with_replacement():
    drawn = tiny.draw_from("abc", 500, torch.Generator().manual_seed(1))
    assert len(drawn) == 500
    assert set(drawn) == set("abc")


def test_a_cycle_goes_through_all_symbols():
    rows = tiny.cyclic_sequences(7, 12, 11, torch.Generator().manual_seed(1)).tolist()
    assert all(len({*row[:11]}) == 11 and row[11] == row[0] for row in rows)
    assert len({(a, b) for row in rows for a, b in pairwise(row)}) == 11


def test_differences_by_hand():
    a, b = torch.tensor([3.0, -1.0]), torch.tensor([3.0, 4.0])
    assert tiny.largest_difference(a, b) == 5.0
    assert tiny.relative_difference(a, b) == 1.0


def test_operations_come_after_those_whose_results_they_use():
    a = torch.ones(2, requires_grad=True)
    b = a.exp()
    found = tiny.operations_behind(b * b.sin())
    order = list(found)
    assert len(order) == 4  # the leaf, exp, sin and the product
    assert all(order.index(each) < i for i, node in enumerate(order) for each in found[node])
    assert tiny.operations_behind(torch.ones(2)) == {}


# Costs


def test_the_shortest_time_of_the_work_alone(monkeypatch):
    now = 0.0
    taken = []

    def advance(seconds):
        nonlocal now
        now += seconds

    def given():
        advance(100)
        return len(taken)

    def work(number):
        taken.append(number)
        # The first is longest, as where memory and kernels are still to be found; the shortest is the fourth.
        advance({0: 50, 3: 2}.get(number, 3 + number))

    monkeypatch.setattr(tiny.time, "perf_counter", lambda: now)
    assert tiny.milliseconds(work, given) == 2000
    assert taken == list(range(tiny.REPEATS + 1))


def test_the_first_time_is_not_taken(monkeypatch):
    durations = iter([1.0] + [5.0] * tiny.REPEATS)
    now = 0.0

    def work(_):
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(tiny.time, "perf_counter", lambda: now)
    assert tiny.milliseconds(work, lambda: None) == 5000


def test_operations_are_two_for_each_term_of_a_product():
    a, b = torch.ones(3, 5), torch.ones(5, 7)
    assert tiny.flops_of(lambda: a @ b + 1) == 2 * 3 * 5 * 7

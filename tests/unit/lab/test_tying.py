"""Experiments on shared weights: counts by formula, gradients as sums, words against a plain loop."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, hold_what_is_expected, made, measured, value
from torch import nn

from heedful.lab import tying
from heedful.lab.seeds import seeded
from heedful.nn.cells import ElmanCell
from heedful.nn.recurrent import Recurrence


class TestExperiments(Laws):
    family = "tying"


def test_the_base_model_with_one_two_and_three_matrices():
    assert value("tied-embeddings", "parameters of the base", control=True) == 63_045_632
    assert value("tied-embeddings", "of which one matrix") == 18_944_000
    assert value("tied-embeddings", "parameters of the base") == 63_045_632 + 2 * 18_944_000
    for beginning in ("saved by tying three", "saved by tying the target"):
        figure = measured("tied-embeddings", beginning)
        assert figure.value == figure.expected


def test_parameters_of_a_recurrence_do_not_grow_with_its_length():
    one = 32 * 32 + 32 * 32 + 32
    for steps, tied, own in ((1, one, one), (5, one, 5 * one), (25, one, 25 * one)):
        row = next(row for row in made("tied-over-time").table if row["steps"] == steps)
        assert (row[tying.TIED], row[tying.OWN]) == (tied, own)
    assert value("tied-over-time", "parameters behind state 25") == one
    assert value("tied-over-time", "parameters behind state 25", control=True) == 25 * one
    hold_what_is_expected("tied-over-time", abs=1e-5)


def test_weights_behind_a_result_are_those_it_depends_on():
    a, b, c = nn.Linear(3, 5), nn.Linear(5, 3), nn.Linear(3, 7)
    x = torch.ones(2, 3)
    assert tying._weights_behind(a(x)) == 20
    assert tying._weights_behind(a(b(a(x)))) == 20 + 18
    assert tying._weights_behind(a(x) * c(x).sum().detach()) == 20


def test_tied_gradients_are_sums_over_steps():
    with seeded(3):
        cell, x = ElmanCell(5, 7), torch.randn(4, 5)
    assert tying._gradient_difference(cell, x) < 1e-5


def test_another_order_of_steps_has_another_gradient(monkeypatch):
    scanned = Recurrence.forward
    monkeypatch.setattr(Recurrence, "forward", lambda self, x, layout: scanned(self, x.flip(0), layout))
    with seeded(3):
        cell, x = ElmanCell(5, 7), torch.randn(4, 5)
    assert tying._gradient_difference(cell, x) > 0.1


def test_words_drown_without_the_factor():
    assert value("embedding-scale", "words that can be told") < 0.5
    assert value("embedding-scale", "words that can be told", control=True) == 1
    for beginning in ("size of the embeddings", "size of the positions"):
        figure = measured("embedding-scale", beginning)
        assert figure.value == pytest.approx(figure.expected, rel=0.02)


def test_what_the_embedding_adds_is_what_was_measured():
    with seeded(0):
        table = torch.randn(1000, 64) * 64**-0.5
        words = torch.randint(1000, (256,))
    found = 0
    for place, word in enumerate(words.tolist()):
        p = place % 64
        angles = [p / 10_000 ** (2 * i / 64) for i in range(32)]
        position = np.array([f(angle) for angle in angles for f in (math.sin, math.cos)])
        x = table[word].numpy() + position
        found += int((table.numpy() @ x).argmax() == word)
    assert value("embedding-scale", "words that can be told") == pytest.approx(found / 256, abs=0.01)

"""Experiments on shared weights: counts by formula, gradients as sums, words against a plain loop."""

import math

import numpy as np
import pytest
import torch
from sweep import Laws, measured, value

from heedful.lab.seeds import seeded


class TestExperiments(Laws):
    family = "tying"


def test_the_base_model_with_one_two_and_three_matrices():
    assert value("tied-embeddings", "parameters of the base", control=True) == 63_045_632
    assert value("tied-embeddings", "of which one matrix") == 18_944_000
    assert value("tied-embeddings", "parameters of the base") == 63_045_632 + 2 * 18_944_000
    for beginning in ("saved by tying three", "saved by tying the target"):
        figure = measured("tied-embeddings", beginning)
        assert figure.value == figure.expected


def test_tied_gradients_are_sums_over_steps():
    assert value("tied-over-time", "largest difference") < 1e-5
    figure = measured("tied-over-time", "parameters for 25 steps", control=True)
    assert figure.value == 25 * figure.expected == 25 * (32 * 32 + 32 * 32 + 32)


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

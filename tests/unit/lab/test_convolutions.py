"""Convolutions over text: what a word depends on, and operations by formula."""

import pytest
import torch
from sweep import Laws, made, value

from heedful.lab import convolutions
from heedful.nn.layout import Layout, Tokens


class TestExperiments(Laws):
    family = "convolutions"


@pytest.mark.parametrize("mixer, sees", [("LSTM", 9), ("convolution of 5", 5), ("convolution of 1", 1)])
def test_a_word_is_foretold_from_as_many_words_as_the_mixer_sees(mixer, sees):
    model = convolutions.model_of(mixer).eval()
    ids = torch.arange(2, 11)
    last = model(Tokens(ids, Layout.of([9])))[-1, 0]
    (gradient,) = torch.autograd.grad(last, model.embedding.weight)
    assert [bool(gradient[i].any()) for i in ids] == [n >= 9 - sees for n in range(9)]


def test_operations_are_those_of_the_formulas():
    d = convolutions.D
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

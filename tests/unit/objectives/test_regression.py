"""The number of a sequence: against a sum by hand."""

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.nn.pooling import MeanPooling
from heedful.objectives.regression import SquaredError
from heedful.tasks.regression import NumberCodec
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

D = 5


def test_the_term_is_the_sum_of_squares_of_standardised_differences():
    torch.manual_seed(1)
    codec = NumberCodec(train_tokenizer(WordConfig(kind="word"), ["a b"] * 3), mean=3.5, deviation=0.7)
    numbers = [1.25, 3.5, 1e300, -2.0]
    stored = [torch.tensor([x], dtype=torch.float64).numpy().view("u1").tolist() for x in numbers]
    made = codec.collate([[[7, 8][:n]] for n in (1, 2, 0, 1)], stored, [4, 3, 2, 1])
    assert isinstance(made, Batch)
    assert made.samples == (4, 3, 2, 1)
    torch.testing.assert_close(made.values[[0, 1, 3]], torch.tensor([-2.25 / 0.7, 0.0, -5.5 / 0.7]))
    assert made.values[2] > 1e30
    made = codec.collate([[[7, 8]], [[7]]], stored[:2], [0, 1])
    heads = nn.ModuleDict({"pooled": MeanPooling(), "value": nn.Linear(D, 1)})
    hidden = torch.randn(7, D)
    (term,) = SquaredError()(hidden, heads, made)
    found = [heads["value"](rows.mean(0)) for rows in (hidden[:4], hidden[4:])]
    expected = (found[0] + 2.25 / 0.7) ** 2 + found[1] ** 2
    torch.testing.assert_close(term.sum.detach(), expected.squeeze().detach())
    assert (term.name, term.count) == ("value", 2)
    assert SquaredError().counts(made) == {"value": 2}

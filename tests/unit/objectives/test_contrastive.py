"""InfoNCE against plain loops over the formulas of van den Oord et al. 2018 and Gao et al. 2021."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.nn.layout import Tokens
from heedful.nn.pooling import MeanPooling
from heedful.objectives.contrastive import InfoNCE
from heedful.objectives.terms import CombinedObjective, couples_batch
from heedful.training.model_with_loss import ModelWithLoss

D = 5
HEADS = nn.ModuleDict({"pooled": MeanPooling()})


def batch_of(text_ids):
    """Sequences of one token, the texts of each column one after the other."""
    tokens = Tokens.of([[7]] * (len(text_ids) * len(text_ids[0])))
    return replace(Batch(tokens, torch.zeros(0, dtype=torch.int64)), text_ids=torch.tensor(text_ids))


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def by_hand(vectors, text_ids, temperature, *, candidates=slice(1, None), query=0):
    """The sum over examples; a candidate is skipped if it is no negative, as the module describes."""
    n, loss, correct = len(text_ids), 0.0, 0
    of = lambda example, column: vectors[column * n + example]  # noqa: E731
    columns = range(len(text_ids[0]))[candidates]
    for i, own in enumerate(text_ids):
        positive = columns[0]
        exponents = {}
        for column in columns:
            for j, other in enumerate(text_ids):
                is_positive = (j, column) == (i, positive)
                is_equal = other[column] in (own[query], own[positive])
                belongs_to_equal = column == positive and other[query] == own[query]
                if is_positive or not (is_equal or belongs_to_equal):
                    exponents[j, column] = cosine(of(i, query), of(j, column)) / temperature
        total = sum(math.exp(x) for x in exponents.values())
        loss -= math.log(math.exp(exponents[i, positive]) / total)
        correct += max(exponents, key=exponents.get) == (i, positive)
    return loss, correct


CASES = {
    "pairs": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "hard negatives": [[0, 1, 2], [3, 4, 5], [6, 7, 8]],
    "equal positives": [[0, 1], [2, 1], [3, 4]],
    "equal texts": [[0, 1], [0, 2], [3, 4]],
    "a positive that is the text of another": [[0, 1], [1, 2], [3, 0]],
    "a hard negative that is a positive": [[0, 1, 4], [3, 4, 1], [5, 6, 7]],
    "the same text with another dropout mask": [[0, 0], [1, 1], [0, 0], [2, 2]],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_the_loss_is_that_of_a_plain_loop(name, temperature):
    text_ids = CASES[name]
    torch.manual_seed(1)
    hidden = torch.randn(len(text_ids) * len(text_ids[0]), D, requires_grad=True)
    batch = batch_of(text_ids)
    loss, correct = InfoNCE(temperature)(hidden, HEADS, batch)
    expected, expected_correct = by_hand(hidden.detach(), text_ids, temperature)
    assert loss.sum.item() == pytest.approx(expected, rel=1e-5)
    assert (correct.sum.item(), correct.count, loss.count) == (expected_correct, len(text_ids), len(text_ids))
    loss.sum.backward()
    assert torch.isfinite(hidden.grad).all()


@pytest.mark.parametrize("name", CASES)
def test_the_symmetric_loss_is_the_mean_of_both_directions(name):
    text_ids = CASES[name]
    torch.manual_seed(2)
    hidden = torch.randn(len(text_ids) * len(text_ids[0]), D)
    loss, _ = InfoNCE(0.2, symmetric=True)(hidden, HEADS, batch_of(text_ids))
    there, _ = by_hand(hidden, text_ids, 0.2)
    back, _ = by_hand(hidden, text_ids, 0.2, candidates=slice(0, 1), query=1)
    assert loss.sum.item() == pytest.approx((there + back) / 2, rel=1e-5)


def test_equal_positives_do_not_repel_each_other():
    """The loss of two examples with the same positive is 0, whatever their vectors are."""
    hidden = torch.randn(4, D, requires_grad=True)
    loss, _ = InfoNCE()(hidden, HEADS, batch_of([[0, 1], [2, 1]]))
    assert loss.sum.item() == 0
    loss.sum.backward()
    assert not hidden.grad.any()


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_of_nothing_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature must be more than 0"):
        InfoNCE(temperature)


def test_it_declares_that_it_couples_the_batch():
    """A combination with it, and the module of the training, pass the declaration on."""
    assert couples_batch(InfoNCE())
    assert couples_batch(CombinedObjective(InfoNCE()))
    assert ModelWithLoss(nn.Linear(2, 2), InfoNCE()).couples_batch

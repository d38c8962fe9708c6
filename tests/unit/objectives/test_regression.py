"""The number of a sequence: against sums by hand, and answers that are known to be the best."""

from statistics import fmean, median

import pytest
import torch
from small_tasks import task_of
from torch import nn

from heedful.data.batch import Batch
from heedful.nn.pooling import MeanPooling
from heedful.objectives.regression import Huber, NumberError
from heedful.tasks.inputs.processor import Scale
from heedful.tasks.regression import NumberProcessor
from heedful.text.configuration import WordConfig
from heedful.text.training import train_tokenizer

D = 5


def test_the_term_is_the_sum_of_squares_of_standardised_differences():
    torch.manual_seed(1)
    tokenizer = train_tokenizer(WordConfig(kind="word"), ["a b"] * 3)
    task = task_of("regression", NumberProcessor(tokenizer, Scale(3.5, 0.7)), ["text", "label"])
    numbers = [1.25, 3.5, 1e300, -2.0]
    stored = [torch.tensor([x], dtype=torch.float64).numpy().view("u1").tolist() for x in numbers]
    made = task.with_targets(task.recipe.template([[[7, 8][:n]] for n in (1, 2, 0, 1)], [4, 3, 2, 1]), stored)
    assert isinstance(made, Batch)
    assert made.samples == (4, 3, 2, 1)
    torch.testing.assert_close(made.values[[0, 1, 3]], torch.tensor([-2.25 / 0.7, 0.0, -5.5 / 0.7]))
    assert made.values[2] > 1e30
    made = task.with_targets(task.recipe.template([[[7, 8]], [[7]]], [0, 1]), stored[:2])
    heads = nn.ModuleDict({"pooled": MeanPooling(), "value": nn.Linear(D, 1)})
    hidden = torch.randn(7, D)
    objective = NumberError(torch.square)
    (term,) = objective(hidden, heads, made)
    found = [heads["value"](rows.mean(0)) for rows in (hidden[:4], hidden[4:])]
    expected = (found[0] + 2.25 / 0.7) ** 2 + found[1] ** 2
    torch.testing.assert_close(term.sum.detach(), expected.squeeze().detach())
    assert (term.name, term.count) == ("value", 2)
    assert objective.counts(made) == {"value": 2}


@pytest.mark.parametrize(
    "delta, error, expected",
    [
        (0.5, 0.0, 0.0),
        (0.5, 0.5, 0.125),
        (0.5, -0.5, 0.125),
        (0.5, 3.0, 0.5 * 2.75),
        (0.5, -3.0, 0.5 * 2.75),
        (2.0, -1.5, 1.125),
        (2.0, 7.0, 12.0),
    ],
)
def test_huber_is_a_parabola_with_straight_ends(delta, error, expected):
    assert Huber(delta)(torch.tensor([error])).tolist() == pytest.approx([expected])


def test_huber_needs_a_place_to_turn():
    with pytest.raises(ValueError, match="delta must be more than 0, got 0"):
        Huber(0.0)


NUMBERS = [-2.0, -1.0, 0.25, 0.5, 9.0]


@pytest.mark.parametrize(
    "penalty, best",
    [
        (torch.square, fmean(NUMBERS)),
        (torch.abs, median(NUMBERS)),
        (Huber(1e4), fmean(NUMBERS)),
        (Huber(1e-4), median(NUMBERS)),
    ],
)
def test_of_equal_texts_the_best_answer_is_the_one_that_is_known(penalty, best):
    """Texts that say nothing: of all answers, that with the least loss is the mean, or the median."""
    answers = torch.linspace(-3, 10, 13_001)
    losses = penalty(answers[:, None] - torch.tensor(NUMBERS)).sum(1)
    assert answers[losses.argmin()].item() == pytest.approx(best, abs=2e-3)

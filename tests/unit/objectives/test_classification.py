"""The class of a sequence: against sums by hand."""

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.nn.pooling import FirstPooling
from heedful.objectives.classification import SequenceClass

D, N_CLASSES = 5, 3


def batch(labels=(2, 0, 1, 2)):
    return Batch.labelled([[[7, 8][:n]] for n in (1, 2, 0, 1)], labels, classify=4, separate=5)


@pytest.fixture
def heads():
    torch.manual_seed(1)
    return nn.ModuleDict({"pooled": FirstPooling(), "class": nn.Linear(D, N_CLASSES)})


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_terms_are_sums_over_sequences(heads, smoothing):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D)
    terms = {term.name: term for term in SequenceClass(smoothing)(hidden, heads, made)}
    loss = correct = 0.0
    for row, label in zip([0, 3, 7, 9], made.classes.tolist(), strict=True):
        log_probs = heads["class"](hidden[row]).log_softmax(-1)
        loss -= (1 - smoothing) * log_probs[label] + smoothing * log_probs.mean()
        correct += int(log_probs.argmax() == label)
    for name, expected in (("class", loss), ("correct", correct)):
        torch.testing.assert_close(terms[name].sum.detach(), torch.as_tensor(expected).float().detach())
        assert terms[name].count == 4
    assert [terms[name].weight for name in ("class", "correct")] == [1.0, 0.0]


def test_counts_are_known_before(heads):
    objective, made = SequenceClass(), batch()
    terms = objective(torch.randn(made.inputs.layout.n_tokens, D), heads, made)
    assert {term.name: term.count for term in terms} == objective.counts(made)


def test_hidden_states_and_both_heads_learn(heads):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D, requires_grad=True)
    SequenceClass()(hidden, heads, made)[0].sum.backward()
    first = [0, 3, 7, 9]
    assert hidden.grad[first].abs().sum(1).gt(0).all()
    assert not hidden.grad[[i for i in range(len(hidden)) if i not in first]].any()
    assert heads["class"].weight.grad.any()


def test_smoothing_is_a_share():
    with pytest.raises(ValueError, match="smoothing"):
        SequenceClass(1.0)

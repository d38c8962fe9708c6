"""Weights of classes: scikit-learn's balanced ones, and torch's weighted sum in the loss."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.objectives.classification import SequenceClass, TokenClass
from heedful.tasks.class_weights import with_class_weights

LABELS = ("bad", "fair", "good")


class Given:
    """Batches with these classes, whichever samples are asked for; of sequences, or of words."""

    def __init__(self, classes, is_tagged=False):
        self.classes, self.is_tagged = classes, is_tagged
        self.lengths = np.ones(len(classes), dtype=np.int64)

    def __call__(self, samples, epoch):
        classes = [self.classes[i] for i in samples]
        if not self.is_tagged:
            return Batch.labelled([[[7, 8]] for _ in samples], classes, classify=1, separate=2)
        batch = Batch.with_special_tokens([[[7]] for _ in samples], classify=1, separate=2)
        return batch.tagged([[1 + tag] for tag in classes])


@given(st.lists(st.integers(0, 2), min_size=1))
def test_balanced_weights_are_those_of_scikit_learn(classes):
    weighted = with_class_weights(Given(classes), "balanced", LABELS, np.array(classes))
    present = np.unique(classes)
    expected = compute_class_weight("balanced", classes=present, y=np.array(classes))
    torch.testing.assert_close(weighted.weights[present], torch.from_numpy(expected).float())
    weights = weighted(range(len(classes)), 0).weights
    torch.testing.assert_close(weights.mean(), torch.tensor(1.0))


@pytest.mark.parametrize("is_tagged", [False, True])
def test_the_loss_is_torchs_weighted_sum_however_it_is_split(is_tagged):
    torch.manual_seed(0)
    classes = [0, 2, 2, 1, 2, 2, 0]
    weighted = with_class_weights(
        Given(classes, is_tagged), {"good": 0.25, "bad": 3.0}, LABELS, np.array(classes)
    )
    logits = torch.randn(len(classes), 3, requires_grad=True)
    expected = functional.cross_entropy(
        logits, torch.tensor(classes), weight=torch.tensor([3.0, 1.0, 0.25]), reduction="sum"
    )
    total = torch.zeros(())
    for part in ([0, 1, 2], [3], [4, 5, 6]):
        batch = weighted(part, 0)
        layout = batch.inputs.layout
        if is_tagged:
            objective, heads = TokenClass(), nn.ModuleDict({"tag": nn.Identity()})
            hidden = torch.zeros(layout.n_tokens, 3).index_copy(0, batch.rows, logits[part])
        else:
            objective, heads = SequenceClass(), nn.ModuleDict({"class": nn.Identity(), "pooled": _First()})
            hidden = torch.zeros(layout.n_tokens, 3).index_copy(0, layout.offsets[:-1], logits[part])
        loss, correct = objective(hidden, heads, batch)
        assert loss.count == correct.count == len(part)
        total = total + loss.sum
    torch.testing.assert_close(total, expected)
    for ours, theirs in zip(*(torch.autograd.grad(x, logits) for x in (total, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)


class _First(nn.Module):
    def forward(self, hidden, layout):
        return hidden[layout.offsets[:-1]]


def test_without_weights_batches_are_as_before():
    batches = Given([0, 1])
    assert with_class_weights(batches, None, LABELS, np.array([0, 1])) is batches
    assert batches([0], 0).weights is None


def test_a_weight_for_an_unknown_label_is_refused():
    with pytest.raises(RequestError, match=r"class_weights: unknown label 'god' \(did you mean 'good'\?\)"):
        with_class_weights(Given([0]), {"god": 2.0}, LABELS, np.array([0]))

"""Counts of classes: any split into batches gives scikit-learn's macro F1."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch import nn

from heedful.errors import RequestError
from heedful.tasks.class_counts import MACRO_F1, ClassCounts

N_CLASSES = 5
PAIRS = st.lists(st.tuples(st.integers(0, N_CLASSES - 1), st.integers(0, N_CLASSES - 1)), min_size=1)


def counts_of(head):
    """Counts over "batches" that are pairs of logits and targets."""
    return ClassCounts(head, lambda batch: batch[1], N_CLASSES)


@pytest.mark.slow
@given(batches=st.lists(PAIRS, min_size=1, max_size=3))
def test_macro_f1_is_that_of_all_batches_together(batches):
    head, pairs = nn.Identity(), [pair for batch in batches for pair in batch]
    counts = counts_of(head)
    tensors = [torch.tensor(batch).T for batch in batches]
    data = [(10.0 * nn.functional.one_hot(predicted, N_CLASSES), targets) for predicted, targets in tensors]
    for _ in range(2):  # every validation begins at zero
        with counts.counting(data) as counted:
            for logits, _ in counted:
                head(logits)
        predicted, targets = zip(*pairs, strict=True)
        assert counts.metrics() == {MACRO_F1: pytest.approx(f1_score(targets, predicted, average="macro"))}


def test_nothing_is_counted_outside_of_a_validation():
    head = nn.Identity()
    counts = counts_of(head)
    with counts.counting([(torch.eye(N_CLASSES), torch.arange(N_CLASSES))]) as counted:
        for logits, _ in counted:
            head(logits)
    head(torch.eye(N_CLASSES).flip(0))
    assert counts.metrics() == {MACRO_F1: 1.0}


def test_a_loss_that_does_not_use_the_head_is_refused():
    counts = counts_of(nn.Identity())
    with counts.counting([(torch.eye(N_CLASSES), torch.arange(N_CLASSES))]) as counted:
        list(counted)
    with pytest.raises(RequestError, match=r"training\.metric=macro-f1: the loss does not apply"):
        counts.metrics()

"""Where an answer begins and ends: against a loop over sequences."""

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.objectives.classification import AnswerSpan, answer_log_probs

D = 5
# <cls> 7 <sep> 8 9 10 <sep>; <cls> 7 11 <sep> 12 <sep>
ANSWERS = [(3, 5), None]


def batch():
    parts = [([7], [8, 9, 10]), ([7, 11], [12])]
    return Batch.with_special_tokens(parts, classify=4, separate=5).answered(ANSWERS)


@pytest.fixture
def heads():
    torch.manual_seed(1)
    return nn.ModuleDict({"answer": nn.Linear(D, 2)})


def test_the_batch_has_places_of_all_tokens():
    made = batch()
    assert made.inputs.split() == [[4, 7, 5, 8, 9, 10, 5], [4, 7, 11, 5, 12, 5]]
    assert made.inputs.segments.tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert made.answers.tolist() == [[3, 5], [7, 7]]
    assert made.to("cpu").answers.tolist() == [[3, 5], [7, 7]]


def test_terms_are_sums_over_sequences(heads):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D)
    terms = {term.name: term for term in AnswerSpan()(hidden, heads, made)}
    loss = correct = 0.0
    for rows, (start, end) in ((hidden[:7], (3, 5)), (hidden[7:], (0, 0))):
        begins, ends = heads["answer"](rows).log_softmax(0).unbind(-1)
        loss -= (begins[start] + ends[end]) / 2
        correct += int(begins.argmax() == start and ends.argmax() == end)
    torch.testing.assert_close(terms["answer"].sum.detach(), loss.detach())
    assert terms["correct"].sum == correct
    assert {n: t.count for n, t in terms.items()} == AnswerSpan().counts(made) == {"answer": 2, "correct": 2}


def test_both_ends_must_be_right(heads):
    made = batch()
    wanted = torch.zeros(13, 2)
    wanted[[3, 7], 0] = wanted[[5, 7], 1] = 9.0
    head = nn.ModuleDict({"answer": nn.Identity()})
    assert AnswerSpan()(wanted, head, made)[1].sum == 2
    wanted[4, 1] = 10.0
    assert AnswerSpan()(wanted, head, made)[1].sum == 1


def test_another_sequence_and_the_end_of_a_shorter_one_change_nothing(heads):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D, requires_grad=True)
    log_probs = answer_log_probs(hidden, heads, made.inputs.layout)
    assert log_probs.shape == (2, 7, 2)
    assert (log_probs[1, 6] == float("-inf")).all()
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(2, 2))
    log_probs[1, :6].sum().backward()
    assert (hidden.grad[:7] == 0).all()
    assert hidden.grad[7:].isfinite().all()

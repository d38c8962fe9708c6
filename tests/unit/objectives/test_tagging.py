"""The tag of a word: against sums by hand."""

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.objectives.classification import TokenClass

D, N_TAGS = 5, 3
# Places in [T]: 0 <cls> 1 2 3 <sep> 4, then 5 <cls> 6 <sep> 7, then 8 <cls> <sep> 9.
MARKS = [[3, 0, 1], [2], []]
PLACES, TAGS = [1, 3, 6], [2, 0, 1]


def batch():
    texts = [[7, 8, 9], [10], []]
    framed = Batch.with_special_tokens([[text] for text in texts], classify=4, separate=5, samples=[3, 1, 2])
    return framed.tagged(MARKS)


@pytest.fixture
def heads():
    torch.manual_seed(1)
    return nn.ModuleDict({"tag": nn.Linear(D, N_TAGS)})


def test_the_batch_asks_where_words_begin():
    made = batch()
    assert made.inputs.split() == [[4, 7, 8, 9, 5], [4, 10, 5], [4, 5]]
    assert (made.rows.tolist(), made.targets.tolist()) == (PLACES, TAGS)
    assert (made.samples, made.n_answers) == ((3, 1, 2), (2, 1, 0))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_terms_are_sums_over_words(heads, smoothing):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D)
    objective = TokenClass(smoothing)
    terms = {term.name: term for term in objective(hidden, heads, made)}
    loss = correct = 0.0
    for place, tag in zip(PLACES, TAGS, strict=True):
        log_probs = heads["tag"](hidden[place]).log_softmax(-1)
        loss -= (1 - smoothing) * log_probs[tag] + smoothing * log_probs.mean()
        correct += int(log_probs.argmax() == tag)
    torch.testing.assert_close(terms["tag"].sum.detach(), loss.detach())
    assert terms["correct"].sum == correct
    assert (
        {name: term.count for name, term in terms.items()}
        == objective.counts(made)
        == {"tag": 3, "correct": 3}
    )
    assert (terms["tag"].weight, terms["correct"].weight) == (1.0, 0.0)


def test_only_first_tokens_learn_from_their_tags(heads):
    made = batch()
    hidden = torch.randn(made.inputs.layout.n_tokens, D, requires_grad=True)
    TokenClass()(hidden, heads, made)[0].sum.backward()
    assert hidden.grad.abs().sum(1).nonzero().flatten().tolist() == PLACES


def test_a_smoothing_of_all_is_refused():
    with pytest.raises(ValueError, match="smoothing"):
        TokenClass(1.0)

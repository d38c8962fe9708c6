"""The laws, for objectives: terms are sums over samples, counted before, of what is asked for alone."""

import torch
from cases import (
    COUPLED_OBJECTIVES,
    OBJECTIVES,
    D,
    every_additive_objective,
    every_coupled_objective,
    every_objective,
    same,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NAN = float("nan")
SAMPLES = range(4)


def case(name, rows=SAMPLES):
    """The objective, its heads, a batch of these samples, and hidden states, the same for it anywhere."""
    torch.manual_seed(5)
    minimised = OBJECTIVES[name]
    objective, heads, batch = minimised.make(), minimised.heads(), minimised.batch(rows)
    # A sample may have several sequences: then come the first of all samples, the second, and so on.
    states = [
        torch.randn(
            n, D, generator=torch.Generator().manual_seed(rows[i % len(rows)] + 10 * (i // len(rows)))
        )
        for i, n in enumerate(batch.inputs.layout.lengths)
    ]
    return objective, heads, batch, torch.cat([*states, torch.zeros(0, D)])


def loss_and_gradients(name, rows=SAMPLES):
    """Of the sum that is minimised: by hidden states, then by parameters of heads."""
    objective, heads, batch, hidden = case(name, rows)
    hidden.requires_grad_()
    loss = sum(term.weight * term.sum for term in objective(hidden, heads, batch) if term.weight)
    inputs = [hidden, *heads.parameters()]
    return loss.detach(), torch.autograd.grad(loss, inputs, materialize_grads=True)


@every_objective
def test_counts_are_known_before_the_forward_pass(name):
    objective, heads, batch, hidden = case(name)
    terms = objective(hidden, heads, batch)
    assert {term.name: term.count for term in terms} == objective.counts(batch)
    assert len({term.name for term in terms}) == len(terms)
    assert any(term.weight for term in terms)


@every_additive_objective
@settings(max_examples=5, deadline=None)
@given(order=st.permutations(SAMPLES), cut=st.integers(0, 3))
def test_terms_are_sums_over_samples_in_any_order(name, order, cut):
    def terms(rows):
        objective, heads, batch, hidden = case(name, rows)
        return objective(hidden, heads, batch)

    parts = [terms(order[:cut]), terms(order[cut:])] if cut else [terms(order)]
    for whole, *pieces in zip(terms(SAMPLES), *parts, strict=True):
        same(sum(piece.sum.detach() for piece in pieces), whole.sum.detach())
        assert sum(piece.count for piece in pieces) == whole.count


@every_additive_objective
def test_gradients_are_sums_over_samples(name):
    loss, (hidden, *heads) = loss_and_gradients(name)
    single = [loss_and_gradients(name, [row]) for row in SAMPLES]
    same(sum(each for each, _ in single), loss)
    same(torch.cat([gradients[0] for _, gradients in single]), hidden)
    for i, whole in enumerate(heads, 1):
        same(sum(gradients[i] for _, gradients in single), whole)


@every_objective
def test_hidden_states_that_are_not_asked_for_change_nothing(name):
    """Those that have no gradient may hold anything."""
    objective, heads, batch, hidden = case(name)
    _, (gradient, *_) = loss_and_gradients(name)
    unread = ~gradient.any(1)
    clean = objective(hidden, heads, batch)
    hidden[unread] = NAN
    for after, before in zip(objective(hidden, heads, batch), clean, strict=True):
        assert torch.equal(after.sum, before.sum)
    # What the batch asks for is read.
    asked = torch.ones(len(hidden), dtype=torch.bool) if batch.rows is None else torch.zeros(len(hidden)) > 0
    if batch.rows is not None:
        asked[batch.rows] = True
    assert not (asked & unread).any()


@every_objective
def test_what_is_only_reported_is_not_minimised(name):
    objective, heads, batch, hidden = case(name)
    for term in objective(hidden.requires_grad_(), heads, batch):
        assert term.sum.requires_grad == bool(term.weight)


@every_objective
def test_every_head_learns(name):
    """From some sample: of several, absolute errors may pull a bias up as often as down.

    A contrast needs several.
    """
    _, heads, _, _ = case(name)
    groups = [SAMPLES] if name in COUPLED_OBJECTIVES else [[row] for row in SAMPLES]
    single = [loss_and_gradients(name, rows)[1][1:] for rows in groups]
    for (parameter, _), *gradients in zip(heads.named_parameters(), *single, strict=True):
        assert any(gradient.any() for gradient in gradients), parameter


@every_objective
def test_of_nothing_all_terms_are_zero(name):
    objective, heads, batch, hidden = case(name, [])
    terms = objective(hidden, heads, batch)
    assert [(term.count, term.sum.item()) for term in terms] == [(0, 0.0)] * len(terms)


# Objectives that couple the samples of a batch ------------------------------------------------------------


def sums(name, rows):
    objective, heads, batch, hidden = case(name, rows)
    return {term.name: term.sum.detach() for term in objective(hidden, heads, batch)}


def test_only_contrasts_couple_the_samples_of_a_batch():
    assert [name for name in OBJECTIVES if name.startswith("contrast")] == COUPLED_OBJECTIVES


@every_coupled_objective
@settings(max_examples=5, deadline=None)
@given(order=st.permutations(SAMPLES), cut=st.integers(1, 3))
def test_of_coupled_samples_the_order_does_not_matter_and_more_make_the_loss_greater(name, order, cut):
    """So accumulated parts have a smaller loss than one batch: the exemption is needed."""
    whole, parts = sums(name, SAMPLES), [sums(name, order[:cut]), sums(name, order[cut:])]
    same(sums(name, order)["contrast"], whole["contrast"])
    assert sum(part["contrast"] for part in parts) < whole["contrast"]
    assert sum(part["correct"] for part in parts) >= whole["correct"]


@every_coupled_objective
def test_of_coupled_samples_one_alone_has_no_in_batch_negatives(name):
    for row in SAMPLES:
        alone = sums(name, [row])["contrast"].item()
        assert (alone > 0) if "hard" in name else (alone == 0)

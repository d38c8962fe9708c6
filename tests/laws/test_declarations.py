"""What holds where a part declares that it cannot keep a law."""

from collections import Counter

import pytest
import torch
from cases import (
    MIXERS,
    MODELS,
    SOURCES,
    TARGETS,
    batch_for,
    configuration,
    hidden_of,
    keeping,
    layers_of,
    mixer_of,
    model_of,
    same,
    tokens_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.declarations import DECLARATIONS, declared
from heedful.nn.experts import MixtureOfExperts, NoisyTopKGate
from heedful.nn.layout import Layout
from heedful.nn.taps import recording, taps
from heedful.objectives.cross_entropy import NextToken
from heedful.objectives.terms import total
from heedful.training.model_with_loss import ModelWithLoss

LAYERS = {name: layers_of(configuration(name)) for name in MODELS}
COUPLED = [name for name in MODELS if name not in keeping("couples_batch")]
AHEAD = [name for name in MIXERS if "non_causal" in declared(mixer_of(name))]


def test_only_norms_over_the_batch_couple_it():
    over_batch = {"batch", "power"}
    assert [name for name in MODELS if {layer.norm.kind for layer in LAYERS[name]} & over_batch] == COUPLED


def test_every_declaration_is_made_by_some_case():
    assert {d for name in MODELS for d in declared(model_of(name))} == DECLARATIONS.keys()


# couples_batch --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in COUPLED if name != "power norm"])
def test_in_training_the_other_sequences_change_what_a_sequence_becomes(name):
    """The exemption is needed."""
    together = hidden_of(model_of(name).train(), SOURCES, TARGETS)
    alone = hidden_of(model_of(name).train(), SOURCES[:1], TARGETS[:1])
    assert (together[0] - alone[0]).abs().max() > 1e-2


@pytest.mark.parametrize("name", COUPLED)
@settings(max_examples=4, deadline=None)
@given(order=st.permutations(range(3)))
def test_in_training_a_batch_may_still_be_packed_in_any_order(name, order):
    straight = hidden_of(model_of(name).train(), SOURCES, TARGETS)
    moved = hidden_of(model_of(name).train(), [SOURCES[i] for i in order], [TARGETS[i] for i in order])
    same(moved, [straight[i] for i in order])


@pytest.mark.parametrize("name", COUPLED)
def test_in_training_the_statistics_do_not_depend_on_the_order_either(name):
    kept = []
    for order in ([0, 1, 2], [2, 0, 1]):
        model = model_of(name).train()
        hidden = hidden_of(model, [SOURCES[i] for i in order], [TARGETS[i] for i in order])
        torch.cat(hidden).square().mean().backward()
        kept.append([b for b in model.buffers() if b.is_floating_point()])
    same(*kept)


@pytest.mark.parametrize("name", COUPLED)
def test_in_evaluation_a_model_leaves_its_statistics_alone(name):
    model = model_of(name)
    before = [b.clone() for b in model.buffers()]
    torch.cat(hidden_of(model, SOURCES, TARGETS)).sum().backward()
    for now, then in zip(model.buffers(), before, strict=True):
        assert torch.equal(now, then)


def test_after_its_warm_up_power_norm_reads_statistics_of_earlier_batches_alone():
    """So training equals evaluation in the forward pass; the batch acts on what comes after it."""
    model = model_of("power norm")
    evaluated = hidden_of(model, SOURCES, TARGETS)
    same(hidden_of(model.train(), SOURCES, TARGETS), evaluated)
    again = hidden_of(model.eval(), SOURCES, TARGETS)
    assert (again[0] - evaluated[0]).abs().max() > 1e-3


# draws_noise, balances_batch, may_idle --------------------------------------------------------------------

NOISY = [name for name in MODELS if name not in keeping("draws_noise")]
BALANCED = [name for name in MODELS if name not in keeping("balances_batch")]


def test_only_experts_draw_noise_balance_and_idle():
    gates = {
        name: {layer.channels.gate for layer in layers if layer.channels.kind == "experts"}
        for name, layers in LAYERS.items()
    }
    experts = [name for name in MODELS if gates[name]]
    assert experts == BALANCED == [name for name in MODELS if name not in keeping("may_idle")]
    assert [name for name in experts if gates[name] != {"top-k"}] == NOISY


@pytest.mark.parametrize("name", NOISY)
def test_in_training_noise_changes_what_a_sequence_becomes_and_follows_the_seed(name):
    """The exemption is needed; the same seed gives the same noise."""
    model = model_of(name).train()
    torch.manual_seed(1)
    once = hidden_of(model, SOURCES, TARGETS)
    other = hidden_of(model, SOURCES, TARGETS)
    assert max((a - b).abs().max() for a, b in zip(once, other)) > 1e-2
    torch.manual_seed(1)
    same(hidden_of(model, SOURCES, TARGETS), once)


@pytest.mark.parametrize("name", NOISY)
def test_without_the_noise_training_equals_evaluation(name, monkeypatch):
    model = model_of(name)
    evaluated = hidden_of(model, SOURCES, TARGETS)
    monkeypatch.setattr(NoisyTopKGate, "draw", lambda self, like: torch.zeros_like(like))
    same(hidden_of(model.train(), SOURCES, TARGETS), evaluated)


def updates(name, parts, without):
    """Gradients of one update in these micro-batches, of all terms but some."""
    model = model_of(name).train()
    step, batches = (
        ModelWithLoss(model, NextToken(smoothing=0.1)),
        [batch_for(model, *zip(*p)) for p in parts],
    )
    counts = Counter()
    for batch in batches:
        counts.update(step.counts(batch))
    terms = [t for batch in batches for t in step._terms(batch, None) if t.name not in without]
    total(terms, counts).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("name", BALANCED)
def test_accumulated_micro_batches_equal_one_large_step_in_all_terms_but_the_balance(name, monkeypatch):
    monkeypatch.setattr(NoisyTopKGate, "draw", lambda self, like: torch.zeros_like(like))
    pairs = list(zip(SOURCES, TARGETS))
    parts = [pairs[:1], pairs[1:]]
    balance = ("importance", "load")
    same(updates(name, parts, balance), updates(name, [pairs], balance))
    apart = zip(updates(name, parts, ()), updates(name, [pairs], ()))
    assert max((a - b).abs().max() for a, b in apart) > 1e-3


@pytest.mark.parametrize("name", BALANCED)
def test_an_expert_that_no_token_reached_has_a_gradient_of_zero(name):
    model = model_of(name)
    mixtures = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    gates = [name for name in taps(model) if name.endswith(".gate.gates")]
    with recording(model, gates) as seen:
        torch.cat(hidden_of(model, SOURCES[:1], [TARGETS[2]])).square().sum().backward()
    for part, values in zip(mixtures, seen.values(), strict=True):
        reached = (torch.cat(values) > 0).any(0).nonzero().flatten().tolist()
        assert 0 < len(reached) < len(part.experts)
        for i, expert in enumerate(part.experts):
            assert any(bool(p.grad.any()) for p in expert.parameters()) == (i in reached)


# non_causal ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AHEAD)
def test_a_mixer_that_reads_ahead_still_keeps_to_its_own_sequence(name):
    mixer, lengths = mixer_of(name), [4, 0, 3, 5]
    x = tokens_of(lengths).requires_grad_()
    mixed = mixer(x, Layout.of(lengths)).split(lengths)
    for own, rows in ((mixed[0], slice(0, 4)), (mixed[2], slice(4, 7)), (mixed[3], slice(7, 12))):
        (grad,) = torch.autograd.grad(own.square().sum(), x, retain_graph=True)
        assert grad[rows].any(-1).all()
        grad[rows] = 0
        assert not grad.any()

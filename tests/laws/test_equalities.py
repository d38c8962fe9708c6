"""Law 3: however the same tokens are computed, the same numbers come out."""

from unittest import mock

import pytest
import torch
from cases import (
    D_MEMORY,
    KEY_LENGTHS,
    LENGTHS,
    MODELS,
    SOURCES,
    TARGETS,
    cross_of,
    every_cross_and_kernel,
    every_mixer,
    every_mixer_and_kernel,
    every_model,
    every_model_and_kernel,
    hidden_of,
    keeping,
    mixer_of,
    model_of,
    same,
    tokens_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.attention import kernels
from heedful.nn.attention.heads import MultiHead
from heedful.nn.declarations import declared
from heedful.nn.layout import Layout
from heedful.nn.taps import recording

# Batched and single, in any order -------------------------------------------------------------------------


@every_model_and_kernel
def test_batched_equals_single(name, kernel):
    model = model_of(name)
    together = hidden_of(model, SOURCES, TARGETS)
    for source, target, hidden in zip(SOURCES, TARGETS, together, strict=True):
        same(hidden_of(model, [source], [target]), [hidden])


@every_model
@settings(max_examples=3, deadline=None)
@given(order=st.permutations(range(3)))
def test_packed_in_any_order_equals_any_other(name, order):
    model = model_of(name)
    straight = hidden_of(model, SOURCES, TARGETS)
    moved = hidden_of(model, [SOURCES[i] for i in order], [TARGETS[i] for i in order])
    same(moved, [straight[i] for i in order])


@every_mixer_and_kernel
def test_batched_equals_single_in_a_mixer(name, kernel):
    mixer, x = mixer_of(name), tokens_of(LENGTHS)
    together = mixer(x, Layout.of(LENGTHS)).split(LENGTHS)
    for tokens, mixed in zip(x.split(LENGTHS), together, strict=True):
        same(mixer(tokens, Layout.of([len(tokens)])), mixed)


@every_mixer
@settings(max_examples=5, deadline=None)
@given(order=st.permutations(range(5)))
def test_packed_in_any_order_equals_any_other_in_a_mixer(name, order):
    mixer, parts = mixer_of(name), tokens_of(LENGTHS).split(LENGTHS)
    straight = mixer(torch.cat(parts), Layout.of(LENGTHS)).split(LENGTHS)
    lengths = [LENGTHS[i] for i in order]
    moved = mixer(torch.cat([parts[i] for i in order]), Layout.of(lengths)).split(lengths)
    same(list(moved), [straight[i] for i in order])


@every_cross_and_kernel
def test_batched_equals_single_in_cross_attention(name, kernel):
    cross, layout, keys = cross_of(name), Layout.of(LENGTHS), Layout.of(KEY_LENGTHS)
    x, y = tokens_of(LENGTHS), tokens_of(KEY_LENGTHS, D_MEMORY)
    together = cross(x, layout, cross.make_memory(y, keys)).split(LENGTHS)
    for tokens, source, mixed in zip(x.split(LENGTHS), y.split(KEY_LENGTHS), together, strict=True):
        memory = cross.make_memory(source, Layout.of([len(source)]))
        same(cross(tokens, Layout.of([len(tokens)]), memory), mixed)


@every_cross_and_kernel
def test_several_sequences_that_share_a_sentence_equal_sentences_of_their_own(name, kernel):
    cross = cross_of(name)
    x, y = tokens_of([2, 3, 0, 1, 5, 4]), tokens_of([7, 3], D_MEMORY)
    shared = cross(x, Layout.of([2, 3, 0, 1, 5, 4]), cross.make_memory(y, Layout.of([7, 3])))
    copied = torch.cat([y[:7]] * 3 + [y[7:]] * 3)
    memory = cross.make_memory(copied, Layout.of([7, 7, 7, 3, 3, 3]))
    same(shared, cross(x, Layout.of([2, 3, 0, 1, 5, 4]), memory))


# Kernels --------------------------------------------------------------------------------------------------


def attention_parts(module):
    return {n: m for n, m in module.named_modules() if isinstance(m, MultiHead)}


def outputs_and_gradients(model):
    x = torch.cat(hidden_of(model, SOURCES, TARGETS))
    return x, torch.autograd.grad(x.square().mean(), [p for p in model.parameters() if p.dim() > 1][:3])


@pytest.mark.parametrize("name", [n for n, case in MODELS.items() if case["kind"] != "recurrent"])
def test_the_fused_kernel_equals_the_explicit_path(name, monkeypatch):
    """Short sequences would take the explicit path on a CPU anyway, so the bound is lowered here.

    Batch statistics divide by deviations that may be small, and magnify the rounding of fp32 by as much, on
    some instruction sets beyond the tolerance: such models are compared in fp64.
    """
    monkeypatch.setattr(kernels, "CPU_SDPA_FROM", 0)
    model = model_of(name)
    model = model.double() if "couples_batch" in declared(model) else model
    attentions = attention_parts(model)
    products = [a for a in attentions.values() if a.score.product_scale(a.d_k) is not None]
    with mock.patch.object(kernels, "_sdpa", wraps=kernels._sdpa) as fused:
        fast = outputs_and_gradients(model)
        assert fused.call_count == len(products)
        with recording(model, [f"{name}.weights" for name in attentions]) as weights:
            explicit = outputs_and_gradients(model)
        assert fused.call_count == len(products)
    assert all(len(tensors) == 1 for tensors in weights.values())
    same(fast, explicit)


# Modes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", keeping("couples_batch", "draws_noise"))
def test_training_mode_without_dropout_equals_evaluation_mode(name):
    model = model_of(name)
    evaluated = hidden_of(model, SOURCES, TARGETS)
    same(hidden_of(model.train(), SOURCES, TARGETS), evaluated)

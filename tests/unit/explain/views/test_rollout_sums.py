"""Rollout and rollout across an encoder and a decoder: laws, and small cases by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import RequestError
from heedful.explain.attention_map import AttentionMap
from heedful.explain.explanation import Explanation
from heedful.explain.views.rollout import rollout, rollout_across, rollouts
from heedful.tasks.model_input import Axis

H, T, S, L = 3, 7, 5, 4


def attention(shape, seed=0, causal=False):
    """Random weights whose rows sum to 1."""
    rng = np.random.default_rng(seed)
    weights = rng.random(shape) ** 3
    if causal:
        weights = np.tril(weights)
    return weights / weights.sum(axis=-1, keepdims=True)


def layers(seed=0, causal=False, n=L):
    return [attention((H, T, T), seed + layer, causal) for layer in range(n)]


# Rollout


def test_rollout_is_the_product_written_out():
    """Two tokens, one head, two layers, by hand."""
    first = [[[1.0, 0.0], [0.5, 0.5]]]
    second = [[[0.2, 0.8], [1.0, 0.0]]]
    # A_1 = [[1, 0], [1/4, 3/4]], A_2 = [[0.6, 0.4], [0.5, 0.5]]
    wanted = [[0.6 + 0.1, 0.3], [0.5 + 0.125, 0.375]]
    np.testing.assert_allclose(rollout([first, second]), wanted, rtol=1e-12)


def test_heads_become_their_mean():
    heads = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.3, 0.7], [0.1, 0.9]]])
    mean = np.array([[0.6, 0.4], [0.3, 0.7]])
    np.testing.assert_allclose(rollout([heads]), np.eye(2) / 2 + mean / 2, rtol=1e-12)
    np.testing.assert_allclose(rollout([heads], residual=0), mean, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@given(seed=st.integers(0, 1000), residual=st.floats(0, 1))
@settings(max_examples=20)
def test_rows_of_a_rollout_sum_to_one_and_what_is_hidden_stays_so(causal, seed, residual):
    found = rollout(layers(seed, causal), residual=residual)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)
    assert (found >= 0).all()
    if causal:
        np.testing.assert_array_equal(found, np.tril(found))


def test_the_rollout_of_identities_is_the_identity():
    np.testing.assert_allclose(rollout([np.broadcast_to(np.eye(T), (H, T, T))] * L), np.eye(T))
    np.testing.assert_array_equal(rollout(layers(), residual=1), np.eye(T))


def test_the_rollout_of_even_attention_is_even_but_for_the_residual():
    even = [np.full((H, T, T), 1 / T)] * L
    np.testing.assert_allclose(rollout(even, residual=0), np.full((T, T), 1 / T))
    # Of each token a share r^L stays, whatever way the rest went.
    wanted = 0.5**L * np.eye(T) + (1 - 0.5**L) / T
    np.testing.assert_allclose(rollout(even), wanted)


@given(cut=st.integers(1, L - 1), seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_stacks_one_above_the_other_multiply(cut, seed):
    whole = layers(seed)
    upper, lower = rollout(whole[cut:]), rollout(whole[:cut])
    np.testing.assert_allclose(rollout(whole), upper @ lower, rtol=1e-9)
    assert not np.allclose(rollout(whole), lower @ upper)


def test_heads_have_no_order_and_layers_have_one():
    whole = layers()
    np.testing.assert_allclose(rollout([layer[::-1] for layer in whole]), rollout(whole), rtol=1e-12)
    assert not np.allclose(rollout(whole[::-1]), rollout(whole))


def test_where_a_token_sees_nothing_all_of_it_goes_past():
    weights = attention((H, T, T))
    weights[:, 2] = 0
    found = rollout([weights])
    np.testing.assert_array_equal(found[2], np.eye(T)[2])
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("given_", "options"),
    [
        ([], {}),
        ([np.ones((T, T))], {}),
        ([np.ones((H, T, S))], {}),
        (layers(), {"residual": 1.1}),
        (layers(), {"residual": float("nan")}),
    ],
)
def test_what_is_no_stack_is_refused(given_, options):
    with pytest.raises(ValueError):
        rollout(given_, **options)


# Across an encoder and a decoder


def crossing(seed=0):
    return [attention((H, T, S), 100 + seed + layer) for layer in range(L)]


def encoder(seed=0):
    return rollout([attention((H, S, S), 200 + seed + layer) for layer in range(L)])


@given(seed=st.integers(0, 1000), residual=st.floats(0, 1))
@settings(max_examples=20)
def test_across_is_a_rollout_over_both_sides_joined(seed, residual):
    """One stack over target and source together, whose source rows are kept as the encoder left them."""

    def normal(weights):
        one = weights.mean(axis=0)
        return one / one.sum(axis=1, keepdims=True)

    own, cross, source = layers(seed, causal=True), crossing(seed), encoder(seed)
    joined = np.eye(T + S)
    joined[T:, T:] = source
    for to_own, to_source in zip(own, cross, strict=True):
        first, second = np.eye(T + S), np.eye(T + S)
        first[:T, :T] = residual * np.eye(T) + (1 - residual) * normal(to_own)
        second[:T, :T] = residual * np.eye(T)
        second[:T, T:] = (1 - residual) * normal(to_source)
        joined = second @ first @ joined
    target, across = rollout_across(own, cross, source, residual=residual)
    np.testing.assert_allclose(target, joined[:T, :T], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(across, joined[:T, T:], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(target.sum(axis=1) + across.sum(axis=1), 1, rtol=1e-9)


def test_a_decoder_that_sees_no_source_is_a_rollout_of_its_own():
    target, across = rollout_across(layers(), [np.zeros((H, T, S))] * L, encoder())
    np.testing.assert_allclose(target, rollout(layers()))
    np.testing.assert_array_equal(across, 0)


def test_layers_of_a_decoder_come_in_pairs():
    with pytest.raises(ValueError, match="same number of layers, at least 1; got 4 and 3"):
        rollout_across(layers(), crossing()[1:], encoder())
    with pytest.raises(ValueError):
        rollout_across([], [], encoder())


def side(n):
    return Axis(tuple(f"{i}" for i in range(n)))


def maps(kind, queries, keys, weights):
    return [
        AttentionMap(
            f"{queries}.{keys}.{layer}", kind, layer, queries, keys, tuple(range(H)), w.astype(np.float32)
        )
        for layer, w in enumerate(weights)
    ]


def explanation(*found, **sides):
    return Explanation("t", "r", None, {}, sides, [each for group in found for each in group])


@pytest.mark.parametrize(("kind", "causal"), [("self", False), ("causal", True)])
def test_of_a_stack_alone(kind, causal):
    one = explanation(maps(kind, "input", "input", layers(causal=causal)), input=side(T))
    assert rollouts(one).keys() == {("input", "input")}
    wanted = rollout([m.weights for m in one.maps], residual=0.3)
    found = rollouts(one, residual=0.3)["input", "input"]
    np.testing.assert_array_equal(found, wanted)


def test_of_an_encoder_and_a_decoder():
    own = maps("self", "source", "source", [attention((H, S, S), layer) for layer in range(2)])
    causal = maps("causal", "target", "target", layers(causal=True))
    cross = maps("cross", "target", "source", crossing())
    # Layers may stand in any order.
    found = rollouts(explanation(causal[::-1], own, cross, source=side(S), target=side(T)))
    source = rollout([m.weights for m in own])
    target, across = rollout_across([m.weights for m in causal], [m.weights for m in cross], source)
    assert found.keys() == {("source", "source"), ("target", "target"), ("target", "source")}
    np.testing.assert_array_equal(found["source", "source"], source)
    np.testing.assert_array_equal(found["target", "target"], target)
    np.testing.assert_array_equal(found["target", "source"], across)


def test_where_the_encoder_does_not_attend_there_is_none():
    causal = maps("causal", "target", "target", layers(causal=True))
    cross = maps("cross", "target", "source", crossing())
    sides = {"source": side(S), "target": side(T)}
    for found in ([causal, cross], [cross], []):
        with pytest.raises(RequestError, match="self-attention in every layer"):
            rollouts(explanation(*found, **sides))


def test_a_layer_or_head_that_is_missing_is_named():
    stack = maps("self", "input", "input", layers())
    with pytest.raises(RequestError, match="layer 2 is incomplete"):
        rollouts(explanation([stack[0], *stack[2:]], input=side(T)))
    weights = stack[0].weights[1:]
    short = AttentionMap("t", "self", 0, "input", "input", (1, 2), weights)
    with pytest.raises(RequestError, match="layer 1 is incomplete"):
        rollouts(explanation([short, *stack[1:]], input=side(T)))

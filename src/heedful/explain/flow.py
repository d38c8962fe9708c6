"""Aggregate attention over layers (rollout) and over distances.

Pure functions on arrays with H heads, Q queries and K keys, and on an `Explanation`, in fp64.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.matrix import Numbers as Numbers  # for the lab
from heedful.explain.view import Explanation, Map
from heedful.tasks.model_input import PREFIX, TARGET

# Rollout


def rollout(layers: Sequence[Any], *, residual: float = 0.5) -> Numbers:
    """Compute how much each output token of a stack receives from each input token through attention.

    ``R = A_L ... A_2 A_1`` with ``A_l = r I + (1 - r) W_l`` (Abnar & Zuidema 2020, section 3, with r = 1/2
    for the residual connection), where W_l is the mean over the heads of layer l. Rows sum to 1; entries
    hidden by a causal mask stay 0. For two stacks in sequence, ``rollout(a + b) = rollout(b) @ rollout(a)``.

    Rollout uses attention weights only; it ignores values, feed-forward layers, norms, and the signs of what
    is added.

    Args:
        layers: ``[H, T, T]`` for each layer, from the first to the last.
        residual: r, the share of the residual connection.

    Returns:
        ``[T, T]``: row i contains the shares of the input tokens in output token i.

    Raises:
        ValueError: there are no layers, a shape is wrong, or the share is not between 0 and 1.
    """
    if not layers:
        raise ValueError("rollout needs at least one layer, got none")
    found: Numbers | None = None
    for weights in layers:
        step = _step(weights, residual)
        found = step if found is None else step @ found
    assert found is not None
    return found


def rollout_across(
    own: Sequence[Any],
    cross: Sequence[Any],
    source: Any,
    *,
    residual: float = 0.5,
) -> tuple[Numbers, Numbers]:
    """Compute rollout through a decoder whose layers have self-attention, then cross-attention to a source.

    The paper defines rollout for encoders only. Here each of the two attentions of a layer replaces a share
    1 - r of its input, because each has its own residual connection. Let [X, Y] be the shares of the target's
    and the source's input tokens, initially [I, 0]. Each layer computes::

        [X, Y] <- (r I + (1 - r) W_own) [X, Y],   then   [X, Y] <- r [X, Y] + (1 - r) W_cross [0, R_source]

    Args:
        own: self-attention ``[H, T, T]`` of each layer.
        cross: cross-attention ``[H, T, S]`` of each layer.
        source: ``[S, N]``, the rollout of the encoder.
        residual: r.

    Returns:
        X ``[T, T]`` and Y ``[T, N]``; row i of both together sums to 1.

    Raises:
        ValueError: the numbers of layers differ, a shape is wrong, or the share is not between 0 and 1.
    """
    if len(own) != len(cross) or not own:
        raise ValueError(
            f"own and cross must have the same number of layers, at least 1; got {len(own)} and {len(cross)}"
        )
    source = np.asarray(source, dtype=float)
    size = np.shape(own[0])[-1]
    target, across = np.eye(size), np.zeros((size, source.shape[1]))
    for to_own, to_source in zip(own, cross, strict=True):
        step = _step(to_own, residual)
        target, across = step @ target, step @ across
        combined = _combined(to_source)
        past = _past(combined, residual)
        target, across = past * target, past * across + (1 - past) * (combined @ source)
    return target, across


def rollouts(explanation: Explanation, *, residual: float = 0.5) -> dict[tuple[str, str], Numbers]:
    """Return all rollouts defined for an explanation, by the names of the axes of queries and keys.

    A stack of self-attention layers has `rollout`. A decoder over such a stack has `rollout_across`, whose
    two matrices have the keys (target, target) and (target, source). A decoder over an encoder without
    attention (recurrent, Fourier) has none, nor has a recurrent decoder.

    A decoder reads token t of ``prefix`` when it predicts token t of ``target``. So its self-attention may
    have the key (prefix, prefix) while its cross-attention has ``target`` as queries.

    Raises:
        RequestError: no rollout is defined, or the explanation lacks a layer of a stack.
    """
    stacks: dict[tuple[str, str], list[Map]] = {}
    for each in explanation.maps:
        stacks.setdefault((each.queries, each.keys), []).append(each)
    layers = {pair: _whole(stack) for pair, stack in stacks.items()}
    cross = {pair for pair, stack in stacks.items() if stack[0].kind == "cross"}
    deciding = {own for queries, _ in cross for own in _read_by(queries)}
    encoders = {keys: (queries, keys) for queries, keys in stacks.keys() - cross if queries not in deciding}
    found = {pair: rollout(layers[pair], residual=residual) for pair in encoders.values()}
    for queries, keys in sorted(cross):
        owns = [pair for pair in stacks.keys() - cross if pair[0] in _read_by(queries)]
        if len(owns) == 1 and keys in encoders and len(layers[owns[0]]) == len(layers[queries, keys]):
            (own,) = owns
            source = found[encoders[keys]]
            x, y = rollout_across(layers[own], layers[queries, keys], source, residual=residual)
            found[own], found[queries, keys] = x, y
    if not found:
        raise RequestError(
            "rollout needs a stack with self-attention in every layer, and this model has none; show the "
            "attention of single layers instead"
        )
    return found


def _read_by(queries: str) -> tuple[str, ...]:
    """Return the possible axes of a decoder's self-attention, given the queries of its cross-attention."""
    return (queries, PREFIX) if queries == TARGET else (queries,)


def _whole(stack: Sequence[Map]) -> list[Any]:
    """Return the weights of a stack, from the first layer to the last.

    Raises:
        RequestError: a layer, or heads of a layer, are missing.
    """
    ordered = sorted(stack, key=lambda each: each.layer)
    for place, each in enumerate(ordered):
        if each.layer != place or each.heads != tuple(range(len(each.heads))):
            raise RequestError(
                f"rollout needs all heads of all layers, but layer {place + 1} is incomplete; do not select "
                "layers or heads"
            )
    return [each.weights for each in ordered]


def _step(weights: Any, residual: float) -> Numbers:
    """Return ``r I + (1 - r) W`` of a self-attention layer."""
    combined = _combined(weights)
    if combined.shape[0] != combined.shape[1]:
        raise ValueError(f"weights of self-attention must be square, got {combined.shape}")
    past = _past(combined, residual)
    return past * np.eye(len(combined)) + (1 - past) * combined


def _past(combined: Numbers, residual: float) -> Numbers:
    """Return ``[Q, 1]``, the share of the residual connection: r, or 1 for queries without visible keys."""
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be between 0 and 1, got {residual}")
    return np.where(combined.sum(axis=1, keepdims=True) > 0, residual, 1.0)


def _combined(weights: Any) -> Numbers:
    """Return the mean over heads, ``[Q, K]``; rows sum to 1, or to 0 for queries without visible keys."""
    w = np.asarray(weights, dtype=float)
    if w.ndim != 3:
        raise ValueError(f"weights must be [heads, queries, keys], got {w.shape}")
    return _normalised(w.mean(axis=0))


def _normalised(w: Numbers) -> Numbers:
    """Rescale rows along the last axis to sum 1; rows of zeros are unchanged."""
    sums = w.sum(axis=-1, keepdims=True)
    return np.divide(w, sums, out=np.zeros_like(w), where=sums > 0)


# Distances


def patch_distances(grid: tuple[int, int], patch: int) -> Numbers:
    """Return the distances in pixels between patch centres, ``[N, N]``, in row-major order.

    Args:
        grid: rows and columns.
        patch: P, the side of a patch in pixels.
    """
    rows, columns = np.divmod(np.arange(grid[0] * grid[1], dtype=float), grid[1])
    return patch * np.hypot(rows[:, None] - rows, columns[:, None] - columns)


def mean_distance(weights: Any, distances: Any) -> Numbers:
    """Return the mean attention distance of each head: ``mean_i sum_j w_ij D_ij``.

    Rows of w are first rescaled to sum 1. Queries without weight on these keys are excluded from the mean; a
    head without other queries gets NaN.

    Args:
        weights: ``[H, Q, K]``.
        distances: D, ``[Q, K]``.

    Returns:
        ``[H]``, in the unit of the distances.

    Raises:
        ValueError: the shapes differ.
    """
    w, far = np.asarray(weights, dtype=float), np.asarray(distances, dtype=float)
    if w.ndim != 3 or w.shape[1:] != far.shape:
        raise ValueError(f"weights of shape {w.shape} do not match distances of shape {far.shape}")
    counted = w.sum(axis=2) > 0
    total = (_normalised(w) * far).sum(axis=(1, 2))
    return np.divide(total, counted.sum(axis=1), out=np.full(len(w), np.nan), where=counted.any(axis=1))


def token_distance(weights: Any) -> Numbers:
    """Return the `mean_distance` in tokens, ``|i - j|``, of self-attention heads ``[H, T, T]``."""
    places = np.arange(np.shape(weights)[-1], dtype=float)
    return mean_distance(weights, np.abs(places[:, None] - places))


def image_distance(weights: Any, grid: tuple[int, int], patch: int, before: int = 0) -> Numbers:
    """Return the `mean_distance` in pixels between patches (Dosovitskiy et al. 2021, figures 7 and 11).

    Tokens before the patches (the class token) are excluded as queries and keys; the remaining weights are
    rescaled to sum 1. The paper averages over 128 images; average over yours.

    Args:
        weights: ``[H, before + N, before + N]``.
        grid: rows and columns; N of them.
        patch: P, the side of a patch in pixels.
        before: number of tokens before the patches.
    """
    return mean_distance(np.asarray(weights)[:, before:, before:], patch_distances(grid, patch))

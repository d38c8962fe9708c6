"""What attention adds up to: over layers (rollout), over distance, over keys (entropy).

Plain functions on arrays, H heads of Q tokens that look at K, and on an `Explanation`; what draws them is in
`heedful.explain.drawings`. Everything is computed in double precision.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.view import PREFIX, TARGET, Explanation, Map

Numbers = NDArray[np.float64]
Combine = Literal["mean", "max"]
"""How the heads of a layer become one: their mean, or for each pair of tokens the greatest weight."""


def surprises(weights: Any) -> Numbers:
    """``- w ln w`` in nats of every weight; 0 ln 0 is 0."""
    w = np.asarray(weights, dtype=float)
    # The logarithm of the smallest number in the place of that of 0, which is multiplied by 0.
    found = np.asarray(np.maximum(w, np.finfo(float).tiny))
    np.log(found, out=found)
    found *= -w
    return found


def entropies(weights: Any) -> Numbers:
    """``- sum_j w_j ln w_j`` in nats along the last axis.

    At most the logarithm of the number of keys, where all weights are equal. Source: Clark et al. 2019,
    section 3.3.
    """
    return surprises(weights).sum(axis=-1)


# Rollout


def rollout(layers: Sequence[Any], *, heads: Combine = "mean", residual: float = 0.5) -> Numbers:
    """How much of each input token arrives at each token above a stack, if attention alone moved it.

    ``R = A_L ... A_2 A_1`` with ``A_l = r I + (1 - r) W_l`` (Abnar & Zuidema 2020, section 3, with r = 1/2
    for the residual connection), where W_l is the mean over the heads of layer l. Rows sum to 1; what a
    causal stack hides stays 0. With ``heads="max"`` the rows of W_l are made to sum to 1 first. Two stacks
    one above the other: ``rollout(a + b) = rollout(b) @ rollout(a)``.

    It knows attention weights alone: neither values, feed-forwards and norms nor the signs of what is added.

    Args:
        layers: ``[H, T, T]`` for each layer, from the first to the last.
        heads: how they become one.
        residual: r, the share that goes past attention.

    Returns:
        ``[T, T]``: row i says where token i of the last layer comes from.

    Raises:
        ValueError: no layers, another shape, or a share that is not from 0 to 1.
    """
    if not layers:
        raise ValueError("there is no layer to roll out")
    found: Numbers | None = None
    for weights in layers:
        step = _step(weights, heads, residual)
        found = step if found is None else step @ found
    assert found is not None
    return found


def rollout_across(
    own: Sequence[Any],
    cross: Sequence[Any],
    source: Any,
    *,
    heads: Combine = "mean",
    residual: float = 0.5,
) -> tuple[Numbers, Numbers]:
    """Rollout through a decoder that looks at itself, then at a source, in each layer.

    The paper defines rollout for encoders alone. Here every attention, to oneself or across, takes the place
    of 1 - r of what was there, as every one has a residual connection of its own. With [X, Y] the shares of
    the target's and of the source's input tokens, from [I, 0], each layer is::

        [X, Y] <- (r I + (1 - r) W_own) [X, Y],   then   [X, Y] <- r [X, Y] + (1 - r) W_cross [0, R_source]

    Args:
        own: ``[H, T, T]`` of each layer.
        cross: ``[H, T, S]`` of each layer.
        source: ``[S, N]``, the rollout of the encoder whose output ``cross`` looks at.
        heads: how they become one.
        residual: r.

    Returns:
        X ``[T, T]`` and Y ``[T, N]``; row i of both together sums to 1.

    Raises:
        ValueError: another number of layers, another shape, or a share that is not from 0 to 1.
    """
    if len(own) != len(cross) or not own:
        raise ValueError(f"{len(own)} layers look at themselves and {len(cross)} at the source")
    source = np.asarray(source, dtype=float)
    size = np.shape(own[0])[-1]
    target, across = np.eye(size), np.zeros((size, source.shape[1]))
    for to_own, to_source in zip(own, cross, strict=True):
        step = _step(to_own, heads, residual)
        target, across = step @ target, step @ across
        looking = _combined(to_source, heads)
        past = _past(looking, residual)
        target, across = past * target, past * across + (1 - past) * (looking @ source)
    return target, across


def rollouts(
    explanation: Explanation, *, heads: Combine = "mean", residual: float = 0.5
) -> dict[tuple[str, str], Numbers]:
    """All rollouts that are defined, by the names of the side that looks and of the one looked at.

    Of a stack that looks at itself: `rollout`. Of a decoder over such a stack: `rollout_across`, whose two
    matrices stand under (target, target) and (target, source). A decoder over an encoder that does not
    attend (recurrent, Fourier) has none, nor has a recurrent decoder.

    Token t of what a decoder writes looks at the source from token t of what it reads: so the decoder's own
    layers may stand under (prefix, prefix) where its cross-attention is of the target.

    Raises:
        RequestError: none is defined, or a layer of a stack is missing from the explanation.
    """
    stacks: dict[tuple[str, str], list[Map]] = {}
    for each in explanation.maps:
        stacks.setdefault((each.queries, each.keys), []).append(each)
    layers = {sides: _whole(stack) for sides, stack in stacks.items()}
    cross = {sides for sides, stack in stacks.items() if stack[0].kind == "cross"}
    deciding = {own for queries, _ in cross for own in _read_by(queries)}
    encoders = {keys: (queries, keys) for queries, keys in stacks.keys() - cross if queries not in deciding}
    options: Mapping[str, Any] = {"heads": heads, "residual": residual}
    found = {sides: rollout(layers[sides], **options) for sides in encoders.values()}
    for queries, keys in sorted(cross):
        owns = [sides for sides in stacks.keys() - cross if sides[0] in _read_by(queries)]
        if len(owns) == 1 and keys in encoders and len(layers[owns[0]]) == len(layers[queries, keys]):
            (own,) = owns
            x, y = rollout_across(layers[own], layers[queries, keys], found[encoders[keys]], **options)
            found[own], found[queries, keys] = x, y
    if not found:
        raise RequestError(
            "rollout needs a stack in which every layer looks at its own side, and this model has none; "
            "explain_input at the attention of single layers instead"
        )
    return found


def _read_by(queries: str) -> tuple[str, ...]:
    """The sides that a decoder may itself look at, whose cross-attention has these queries."""
    return (queries, PREFIX) if queries == TARGET else (queries,)


def _whole(stack: Sequence[Map]) -> list[Any]:
    """The weights of a stack, from its first layer to its last.

    Raises:
        RequestError: a layer is missing, or heads of one.
    """
    ordered = sorted(stack, key=lambda each: each.layer)
    for place, each in enumerate(ordered):
        if each.layer != place or each.heads != tuple(range(len(each.heads))):
            raise RequestError(
                f"rollout takes all heads of all layers, and of layer {place + 1} they are not there: "
                "explain the input without choosing layers or heads"
            )
    return [each.weights for each in ordered]


def _step(weights: Any, heads: Combine, residual: float) -> Numbers:
    """``r I + (1 - r) W`` of a layer that looks at itself."""
    combined = _combined(weights, heads)
    if combined.shape[0] != combined.shape[1]:
        raise ValueError(f"a layer that looks at itself has weights of shape {combined.shape}")
    past = _past(combined, residual)
    return past * np.eye(len(combined)) + (1 - past) * combined


def _past(combined: Numbers, residual: float) -> Numbers:
    """``[Q, 1]``: the share of each token that goes past attention: r, or all where it sees nothing."""
    if not 0 <= residual <= 1:
        raise ValueError(f"the share of the residual connection is {residual}, not from 0 to 1")
    return np.where(combined.sum(axis=1, keepdims=True) > 0, residual, 1.0)


def _combined(weights: Any, heads: Combine) -> Numbers:
    """``[H, Q, K]`` to ``[Q, K]``, whose rows sum to 1, or to 0 where a query sees nothing."""
    w = np.asarray(weights, dtype=float)
    if w.ndim != 3:
        raise ValueError(f"the weights of a layer are [heads, queries, keys], not of shape {w.shape}")
    return _normalised(w.max(axis=0) if heads == "max" else w.mean(axis=0))


def _normalised(w: Numbers) -> Numbers:
    """Rows along the last axis made to sum to 1; rows of zeros stay."""
    sums = w.sum(axis=-1, keepdims=True)
    return np.divide(w, sums, out=np.zeros_like(w), where=sums > 0)


# Distances


def token_distances(length: int) -> Numbers:
    """``[T, T]``: how many tokens lie from one to the other, ``|i - j|``."""
    places = np.arange(length, dtype=float)
    return np.abs(places[:, None] - places)


def patch_distances(grid: tuple[int, int], patch: int) -> Numbers:
    """``[N, N]`` in pixels: between the centres of the patches of an image, row by row.

    Args:
        grid: rows and columns.
        patch: P, pixels along the side of a patch.
    """
    rows, columns = np.divmod(np.arange(grid[0] * grid[1], dtype=float), grid[1])
    return patch * np.hypot(rows[:, None] - rows, columns[:, None] - columns)


def mean_distance(weights: Any, distances: Any) -> Numbers:
    """How far each head looks: ``mean_i sum_j w_ij D_ij``, with rows of w made to sum to 1.

    A query that gives nothing to these keys is left out of the mean; a head without any other gets NaN.

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
        raise ValueError(f"weights of shape {w.shape} for distances of shape {far.shape}")
    looking = w.sum(axis=2) > 0
    total = (_normalised(w) * far).sum(axis=(1, 2))
    return np.divide(total, looking.sum(axis=1), out=np.full(len(w), np.nan), where=looking.any(axis=1))


def token_distance(weights: Any) -> Numbers:
    """`mean_distance` in tokens of heads ``[H, T, T]`` that look at their own side."""
    return mean_distance(weights, token_distances(np.shape(weights)[-1]))


def image_distance(weights: Any, grid: tuple[int, int], patch: int, before: int = 0) -> Numbers:
    """`mean_distance` in pixels between patches (Dosovitskiy et al. 2021, figures 7 and 11).

    What stands before the patches (the class token) neither looks nor is looked at: the weights that are
    left are made to sum to 1. The paper averages over 128 images; average over yours.

    Args:
        weights: ``[H, before + N, before + N]``.
        grid: rows and columns; N of them.
        patch: P, pixels along the side of a patch.
        before: how many tokens stand before the patches.
    """
    return mean_distance(np.asarray(weights)[:, before:, before:], patch_distances(grid, patch))

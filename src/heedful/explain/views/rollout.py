"""View ``rollout``: attention rollout over all layers (Abnar and Zuidema 2020)."""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from heedful.errors import RequestError
from heedful.explain.attention_map import MEMORY, AttentionMap, Weights
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import Numbers, unit_rows
from heedful.explain.drawings import Drawing, Heat, PatchPanel, PatchValues
from heedful.explain.summary import AttentionMatrix, patch_attention
from heedful.explain.views.shared import rounded_all
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import PREFIX, TARGET, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

RESIDUAL = 0.5
"""Share of the residual connection, as in the paper."""


def supports(run: LoadedRun) -> bool:
    """Whether the model has self-attention outside of a decoder, and no compressed memory."""
    sites = find_sites(run.model)
    if any(site.keys == MEMORY for site in sites):
        return False
    return any(site.kind != "cross" and site.queries != PREFIX for site in sites)


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return how much each output token receives from each input token through attention.

    Returns:
        ``residual``, and ``matrices``: for each pair of axes their names ``queries`` and ``keys``, and
        ``weights``, whose row i contains the shares of the input tokens in output token i. Rows sum to 1; for
        a decoder, rows of both matrices together do.

    Raises:
        RequestError: some maps were not selected.
    """
    explanation = explanations[0]
    captured = {(attention_map.tap, attention_map.heads) for attention_map in explanation.maps}
    if {(site.tap, site.heads) for site in find_sites(run.model)} - captured:
        raise RequestError(
            "view rollout needs all kinds of attention, layers and heads; remove the selection of maps"
        )
    matrix_by_axes = rollouts(explanation, residual=RESIDUAL)
    pairs = dict.fromkeys((attention_map.queries, attention_map.keys) for attention_map in explanation.maps)
    matrices = [
        {"queries": queries, "keys": keys, "weights": rounded_all(matrix_by_axes[queries, keys])}
        for queries, keys in pairs
        if (queries, keys) in matrix_by_axes
    ]
    return {"residual": RESIDUAL, "matrices": matrices}


def rollout(layers: Sequence[ArrayLike], *, residual: float = 0.5) -> Numbers:
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
    return reduce(
        lambda below, weights: _layer_step(weights, residual) @ below,
        layers[1:],
        _layer_step(layers[0], residual),
    )


def rollout_across(
    own: Sequence[ArrayLike], cross: Sequence[ArrayLike], source: ArrayLike, *, residual: float = 0.5
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
    length = np.shape(own[0])[-1]
    target_shares, source_shares = np.eye(length), np.zeros((length, source.shape[1]))
    for own_weights, cross_weights in zip(own, cross, strict=True):
        step = _layer_step(own_weights, residual)
        target_shares, source_shares = step @ target_shares, step @ source_shares
        mean, residual_share = _mean_of_heads(cross_weights, residual)
        target_shares, source_shares = (
            residual_share * target_shares,
            residual_share * source_shares + (1 - residual_share) * (mean @ source),
        )
    return target_shares, source_shares


def rollouts(explanation: "Explanation", *, residual: float = 0.5) -> dict[tuple[str, str], Numbers]:
    """Return all rollouts defined for an explanation, by the names of the axes of queries and keys.

    A stack of self-attention layers has `rollout`. A decoder over such a stack has `rollout_across`, whose
    two matrices have the keys (target, target) and (target, source). A decoder over an encoder without
    attention (recurrent, Fourier) has none, nor has a recurrent decoder.

    A decoder reads token t of ``prefix`` when it predicts token t of ``target``. So its self-attention may
    have the key (prefix, prefix) while its cross-attention has ``target`` as queries.

    Raises:
        RequestError: no rollout is defined, or the explanation lacks a layer of a stack.
    """
    stacks: dict[tuple[str, str], list[AttentionMap]] = {}
    for attention_map in explanation.maps:
        stacks.setdefault((attention_map.queries, attention_map.keys), []).append(attention_map)
    layers = {pair: _stack_weights(stack) for pair, stack in stacks.items()}
    cross = {pair for pair, stack in stacks.items() if stack[0].kind == "cross"}
    decoder_axes = {axis for queries, _ in cross for axis in _self_attention_axes(queries)}
    encoders = {
        keys: (queries, keys) for queries, keys in stacks.keys() - cross if queries not in decoder_axes
    }
    matrices = {pair: rollout(layers[pair], residual=residual) for pair in encoders.values()}
    for queries, keys in sorted(cross):
        self_attentions = [pair for pair in stacks.keys() - cross if pair[0] in _self_attention_axes(queries)]
        if (
            len(self_attentions) == 1
            and keys in encoders
            and len(layers[self_attentions[0]]) == len(layers[queries, keys])
        ):
            (self_attention,) = self_attentions
            source = matrices[encoders[keys]]
            x, y = rollout_across(layers[self_attention], layers[queries, keys], source, residual=residual)
            matrices[self_attention], matrices[queries, keys] = x, y
    if not matrices:
        raise RequestError(
            "rollout needs a stack with self-attention in every layer, and this model has none; show the "
            "attention of single layers instead"
        )
    return matrices


def _self_attention_axes(queries: str) -> tuple[str, ...]:
    """Return the possible axes of a decoder's self-attention, given the queries of its cross-attention."""
    return (queries, PREFIX) if queries == TARGET else (queries,)


def _stack_weights(stack: Sequence[AttentionMap]) -> list[Weights]:
    """Return the weights of a stack, from the first layer to the last.

    Raises:
        RequestError: a layer, or heads of a layer, are missing.
    """
    ordered = sorted(stack, key=lambda attention_map: attention_map.layer)
    for layer, attention_map in enumerate(ordered):
        if attention_map.layer != layer or attention_map.heads != tuple(range(len(attention_map.heads))):
            raise RequestError(
                f"rollout needs all heads of all layers, but layer {layer + 1} is incomplete; do not select "
                "layers or heads"
            )
    return [attention_map.weights for attention_map in ordered]


def _layer_step(weights: ArrayLike, residual: float) -> Numbers:
    """Return ``r I + (1 - r) W`` of a self-attention layer."""
    mean, residual_share = _mean_of_heads(weights, residual)
    if mean.shape[0] != mean.shape[1]:
        raise ValueError(f"weights of self-attention must be square, got {mean.shape}")
    return residual_share * np.eye(len(mean)) + (1 - residual_share) * mean


def _mean_of_heads(weights: ArrayLike, residual: float) -> tuple[Numbers, Numbers]:
    """Return the mean over heads ``[Q, K]``, and the share of the residual connection ``[Q, 1]``.

    Rows of the mean sum to 1. For queries without visible keys they sum to 0, and the share is 1, not r.
    """
    w = np.asarray(weights, dtype=float)
    if w.ndim != 3:
        raise ValueError(f"weights must be [heads, queries, keys], got {w.shape}")
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be between 0 and 1, got {residual}")
    mean = unit_rows(w.mean(axis=0))
    return mean, np.where(mean.sum(axis=1, keepdims=True) > 0, residual, 1.0)


# Output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return drawings over images, and between words; the page draws the latter like attention maps."""
    output: list[Drawing] = []
    for matrix, entry in zip(_matrices(explanation, values), values["matrices"], strict=True):
        if matrix.keys.grid is None:
            words = matrix.to_words()
            rows, columns = words.queries.tokens, words.keys.tokens
            output.append(Heat(words.title, words.weights, rows, columns, media={"terminal", "image"}))
        else:
            panels = [PatchPanel(_query_name(matrix), patch_attention(matrix))]
            output.append(PatchValues(matrix.title, entry["keys"], panels, among=_n_attended(matrix)))
    return output


def _matrices(explanation: "Explanation", values: JsonMapping) -> Iterator[AttentionMatrix]:
    for entry in values["matrices"]:
        queries, keys = entry["queries"], entry["keys"]
        if queries == keys:
            title = f"Rollout of the {queries}: share of each input token in each output token"
        else:
            title = f"Rollout: share of each {keys} token in each {queries} token"
        weights = np.asarray(entry["weights"], dtype=float).clip(0.0, 1.0)
        yield AttentionMatrix(explanation.axes[queries], explanation.axes[keys], weights, title)


def _n_attended(matrix: AttentionMatrix) -> int | None:
    """Return the number of tokens that share each row; None for a decoder, which also uses its own tokens."""
    return len(matrix.keys.tokens) if matrix.queries is matrix.keys else None


def _query_name(matrix: AttentionMatrix) -> str:
    return "class token" if matrix.queries.before else "mean of all tokens"

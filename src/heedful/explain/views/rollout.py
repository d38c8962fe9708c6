"""View ``rollout``: attention rollout over all layers (Abnar and Zuidema 2020)."""

import sys
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.drawing.matrix import Numbers, unit_rows
from heedful.explain.drawing.terminal import choose_style, heat_map, link_lines
from heedful.explain.explanation import MEMORY, Explanation, Map, Weights
from heedful.explain.summary import AttentionMatrix, patch_attention
from heedful.explain.views.shared import Figure, headline, rounded_all
from heedful.runs.run import Run
from heedful.tasks.model_input import PREFIX, TARGET, ModelInput
from heedful.typing import JsonMapping, JsonObject

RESIDUAL = 0.5
"""Share of the residual connection, as in the paper."""


def has(run: Run) -> bool:
    """Whether the model has self-attention outside of a decoder, and no compressed memory."""
    sites = find_sites(run.model)
    if any(site.keys == MEMORY for site in sites):
        return False
    return any(site.kind != "cross" and site.queries != PREFIX for site in sites)


def compute(run: Run, prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return how much each output token receives from each input token through attention.

    Returns:
        ``residual``, and ``matrices``: for each pair of axes their names ``queries`` and ``keys``, and
        ``weights``, whose row i contains the shares of the input tokens in output token i. Rows sum to 1; for
        a decoder, rows of both matrices together do.

    Raises:
        RequestError: some maps were not selected.
    """
    explanation = explanations[0]
    captured = {(each.tap, each.heads) for each in explanation.maps}
    if {(site.tap, site.heads) for site in find_sites(run.model)} - captured:
        raise RequestError(
            "view rollout needs all kinds of attention, layers and heads; remove the selection of maps"
        )
    found = rollouts(explanation, residual=RESIDUAL)
    pairs = dict.fromkeys((each.queries, each.keys) for each in explanation.maps)
    matrices = [
        {"queries": queries, "keys": keys, "weights": rounded_all(found[queries, keys])}
        for queries, keys in pairs
        if (queries, keys) in found
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
        lambda below, weights: _step(weights, residual) @ below, layers[1:], _step(layers[0], residual)
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
    size = np.shape(own[0])[-1]
    target, across = np.eye(size), np.zeros((size, source.shape[1]))
    for to_own, to_source in zip(own, cross, strict=True):
        step = _step(to_own, residual)
        target, across = step @ target, step @ across
        combined, past = _mean_of_heads(to_source, residual)
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


def _whole(stack: Sequence[Map]) -> list[Weights]:
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


def _step(weights: ArrayLike, residual: float) -> Numbers:
    """Return ``r I + (1 - r) W`` of a self-attention layer."""
    combined, past = _mean_of_heads(weights, residual)
    if combined.shape[0] != combined.shape[1]:
        raise ValueError(f"weights of self-attention must be square, got {combined.shape}")
    return past * np.eye(len(combined)) + (1 - past) * combined


def _mean_of_heads(weights: ArrayLike, residual: float) -> tuple[Numbers, Numbers]:
    """Return the mean over heads ``[Q, K]``, and the share of the residual connection ``[Q, 1]``.

    Rows of the mean sum to 1. For queries without visible keys they sum to 0, and the share is 1, not r.
    """
    w = np.asarray(weights, dtype=float)
    if w.ndim != 3:
        raise ValueError(f"weights must be [heads, queries, keys], got {w.shape}")
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be between 0 and 1, got {residual}")
    combined = unit_rows(w.mean(axis=0))
    return combined, np.where(combined.sum(axis=1, keepdims=True) > 0, residual, 1.0)


# Output


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return the strongest links of each output token, or a heat map over the image."""
    output = []
    for shown in _matrices(explanation, values):
        output.append(shown.title)
        if shown.keys.grid is None:
            output += link_lines(shown.in_words().strongest())
        else:
            over = patch_attention(shown)
            rows, columns = ([str(i + 1) for i in range(n)] for n in over.shape)
            style = choose_style(sys.stdout)
            output += heat_map(columns, rows, over / (over.max() or 1.0), style=style).splitlines()
            output.append(f"  darkest cell: {over.max():.2g}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return drawings over images; the page draws other rollouts like attention maps."""
    return [
        {
            "title": headline(shown.title),
            "kind": "patches",
            "side": matrix["keys"],
            "images": [{"label": _query_name(shown), "values": patch_attention(shown).ravel().tolist()}],
            "among": _among(shown),
        }
        for shown, matrix in zip(_matrices(explanation, values), values["matrices"], strict=True)
        if shown.keys.grid is not None
    ]


def figure(explanation: Explanation, values: JsonMapping) -> Figure:
    """Draw the last matrix: that of the decoder, if there is one."""
    from heedful.explain.drawing.canvas import check_size
    from heedful.explain.drawing.heat_map import attention_panels, heat_map

    *_, shown = _matrices(explanation, values)
    title = explanation.text
    if shown.keys.grid is not None:
        maps, note = [("", patch_attention(shown))], f"{shown.title}: {_query_name(shown)}"
        return attention_panels(maps, shown.keys.image, among=_among(shown), title=title, note=note)
    shown = shown.in_words()
    check_size(*shown.weights.shape)
    return heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, title=title, note=shown.title)


def _matrices(explanation: Explanation, values: JsonMapping) -> Iterator[AttentionMatrix]:
    for each in values["matrices"]:
        queries, keys = each["queries"], each["keys"]
        if queries == keys:
            title = f"rollout of the {queries}: share of each input token in each output token"
        else:
            title = f"rollout: share of each {keys} token in each {queries} token"
        weights = np.asarray(each["weights"], dtype=float).clip(0.0, 1.0)
        yield AttentionMatrix(explanation.axes[queries], explanation.axes[keys], weights, title)


def _among(shown: AttentionMatrix) -> int | None:
    """Return the number of tokens that share each row; None for a decoder, which also uses its own tokens."""
    return len(shown.keys.tokens) if shown.queries is shown.keys else None


def _query_name(shown: AttentionMatrix) -> str:
    return "class token" if shown.queries.before else "mean of all tokens"

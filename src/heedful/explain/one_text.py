"""Source and target in one text: what the target looks at in the source, cut out of causal self-attention.

A language model that translates reads ``<s> x_1 … x_S <sep> y_1 … y_T`` and writes ``y </s>`` (lecture S1).
It looked for token t of what it wrote (t = 0 … T, the end token last) from the token before it, which stands
at S + 1 + t; source and separator stand at 1 … S + 1. That part of a head a, in the form of cross-attention:

    w[t, s] = a[S + 1 + t, 1 + s] / sum_{s' = 0 … S} a[S + 1 + t, 1 + s']        t = 0 … T,  s = 0 … S

What a row gives to ``<s>`` and to the target so far is left out, so rows are divided by what is left, and sum
to 1. The separator ends the source, as the end token does for an encoder: who looks there has no link. A row
in which nothing is left is put there whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.attention_sites import AttentionSite, points
from heedful.explain.view import INPUT, SOURCE, TARGET, Weights
from heedful.nn.taps import capture
from heedful.tasks.sequence_formats import ConcatenatedFormat

if TYPE_CHECKING:
    from heedful.runs.run import Run

BATCH = 64


def source_part(weights: Weights, n_source: int, n_target: int) -> Weights:
    """w of the formula above, ``[..., T + 1, S + 1]``.

    Args:
        weights: ``[..., N, N]`` of one text, with N at least S + T + 2.
        n_source: S.
        n_target: T.
    """
    first = n_source + 1
    part = weights[..., first : first + n_target + 1, 1 : first + 1].astype(np.float64)
    sums = part.sum(axis=-1, keepdims=True)
    nothing = np.zeros_like(part)
    nothing[..., -1] = 1.0
    found: Weights = np.divide(part, sums, out=nothing, where=sums > 0).astype(np.float32)
    return found


def is_one_text(run: "Run") -> bool:
    """Whether a run writes its target behind the source, in one text."""
    return isinstance(getattr(run.recipe, "pairing", None), ConcatenatedFormat)


def points_of(run: "Run") -> list[AttentionSite]:
    """Where the model of a run attends; where source and target are one text, the parts between them too."""
    found = points(run.model)
    return [*found, *parts(found)] if is_one_text(run) else found


def parts(all_points: Sequence[AttentionSite]) -> list[AttentionSite]:
    """Of the causal attention between the tokens of a text: the part from the target to the source."""
    return [
        replace(point, kind="cross", queries=TARGET, keys=SOURCE, is_part=True)
        for point in all_points
        if (point.kind, point.queries, point.keys) == ("causal", INPUT, INPUT)
    ]


@torch.no_grad()
def between_ids(
    model: Any,
    pairing: ConcatenatedFormat,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> Iterator[NDArray[np.float64]]:
    """The parts of all layers over given pairs of ids, teacher forced: ``[L, H, T + 1, S + 1]`` for each.

    Raises:
        RequestError: the model has no attention between tokens in every layer.
    """
    there_are = points(model)
    taps = [point.tap for point in parts(there_are)]
    if not taps or len(taps) < len(there_are):
        raise RequestError("this model has layers without attention from token to token")
    device = next(model.parameters()).device
    model.eval()
    for start in range(0, len(sources), BATCH):
        own = slice(start, start + BATCH)
        batch = pairing.scored(sources[own], targets[own]).to(device)
        with capture(model, dict.fromkeys(taps)) as seen:
            model(batch.inputs)
        for i, (source, target) in enumerate(zip(sources[own], targets[own], strict=True)):
            layers = [seen[tap][-1][i].float().cpu().numpy() for tap in taps]
            cut = [source_part(each, len(source), len(target)) for each in layers]
            yield np.stack(cut).astype(np.float64)

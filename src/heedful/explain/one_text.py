"""Extract attention from target to source from a language model that reads both as one text.

A language model that translates reads ``<s> x_1 … x_S <sep> y_1 … y_T`` and generates ``y </s>`` (lecture
S1). Token t of the output (t = 0 … T, the end token last) is predicted at position S + 1 + t; source and
separator are at positions 1 … S + 1. The part of a head's causal self-attention a in the form of
cross-attention is

    w[t, s] = a[S + 1 + t, 1 + s] / sum_{s' = 0 … S} a[S + 1 + t, 1 + s']        t = 0 … T,  s = 0 … S

The weights of ``<s>`` and of earlier target tokens are dropped, and rows are rescaled to sum 1. The separator
takes the role of the source's end token: a word with its largest weight there has no link. A row without any
weight on the source gets weight 1 at the separator.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.explain.attention_sites import AttentionSite, find_sites
from heedful.explain.view import INPUT, SOURCE, TARGET, Weights
from heedful.models.base import Model
from heedful.nn.taps import capture
from heedful.tasks.sequence_formats import ConcatenatedFormat

if TYPE_CHECKING:
    from heedful.runs.run import Run

BATCH = 64


def source_part(weights: Weights, n_source: int, n_target: int) -> Weights:
    """Return w of the formula above, ``[..., T + 1, S + 1]``.

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
    """Whether the model of a run reads source and target as one text."""
    return isinstance(getattr(run.recipe, "pairing", None), ConcatenatedFormat)


def sites_of(run: "Run") -> list[AttentionSite]:
    """Return the attention sites of a run's model.

    If source and target are one text, these include the parts of the attention between them.
    """
    found = find_sites(run.model)
    return [*found, *parts(found)] if is_one_text(run) else found


def parts(sites: Sequence[AttentionSite]) -> list[AttentionSite]:
    """Return, for each causal attention over a text, a site for its part from target to source."""
    return [
        replace(site, kind="cross", queries=TARGET, keys=SOURCE, is_part=True)
        for site in sites
        if (site.kind, site.queries, site.keys) == ("causal", INPUT, INPUT)
    ]


@torch.no_grad()
def between_ids(
    model: Model,
    pairing: ConcatenatedFormat,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> Iterator[NDArray[np.float64]]:
    """Yield the target-to-source parts of all layers for pairs of ids, with teacher forcing.

    Returns:
        ``[L, H, T + 1, S + 1]`` for each pair.

    Raises:
        RequestError: a layer has no attention between tokens.
    """
    sites = find_sites(model)
    taps = [site.tap for site in parts(sites)]
    if not taps or len(taps) < len(sites):
        raise RequestError("every layer must have attention between tokens; this model has layers without it")
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

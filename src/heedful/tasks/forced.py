"""One forced pass over finished sequences: their log-probabilities and their alignments."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.data.batch import Batch
from heedful.models.base import Model
from heedful.nn.taps import capture

CHUNK = 1024
"""Tokens whose logits exist at one time."""


@dataclass(frozen=True)
class Forced:
    """The scores of one given target.

    Args:
        log_probs: of each target token and of the end token, ``[T]``.
        alignment: weights over the source, ``[L, H, T, S]``, or None where not asked for: those that the
            pass itself used, as captured at its taps (`heedful.nn.taps`).
    """

    log_probs: Float[Tensor, " T"]
    alignment: Float[Tensor, "L H T S"] | None


@torch.no_grad()
def forced(model: Model, batch: Batch, *, alignment: bool = False) -> list[Forced]:
    """Score the targets of ``batch``, teacher forced; one result for each sequence."""
    names = model.alignment_taps if alignment else []
    with capture(model, dict.fromkeys(names)) as seen:
        hidden = model(batch.inputs, batch.source)
    head = model.heads["token"]
    chunks = zip(batch.picked(hidden).split(CHUNK), batch.targets.split(CHUNK), strict=True)
    picked = torch.cat([_log_probs(head(h), targets) for h, targets in chunks])
    lengths = batch.n_answers
    parts = picked.split(list(lengths))
    if not names:
        return [Forced(p, None) for p in parts]
    assert batch.source is not None
    layers = torch.stack([seen[name][-1] for name in names])
    sources = batch.source.layout.lengths
    return [
        Forced(p, layers[:, i, :, :n, :s])
        for i, (p, n, s) in enumerate(zip(parts, lengths, sources, strict=True))
    ]


def _log_probs(logits: Float[Tensor, "n V"], targets: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    return logits.float().log_softmax(-1).gather(1, targets[:, None])[:, 0]

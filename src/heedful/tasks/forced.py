"""One forced pass over finished sequences: their log-probabilities and their alignments."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.data.batch import Batch
from heedful.nn.taps import recording


@dataclass(frozen=True)
class Forced:
    """What a model says of one given target.

    Args:
        log_probs: of each target token and of the end token, ``[T]``.
        alignment: weights over the source, ``[L, H, T, S]``, or None where not asked for. The same
            weights that the fast path used, recomputed from the same queries and keys.
    """

    log_probs: Float[Tensor, " T"]
    alignment: Float[Tensor, "L H T S"] | None


@torch.no_grad()
def forced(model: Any, batch: Batch, *, alignment: bool = False) -> list[Forced]:
    """Score the targets of ``batch``, teacher forced; one result for each sequence."""
    names = model.alignment_taps if alignment else []
    with recording(model, names) as seen:
        hidden = model(batch.inputs, batch.source)
    logits = model.heads["token"](hidden).float()
    picked = logits.log_softmax(-1).gather(1, batch.targets[:, None])[:, 0]
    lengths = batch.inputs.layout.lengths
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

"""Guided attention: supervise one head of the attention over the source with word alignments.

    loss = - sum_{t in A} sum_s G_ts log alpha_ts,     G_ts = [t and s are linked] / (links of t)

A are the target tokens with a link, and alpha_ts is the weight of source token s at the decoder step of
target token t: the step that predicts it (``output``) or the step that reads it (``input``). At the input
step the head knows the target word, which is much easier to learn. The term is the mean over A; tokens
without a link do not contribute.

Sources: Chen et al. 2016 (a cross-entropy, for a recurrent decoder); Garg et al. 2019 (one head of the
second-to-last layer of a Transformer, weight 0.05); Chen et al. 2020 (the input step). Garg divides by all
target tokens, which gives a smaller weight if few are linked, and reads the whole target in a second pass,
which is not supported here.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.data.batch import Batch, TokenLinks
from heedful.objectives.terms import AuxiliaryLoss, Term

ALIGNMENT = "alignment"
DecoderStep = Literal["output", "input"]
"""Decoder step of a target token: the step that predicts it (``output``) or reads it (``input``)."""
# Weights are clamped to this minimum before the logarithm: softmax may underflow to zero.
LEAST = torch.finfo(torch.float32).tiny


class Guidance(AuxiliaryLoss):
    """Guided attention loss of one head.

    Terms: ``alignment`` if the batch has links (`heedful.data.batch.Batch.linked`); otherwise none, and the
    model runs unchanged. The guided layer uses the explicit attention kernel.

    Args:
        model: a model with attention over a source (``alignment_taps``).
        weight: weight of the term.
        layer: index into those taps, from 0; None: the second-to-last, or the only one.
        head: index of the head, from 0.
        step: decoder step of a target token (`DecoderStep`).
    """

    def __init__(
        self,
        model: nn.Module,
        weight: float = 0.05,
        layer: int | None = None,
        head: int = 0,
        step: DecoderStep = "output",
    ) -> None:
        names = list(getattr(model, "alignment_taps", ()))
        if not names:
            raise ValueError("guided attention requires a model with attention over a source")
        index = max(len(names) - 2, 0) if layer is None else layer
        if not 0 <= index < len(names):
            raise ValueError(
                f"layer must be below {len(names)}, the number of layers with attention over a source, "
                f"got {index}"
            )
        super().__init__(model, [names[index]])
        self.weight, self.head = weight, head
        # Row t predicts token t and row t + 1 reads it; the row after the last token predicts the end token.
        self.offset = 1 if step == "input" else 0

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the count of the term: the number of target tokens with a link."""
        return {} if batch.links is None else {ALIGNMENT: batch.links.n_tokens}

    def terms(self, recorded: Mapping[str, list[Tensor]], batch: Batch) -> list[Term]:
        """Return the term of the weights ``[B, H, Q, S]`` of the layer."""
        links, weights = batch.links, recorded[self.taps[0]][-1]
        assert links is not None
        loss = guided_loss(weights[:, self.head, self.offset :], links)
        return [Term(ALIGNMENT, loss, links.n_tokens, self.weight)]


def guided_loss(weights: Float[Tensor, "B Q S"], links: TokenLinks) -> Float[Tensor, ""]:
    """Return the loss summed over linked target tokens, at least in fp32.

    Args:
        weights: weights of one head; row t is that of target token t.
        links: links of the batch.
    """
    linked = weights[links.sequence, links.query, links.key]
    wide = linked.to(torch.promote_types(linked.dtype, torch.float32))
    return -(links.share * wide.clamp(min=LEAST).log()).sum()

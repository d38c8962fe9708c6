"""Guided attention: one head of the attention over the source also learns which words stand for which.

    loss = - sum_{t in A} sum_s G_ts log alpha_ts,     G_ts = [t and s are linked] / (links of t)

A are the target tokens with a link, and alpha_ts the weight of source token s at the decoder's step of target
token t: the one that foretells it (its *output*), or the one that reads it (its *input*). The head that reads
knows which word it is asked for, which is much easier to learn. The term is the mean over A. Tokens without a
link are told nothing.

Sources: Chen et al. 2016 (a cross-entropy, for a recurrent decoder); Garg et al. 2019 (one head of the last
but one layer of a Transformer, weight 0.05); Chen et al. 2020 (the step of the input). Garg divides by all
target tokens, so theirs is a smaller weight where few are linked; and theirs reads the whole target in a
second pass, for which this has no form.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.taps import recording
from heedful.objectives.terms import Linked, Supervised, Term

ALIGNMENT = "alignment"
DecoderStep = Literal["output", "input"]
"""Of which a target token is what is foretold, or what is read: the step before it, or its own."""
# The least weight whose logarithm is taken: a product of softmax may come to exactly zero.
LEAST = torch.finfo(torch.float32).tiny


class Guidance:
    """The term of one head.

    Terms: ``alignment``, where the batch has links (`heedful.data.batch.Batch.linked`); else none, and
    the model runs as it always does.

    While somebody listens, that layer takes the explicit path.

    Args:
        model: has attention over a source (``alignment_taps``).
        weight: of the term.
        layer: among those taps, from 0; None: the last but one, or the only one.
        head: from 0.
        step: of which a linked token is the ``output`` or the ``input``.
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
            raise ValueError("the model has no attention over a source that could be guided")
        place = max(len(names) - 2, 0) if layer is None else layer
        if not 0 <= place < len(names):
            raise ValueError(f"layer {place} of {len(names)} with attention over a source")
        self.model, self.weight, self.head = model, weight, head
        self.taps = [names[place]]
        # Token t is foretold by row t, and read by the next: behind the last token there is the end's row.
        self.later = 1 if step == "input" else 0

    def counts(self, batch: Supervised) -> dict[str, int]:
        """It runs over the target tokens with a link."""
        return {} if batch.links is None else {ALIGNMENT: batch.links.n_tokens}

    @contextmanager
    def attached(self, batch: Supervised) -> Iterator[Callable[[], list[Term]]]:
        """Listen while the model runs once on the batch; what is given then tells the term."""
        links = batch.links
        if links is None:
            yield list
            return
        with recording(self.model, self.taps) as seen:
            yield lambda: [self._term(seen[self.taps[0]][-1], links)]

    def _term(self, weights: Float[Tensor, "B H Q S"], links: Linked) -> Term:
        own = weights[:, self.head, self.later :]
        return Term(ALIGNMENT, guided_loss(own, links), links.n_tokens, self.weight)


def guided_loss(weights: Float[Tensor, "B Q S"], links: Linked) -> Float[Tensor, ""]:
    """The sum over linked target tokens; in fp32 at least.

    Args:
        weights: of one head; row t is that of target token t.
        links: of the batch.
    """
    picked = weights[links.sequence, links.query, links.key]
    wide = picked.to(torch.promote_types(picked.dtype, torch.float32))
    return -(links.share * wide.clamp(min=LEAST).log()).sum()

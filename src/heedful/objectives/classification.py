"""One label for a whole sequence.

loss = - sum_b sum_c q_b(c) log p_b(c),     p_b = softmax(W pooled_b + w_0)
q_b(c) = (1 - eps) [c = y_b] + eps / C
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.objectives.terms import Supervised, Term


class SequenceClass:
    """Every sequence has one class; ``batch.targets`` are their numbers, ``[B]``.

    Terms: ``class`` (the loss), and two that are reported only: ``nll``, the same without smoothing, and
    ``correct``, how often the most probable class is the right one.

    Args:
        smoothing: eps.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), not {smoothing}")
        self.smoothing = smoothing

    def counts(self, batch: Supervised) -> dict[str, int]:
        """All terms run over the sequences."""
        return dict.fromkeys(("class", "nll", "correct"), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["pooled"]``, then ``heads["class"]``, and compare with the targets."""
        logits = class_logits(hidden, heads, batch.inputs.layout)
        n, targets = len(logits), batch.targets
        loss = functional.cross_entropy(logits, targets, label_smoothing=self.smoothing, reduction="sum")
        seen = logits.detach()
        nll = functional.cross_entropy(seen, targets, reduction="sum")
        correct = (seen.argmax(-1) == targets).sum().float()
        return [
            Term("class", loss, n),
            Term("nll", nll, n, weight=0.0),
            Term("correct", correct, n, weight=0.0),
        ]


def class_logits(hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Any) -> Float[Tensor, "B C"]:
    """What both heads make of the hidden states, in fp32."""
    logits: Tensor = heads["class"](heads["pooled"](hidden, layout))
    return logits.float()

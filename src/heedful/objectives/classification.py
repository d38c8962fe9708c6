"""Sequence classification: one class per sequence.

loss = - sum_b sum_c q_b(c) log p_b(c),     p_b = softmax(W pooled_b + w_0)
q_b(c) = (1 - eps) [c = y_b] + eps / C
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.layout import Layout
from heedful.objectives.terms import Supervised, Term


class SequenceClass:
    """Cross-entropy of one class per sequence, ``batch.classes``.

    Terms: one named like the head (the loss), and ``correct`` (reported only): how often the most probable
    class is the right one (prefixed by the head's name unless that is ``class``).

    Args:
        smoothing: label smoothing, eps.
        head: name of the head that computes logits from pooled vectors: ``class``, or ``next`` for next
            sentence prediction (Devlin et al. 2019, section 3.1).
    """

    def __init__(self, smoothing: float = 0.0, head: str = "class") -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
        self.smoothing, self.head = smoothing, head
        self.correct = "correct" if head == "class" else f"{head} correct"

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the counts of both terms: the number of sequences."""
        return dict.fromkeys((self.head, self.correct), batch.inputs.layout.n_sequences)

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["pooled"]`` and the head, and compute the terms."""
        logits = class_logits(hidden, heads, batch.inputs.layout, self.head)
        n, targets = len(logits), batch.classes
        assert targets is not None
        loss = functional.cross_entropy(logits, targets, label_smoothing=self.smoothing, reduction="sum")
        correct = (logits.detach().argmax(-1) == targets).sum().float()
        return [Term(self.head, loss, n), Term(self.correct, correct, n, weight=0.0)]


def class_logits(
    hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, layout: Layout, head: str = "class"
) -> Float[Tensor, "B C"]:
    """Apply the pooling and the named head to the hidden states; return logits in fp32."""
    logits: Tensor = heads[head](heads["pooled"](hidden, layout))
    return logits.float()

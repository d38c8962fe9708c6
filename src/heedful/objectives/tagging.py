"""Token classification: one tag per word, predicted at its first token (Devlin et al. 2019, section 5.3).

loss = - sum_i sum_c q_i(c) log p_i(c),     p_i = softmax(W h_i + w_0)
q_i(c) = (1 - eps) [c = y_i] + eps / C
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.objectives.terms import Supervised, Term

TAG = "tag"


class TokenClass:
    """Cross-entropy of one class for each row that the batch selects, ``batch.targets``.

    Terms: ``tag`` (the loss), and ``correct`` (reported only): how often the most probable tag is the right
    one.

    Args:
        smoothing: label smoothing, eps.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got {smoothing}")
        self.smoothing = smoothing

    def counts(self, batch: Supervised) -> dict[str, int]:
        """Return the counts of both terms: the number of words."""
        return dict.fromkeys((TAG, "correct"), len(batch.targets))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Supervised) -> list[Term]:
        """Apply ``heads["tag"]`` to the selected rows and compute the terms."""
        logits: Tensor = heads[TAG](batch.picked(hidden)).float()
        n, targets = len(logits), batch.targets
        loss = functional.cross_entropy(logits, targets, label_smoothing=self.smoothing, reduction="sum")
        correct = (logits.detach().argmax(-1) == targets).sum().float()
        return [Term(TAG, loss, n), Term("correct", correct, n, weight=0.0)]

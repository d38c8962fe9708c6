"""Cross-entropy of the class of every pixel of an image.

    loss = - sum_i w_i sum_c q_i(c) log p_i(c),     q_i(c) = (1 - eps) [c = y_i] + eps / C

over the scored pixels i of all images, with p_i the softmax over the C classes, eps the label smoothing and
w_i the weight of the pixel's class, or 1.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from heedful.data.batch import Batch
from heedful.data.images import MASK, UNSCORED
from heedful.objectives.terms import Term

PIXEL = "pixel"
"""Name of the loss term."""


@dataclass(frozen=True)
class PixelClass:
    """Cross-entropy of one class per pixel, ``batch.masks``; pixels that are `UNSCORED` are left out.

    Terms: ``pixel`` (the loss), and ``correct``: how often the most probable class is the right one.

    Args:
        smoothing: label smoothing.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be in [0, 1), got {self.smoothing}")

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return the counts of both terms: the number of scored pixels."""
        assert batch.masks is not None
        return dict.fromkeys((PIXEL, "correct"), int((batch.masks != UNSCORED).sum()))

    def __call__(self, hidden: Float[Tensor, "T d"], heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply ``heads["mask"]`` and compute the terms."""
        assert batch.masks is not None
        scores: Tensor = heads[MASK](hidden, batch.inputs.layout)
        losses = functional.cross_entropy(
            scores.movedim(-1, 1),
            batch.masks,
            ignore_index=UNSCORED,
            label_smoothing=self.smoothing,
            reduction="sum" if batch.weights is None else "none",
        )
        loss = losses if batch.weights is None else (batch.weights * losses).sum()
        # No class has the index UNSCORED.
        n_correct = (scores.detach().argmax(-1) == batch.masks).sum().float()
        count = self.counts(batch)[PIXEL]
        return [Term(PIXEL, loss, count), Term("correct", n_correct, count, weight=0.0)]

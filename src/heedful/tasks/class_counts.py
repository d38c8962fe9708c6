"""Counts of predicted and true classes in validations, for metrics that are not means of loss terms."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batch import Batch
from heedful.errors import RequestError
from heedful.recipes.schema import Recipe
from heedful.tasks.metrics.classification import Counts, macro_f1

MACRO_F1 = "macro-f1"
"""The name of the macro F1 among validation metrics."""


class ClassCounts:
    """Confusion matrix of the classes that a head predicts for validation batches, the most probable ones.

    It reads the logits that the loss computes, so nothing is computed twice.

    Args:
        head: the head, which the loss must call once for each batch; its output is ``[n, C]``.
        targets: returns the true classes of a batch, ``[n]``.
        n_classes: C.
    """

    def __init__(self, head: nn.Module, targets: Callable[[Batch], Tensor], n_classes: int) -> None:
        self._head, self._targets, self._n_classes = head, targets, n_classes
        self._batch: Batch | None = None
        self._matrix: Counts = np.zeros((n_classes, n_classes), dtype=np.int64)

    @classmethod
    def if_measured(
        cls, recipe: Recipe, model: nn.Module, head: str, targets: Callable[[Batch], Tensor], n_classes: int
    ) -> "ClassCounts | None":
        """Return the counts of a head if the recipe selects checkpoints by a metric that needs them."""
        if recipe.training.metric != MACRO_F1:
            return None
        heads = model.heads
        assert isinstance(heads, nn.ModuleDict)
        return cls(heads[head], targets, n_classes)

    @contextmanager
    def counting(self, batches: Iterable[Batch]) -> Iterator[Iterator[Batch]]:
        """Count while the yielded batches are read and the model with its loss is applied to each."""
        self._matrix = np.zeros_like(self._matrix)
        hook = self._head.register_forward_hook(self._count)
        try:
            yield self._observed(batches)
        finally:
            hook.remove()
            self._batch = None

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the batches that were counted last.

        Raises:
            RequestError: the loss did not call the head.
        """
        if not self._matrix.any():
            raise RequestError(
                f"training.metric={MACRO_F1}: the loss does not apply the head of the classes; "
                "choose another metric"
            )
        return {MACRO_F1: macro_f1(self._matrix)}

    def _observed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._batch = batch
            yield batch

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        assert self._batch is not None
        predicted, targets = logits.detach().argmax(-1).cpu(), self._targets(self._batch).cpu()
        cells = torch.bincount(targets * self._n_classes + predicted, minlength=self._n_classes**2)
        self._matrix += cells.view(self._n_classes, self._n_classes).numpy()


def classes_of(batch: Batch) -> Tensor:
    """Return the class of each sequence of a batch."""
    assert batch.classes is not None
    return batch.classes

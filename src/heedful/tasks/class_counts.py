"""Counts of predicted and true classes in validations, for metrics that are not means of loss terms."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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

Measures = Mapping[str, Callable[[Counts], float]]
"""Metrics of a confusion matrix by their names."""

OF_LABELS: Measures = {MACRO_F1: macro_f1}


class ClassCounts:
    """Confusion matrix of the classes that a head predicts for validation batches, the most probable ones.

    It reads the logits that the loss computes, so nothing is computed twice.

    Args:
        head: the head, which the loss must call once for each batch; its output is ``[..., C]``.
        targets: returns the true classes of a batch, ``[...]``; those from C on are not counted.
        n_classes: C.
        measures: what is computed from the counts.
    """

    def __init__(
        self,
        head: nn.Module,
        targets: Callable[[Batch], Tensor],
        n_classes: int,
        measures: Measures = OF_LABELS,
    ) -> None:
        self._head, self._targets, self._n_classes, self._measures = head, targets, n_classes, measures
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
                f"training.metric={next(iter(self._measures))}: the loss does not apply the head of the "
                "classes; choose another metric"
            )
        return {name: measure(self._matrix) for name, measure in self._measures.items()}

    def _observed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._batch = batch
            yield batch

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        assert self._batch is not None
        predicted, targets = logits.detach().argmax(-1).cpu(), self._targets(self._batch).cpu()
        counted = targets < self._n_classes
        indices = targets[counted] * self._n_classes + predicted[counted]
        cells = torch.bincount(indices, minlength=self._n_classes**2)
        self._matrix += cells.view(self._n_classes, self._n_classes).numpy()


def classes_of(batch: Batch) -> Tensor:
    """Return the class of each sequence of a batch."""
    assert batch.classes is not None
    return batch.classes

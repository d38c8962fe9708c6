"""Weights of classes in the loss, against training data in which some classes are rare.

    loss = (1 / n) Σ_i w(y_i) ℓ_i,      balanced: w(c) = n / (C n_c)

over the n items of an update, with n_c items of class c among the n of the training data, of C classes that
occur. Balanced weights have the mean 1 over the training data, so the learning rate stays apt. (torch's
``cross_entropy(weight=w)`` divides by the sum of the weights of a batch instead; then the loss of an update
would depend on how it is split into micro-batches.) Validations measure the loss without weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.recipes.schema import ClassWeights
from heedful.tasks.evaluation import Batches
from heedful.tasks.inputs.labels import check_known


@dataclass(frozen=True)
class WeightedBatches:
    """Training batches whose items have the weights of their classes. A `Batches`.

    Args:
        batches: batches with classes, or with classes as targets.
        weights: of each class.
    """

    batches: Batches
    weights: Float[Tensor, " C"]

    @property
    def lengths(self) -> Lengths:
        """The lengths of the samples."""
        return self.batches.lengths

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of some samples."""
        batch = self.batches(samples, epoch)
        return replace(batch, weights=self.weights[batch.targets if batch.classes is None else batch.classes])


def with_class_weights(
    batches: Batches, setting: ClassWeights, labels: Sequence[str], classes: NDArray[np.integer]
) -> Batches:
    """Return the batches with the weights of a recipe, or unchanged if it has none.

    Args:
        batches: the training batches.
        setting: ``objective.class_weights``.
        labels: the labels of the classes, in their order.
        classes: the class of every item of the training data.

    Raises:
        RequestError: the recipe gives a weight to an unknown label.
    """
    if setting is None:
        return batches
    return WeightedBatches(batches, weights_of(setting, labels, np.bincount(classes, minlength=len(labels))))


def weights_of(
    setting: Literal["balanced"] | Mapping[str, float], labels: Sequence[str], counts: NDArray[np.integer]
) -> Float[Tensor, " C"]:
    """Return the weight of each class.

    Args:
        setting: ``objective.class_weights``.
        labels: the labels of the classes, in their order.
        counts: the number of items of each class in the training data.

    Raises:
        RequestError: the recipe gives a weight to an unknown label.
    """
    weights = _balanced(counts) if setting == "balanced" else _given(setting, labels)
    return torch.from_numpy(weights).float()


def _balanced(counts: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return n / (C n_c) for each class; classes that do not occur are not counted in C."""
    return counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))


def _given(setting: Mapping[str, float], labels: Sequence[str]) -> NDArray[np.float64]:
    """Return the weight of each label: that of the recipe, or 1."""
    known = check_known(setting, labels, "objective.class_weights")
    weights = dict(zip(known, setting.values(), strict=True))
    return np.array([weights.get(label, 1.0) for label in labels])

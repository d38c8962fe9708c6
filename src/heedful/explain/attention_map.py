"""The attention of one layer, as plain values.

A *map* is the attention of one layer, from the tokens of one axis (`heedful.tasks.model_input.Axis`), the
queries, to those of the same or another axis, the keys.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.objectives.guided import DecoderStep

Weights = NDArray[np.float32]
MEMORY = "memory"
"""Name of the axis of the slots of a compressed memory."""
Kind = Literal["self", "causal", "cross"]
"""Kind of attention: within an axis, within an axis to earlier tokens only, or to another axis."""


@dataclass(frozen=True, repr=False, eq=False)
class AttentionMap:
    """The attention of one layer.

    Args:
        tap: name of the tap in the model.
        kind: kind of attention.
        layer: index within its stack, from 0.
        queries: name of the axis of the queries.
        keys: name of the axis of the keys.
        heads: indices of the heads, from 0.
        weights: ``[len(heads), queries, keys]``; each row sums to 1.
        is_part: whether it is a part of another map, with rows rescaled to sum 1
            (`heedful.explain.attention_sites`).
    """

    tap: str
    kind: Kind
    layer: int
    queries: str
    keys: str
    heads: tuple[int, ...]
    weights: Weights
    is_part: bool = False

    def __repr__(self) -> str:
        """Show the weights by their shape."""
        shape = " x ".join(map(str, self.weights.shape))
        return (
            f"<AttentionMap {self.tap}: {self.kind}, layer {self.layer}, {self.queries} to {self.keys}, "
            f"weights {shape}>"
        )

    def head(self, index: int) -> Weights:
        """Return the matrix of the head with this index, from 0.

        Raises:
            RequestError: the head is not in the map.
        """
        if index not in self.heads:
            expected = ", ".join(map(str, self.heads))
            raise RequestError(
                f"the map of layer {self.layer} has no head {index}; expected one of {expected} (from 0)"
            )
        return self.weights[self.heads.index(index)]


@dataclass(frozen=True)
class BestHead:
    """The head with the best known alignment, if it is in the explanation.

    It is selected by `heedful.explain.alignment.best_head`.

    Args:
        tap: tap of its map.
        head: index from 0; None: the mean of the layer.
        step: which row of the map belongs to a target token (see `rows_at_step` in
            `heedful.explain.alignment.word_alignment`).
    """

    tap: str
    head: int | None
    step: DecoderStep = "output"

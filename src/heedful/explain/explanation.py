"""Classes of an explanation, with plain values: all drawings, statistics and files use these.

An *axis* (`heedful.tasks.model_input.Axis`) has the tokens of a text, or the patches of an image. A *map* is
the attention of one layer, from the tokens of one axis (queries) to those of the same or another axis (keys).
"""

import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.objectives.guided import DecoderStep
from heedful.tasks.model_input import INPUT as INPUT  # for the lab
from heedful.tasks.model_input import Axis
from heedful.typing import JsonMapping

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


@dataclass(frozen=True, repr=False, eq=False)
class Explanation:
    """The attention, answer and views of one input.

    Args:
        task: kind of the run's task.
        run: name of the run.
        input: the input as it was passed.
        answer: the prediction, as returned by `heedful.tasks.prediction.Prediction.to_dict`.
        axes: by name: ``input``; or ``source``, ``target`` and ``prefix`` (the decoder's input); and
            ``memory``, the slots of compressed attention.
        maps: stack by stack, from the first to the last layer.
        log_probs: natural log-probabilities of the tokens of an axis that the model predicted, by name of the
            axis; None for other tokens, such as a prompt.
        views: further views by name (`heedful.explain.views`), JSON-ready.
        best: the head with the best known alignment, if it is in the explanation.
        unavailable: if all views were requested, those that are not available for the input, with the reason.
    """

    task: str
    run: str
    input: object
    answer: JsonMapping
    axes: Mapping[str, Axis]
    maps: Sequence[AttentionMap]
    log_probs: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    views: JsonMapping = field(default_factory=dict)
    best: BestHead | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for attention_map in self.maps:
            shape = (
                len(attention_map.heads),
                *(len(self.axes[name].tokens) for name in (attention_map.queries, attention_map.keys)),
            )
            weights = attention_map.weights
            if weights.shape != shape:
                raise ValueError(
                    f"{attention_map.tap}: weights must be of shape {shape}, got {weights.shape}"
                )

    @property
    def text(self) -> str:
        """The answer as text; empty if it has none."""
        return str(self.answer.get("text", ""))

    def map(self, kind: Kind, layer: int, queries: str | None = None) -> AttentionMap:
        """Return the map of the layer with this index, from 0.

        Args:
            kind: the kind of attention.
            layer: the index of the layer in its stack.
            queries: the name of the axis of the queries; None: the first that there is.

        Raises:
            RequestError: the explanation does not contain it.
        """
        kinds = dict.fromkeys(attention_map.kind for attention_map in self.maps)
        if kind not in kinds:
            raise RequestError(
                f"the explanation has no attention of the kind {kind!r}; it has {', '.join(kinds) or 'none'}"
            )
        if isinstance(layer, bool) or not isinstance(layer, SupportsIndex):
            raise RequestError(f"layer: expected an index from 0, got {layer!r}")
        axes = dict.fromkeys(
            attention_map.queries for attention_map in self.maps if attention_map.kind == kind
        )
        if queries is not None and queries not in axes:
            raise RequestError(
                f"queries: expected the name of an axis, one of {', '.join(axes)}, got {queries!r}; for one "
                f"head, map({kind!r}, {layer}).head(0)"
            )
        maps = [m for m in self.maps if m.kind == kind and (queries is None or m.queries == queries)]
        for attention_map in maps:
            if attention_map.layer == layer:
                return attention_map
        layers = ", ".join(str(attention_map.layer) for attention_map in maps)
        raise RequestError(
            f"the explanation has no {kind} attention of layer {layer}; expected one of {layers} (from 0)"
        )

    def __repr__(self) -> str:
        """Show the input and the answer, and what else there is, in one line."""
        kinds = Counter(attention_map.kind for attention_map in self.maps)
        maps = ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "none"
        views = f", views: {', '.join(self.views)}" if self.views else ""
        shown = " -> ".join(" ".join(reprlib.repr(value).split()) for value in (self.input, self.text))
        return f"<{type(self).__name__} of {shown}; maps: {maps}{views}>"

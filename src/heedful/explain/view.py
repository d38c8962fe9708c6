"""Classes of an explanation, with plain values: all drawings, statistics and files use these.

A *side* is one axis of a map: the tokens of a text, or the patches of an image. A *map* is the attention of
one layer, from the tokens of one side (queries) to the tokens of the same or another side (keys).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.objectives.guided import DecoderStep
from heedful.typing import JsonMapping

Weights = NDArray[np.float32]
SOURCE, TARGET, PREFIX, INPUT, MEMORY = "source", "target", "prefix", "input", "memory"
"""Names of sides. Encoder-decoder models: the encoder input, the decoder output, and the decoder input (the
output shifted by one). Other models: the input, and the slots of a compressed memory.
"""
Kind = Literal["self", "causal", "cross"]
"""Kind of attention: within a side, within a side to earlier tokens only, or to another side."""


@dataclass(frozen=True)
class Axis:
    """The tokens along one axis.

    Args:
        tokens: as they are displayed, including special tokens.
        words: the index of the word that each token belongs to, from 0 without gaps; -1 for none.
        surface: the words.
        grid: rows and columns if the tokens are image patches, in row-major order.
        before: number of tokens before the patches (a class token).
        image: the image as a PNG, in the size that the model reads.
    """

    tokens: tuple[str, ...]
    words: tuple[int, ...] = ()
    surface: tuple[str, ...] = ()
    grid: tuple[int, int] | None = None
    before: int = 0
    image: bytes | None = None


@dataclass(frozen=True)
class Map:
    """The attention of one layer.

    Args:
        tap: name of the tap in the model.
        kind: kind of attention.
        layer: index within its stack, from 0.
        queries: name of the side of the queries.
        keys: name of the side of the keys.
        heads: indices of the heads, from 0.
        weights: ``[len(heads), queries, keys]``; each row sums to 1.
        is_part: whether it is a part of another map, with rows rescaled to sum 1
            (`heedful.explain.one_text`).
    """

    tap: str
    kind: Kind
    layer: int
    queries: str
    keys: str
    heads: tuple[int, ...]
    weights: Weights
    is_part: bool = False

    def head(self, number: int) -> Weights:
        """Return the matrix of one head.

        Raises:
            RequestError: the head is not in the map.
        """
        if number not in self.heads:
            shown = ", ".join(str(head + 1) for head in self.heads)
            raise RequestError(
                f"layer {self.layer + 1}: head {number + 1} is not in the map; expected one of {shown}"
            )
        return self.weights[self.heads.index(number)]


@dataclass(frozen=True)
class Best:
    """The head with the best known alignment (`heedful.explain.best_head`), if it is in the explanation.

    Args:
        tap: tap of its map.
        head: index from 0; None: the mean of the layer.
        step: which row of the map belongs to a target token (`heedful.explain.alignment.at_step`).
    """

    tap: str
    head: int | None
    step: DecoderStep = "output"


@dataclass(frozen=True)
class Explanation:
    """The attention, answer and views of one input.

    Args:
        task: kind of the run's task.
        run: name of the run.
        input: the input as it was passed.
        answer: the prediction, as returned by `heedful.tasks.prediction.Prediction.to_dict`.
        sides: by name: ``input``, or ``source`` and ``target``.
        maps: stack by stack, from the first to the last layer.
        written: natural log-probabilities of the tokens of a side that the model predicted, by name of the
            side; None for other tokens, such as a prompt.
        more: further views by name (`heedful.explain.views`), JSON-ready.
        absent: if all views were requested, those that are not available for the input, with the reason.
        best: the head with the best known alignment, if it is in the explanation.
    """

    task: str
    run: str
    input: Any
    answer: JsonMapping
    sides: Mapping[str, Axis]
    maps: Sequence[Map]
    written: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    more: JsonMapping = field(default_factory=dict)
    best: Best | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.maps:
            shape = (
                len(each.heads),
                len(self.sides[each.queries].tokens),
                len(self.sides[each.keys].tokens),
            )
            if each.weights.shape != shape:
                raise ValueError(f"{each.tap}: weights must be of shape {shape}, got {each.weights.shape}")

    def map(self, kind: Kind, layer: int, queries: str | None = None) -> Map:
        """Return the map of a layer.

        Raises:
            RequestError: the explanation does not contain it.
        """
        found = [m for m in self.maps if m.kind == kind and (queries is None or m.queries == queries)]
        for each in found:
            if each.layer == layer:
                return each
        layers = ", ".join(str(each.layer + 1) for each in found)
        expected = f"expected layer {layers}" if layers else "the explanation has no map of this kind"
        raise RequestError(f"layer {layer + 1} has no {kind} attention; {expected}")

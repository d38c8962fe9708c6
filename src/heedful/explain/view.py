"""What an explanation is made of, as plain values: everything that draws, counts or writes reads these.

A *side* is what stands along an axis: the tokens of a text, or the patches of an image. A *map* is the
attention of one layer, from the tokens of one side to those of one side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.errors import RequestError
from heedful.objectives.guided import DecoderStep

Weights = NDArray[np.float32]
SOURCE, TARGET, PREFIX, INPUT, MEMORY = "source", "target", "prefix", "input", "memory"
"""The names of sides. Of a model with two: what is read, what is written, and what the writer reads (the
same, one token behind). Of a model with one: its input; and slots that each stand for several tokens."""
Kind = Literal["self", "causal", "cross"]
"""Who looks at whom: all tokens of a side at each other, at those before them, or at another side."""


@dataclass(frozen=True)
class Axis:
    """What stands along an axis.

    Args:
        tokens: as they are shown to people, special ones included.
        words: the number of the word that each token belongs to, from 0 without gaps; -1 for none.
        surface: the words.
        grid: rows and columns, where the tokens are patches of an image, row by row.
        before: how many tokens stand before the patches (a class token).
        image: the image as a PNG, at the size that the model reads.
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
        tap: the name of the point in the model where it was read.
        kind: who looks at whom.
        layer: counted from 0 within its stack.
        queries: the name of the side that looks.
        keys: the name of the side that is looked at.
        heads: which heads of the layer, counted from 0.
        weights: ``[len(heads), tokens that look, tokens that are looked at]``; every row sums to 1.
        is_part: whether it is cut out of another map, and its rows divided by their sums
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
        """The matrix of one head.

        Raises:
            RequestError: it was not asked for, or there is no such head.
        """
        if number not in self.heads:
            shown = ", ".join(str(head + 1) for head in self.heads)
            raise RequestError(f"head {number + 1} is not there; layer {self.layer + 1} has {shown}")
        return self.weights[self.heads.index(number)]


@dataclass(frozen=True)
class Best:
    """The head that is known to align best (`heedful.explain.best_head`), where it is shown.

    Args:
        tap: of its map.
        head: its number from 0; None for the mean of the layer.
        step: which of the map's rows is that of a target token (`heedful.explain.alignment.at_step`).
    """

    tap: str
    head: int | None
    step: DecoderStep = "output"


@dataclass(frozen=True)
class Explanation:
    """What was seen of one input.

    Args:
        task: of the run.
        run: its name.
        input: as it was given.
        answer: the prediction, as `heedful.tasks.prediction.Prediction.to_dict` has it.
        sides: by name: ``input``, or ``source`` and ``target``.
        maps: from the first layer to the last; stacks one after the other.
        written: natural log-probabilities of the tokens of a side that the model wrote or was asked about, by
            the name of the side; None where there is none (what was given as a prompt, say).
        more: further views by their names (`heedful.explain.views`), JSON-ready.
        absent: of views that were asked for with all others, and that the run has but the input has not, why.
        best: the head that is known to align best, where it is shown.
    """

    task: str
    run: str
    input: Any
    answer: Mapping[str, Any]
    sides: Mapping[str, Axis]
    maps: Sequence[Map]
    written: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
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
                raise ValueError(f"{each.tap}: weights of shape {each.weights.shape} for {shape}")

    def map(self, kind: Kind, layer: int, queries: str | None = None) -> Map:
        """The map of a layer.

        Raises:
            RequestError: there is none.
        """
        found = [m for m in self.maps if m.kind == kind and (queries is None or m.queries == queries)]
        for each in found:
            if each.layer == layer:
                return each
        layers = ", ".join(str(each.layer + 1) for each in found)
        told = f"layers {layers} have some" if layers else "the model has none of that kind"
        raise RequestError(f"there is no {kind} attention in layer {layer + 1}: {told}")

"""Convert an `Explanation` to JSON, as described by ``docs/schemas/explanation.schema.json``.

In JSON, layers and heads are counted from 1, positions on an axis from 0. Weights are rounded to 6 decimal
places, so a row may differ from a sum of 1 by up to half a unit of the last place per key.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.explain.attention_map import Weights
from heedful.explain.summary import alignment_of
from heedful.files import is_unicode
from heedful.tasks.model_input import Axis
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

VERSION = 3
DIGITS = 6


def json_pieces(explanation: "Explanation", row: JsonMapping | None = None) -> Iterator[str]:
    """Yield the JSON object on one line, in pieces; at most one row of weights is a list at a time.

    As Python floats, all weights together would take eight times the memory of the arrays.

    Args:
        explanation: the explanation.
        row: the fields of the input's record, if it is one of several.

    Raises:
        ValueError: a number is not finite; raised before the first piece.
    """
    fields = _without_weights(explanation)
    if row is not None:
        fields = {"version": fields.pop("version"), "row": dict(row), **fields}
    is_escaped = not is_unicode(json.dumps(fields, ensure_ascii=False, allow_nan=False))
    to_json = partial(json.dumps, ensure_ascii=is_escaped, allow_nan=False)
    for attention_map in explanation.maps:
        if not np.isfinite(attention_map.weights).all():
            raise ValueError(f"{attention_map.tap}: a weight is not finite")
    maps = zip(fields["maps"], explanation.maps, strict=True)
    for index, (name, value) in enumerate(fields.items()):
        yield f"{', ' if index else '{'}{to_json(name)}: "
        if name == "maps":
            yield from _list_pieces(
                _map_pieces(map_fields, attention_map.weights, to_json) for map_fields, attention_map in maps
            )
        else:
            yield to_json(value)
    yield "}"


def _map_pieces(fields: JsonObject, weights: Weights, to_json: Callable[[object], str]) -> Iterator[str]:
    """Yield the JSON of a map: its other fields, then its weights."""
    yield f'{to_json(fields)[:-1]}, "weights": '
    yield from _list_pieces(
        _list_pieces([to_json(_rounded(row).tolist())] for row in head) for head in weights
    )
    yield "}"


def _list_pieces(items: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the JSON of a list, given its items in pieces."""
    yield "["
    for index, item in enumerate(items):
        if index:
            yield ", "
        yield from item
    yield "]"


def _without_weights(explanation: "Explanation") -> JsonObject:
    """Return all fields except the weights of the maps."""
    fields: JsonObject = {
        "version": VERSION,
        "run": explanation.run,
        "task": explanation.task,
        "input": _input_json(explanation.input),
        "answer": _answer_json(explanation.answer),
        "sides": [
            _axis_json(name, axis, explanation.log_probs.get(name)) for name, axis in explanation.axes.items()
        ],
        "more": dict(explanation.views),
        "maps": [
            {
                "tap": attention_map.tap,
                "kind": attention_map.kind,
                "layer": attention_map.layer,
                "queries": attention_map.queries,
                "keys": attention_map.keys,
                "heads": [*attention_map.heads],
                **({"part": True} if attention_map.is_part else {}),
            }
            for attention_map in explanation.maps
        ],
    }
    if explanation.unavailable:
        fields["unavailable"] = dict(explanation.unavailable)
    if (best := explanation.best) is not None:
        fields["best"] = {"tap": best.tap, "head": best.head, "step": best.step}
    if (alignment := alignment_of(explanation)) is not None:
        fields["alignment"] = alignment[1]
    if explanation.provenance:
        fields["provenance"] = dict(explanation.provenance)
    return fields


def description(explanation: "Explanation") -> str:
    """Return run, input, answer and provenance as JSON in ASCII, for the metadata of an image.

    Of the path of an image, only its name is kept.
    """
    names = ("run", "task", "input", "answer", "provenance")
    fields = _without_weights(explanation)
    if any(axis.grid for axis in explanation.axes.values()) and isinstance(fields["input"], str):
        fields["input"] = Path(fields["input"]).name
    return json.dumps({name: fields[name] for name in names if name in fields}, allow_nan=False)


def _input_json(task_input: object) -> str | list[str] | None:
    """Return a text, the path of an image, or a list of texts; None if the input has no JSON form."""
    if isinstance(task_input, list | tuple):
        return [str(part) for part in task_input]
    return str(task_input) if isinstance(task_input, str) or hasattr(task_input, "__fspath__") else None


def _axis_json(name: str, axis: Axis, log_probs: Sequence[float | None] | None) -> JsonObject:
    fields: JsonObject = {
        "name": name,
        "tokens": list(axis.tokens),
        "words": list(axis.words),
        "surface": list(axis.surface),
    }
    if axis.grid is not None:
        fields |= {"grid": list(axis.grid), "before": axis.before}
    if axis.image is not None:
        fields["image"] = b64encode(axis.image).decode("ascii")
    if log_probs is not None:
        finite = map(_finite, log_probs)
        fields["written"] = [None if log_prob is None else round(log_prob, DIGITS) for log_prob in finite]
    return fields


def _answer_json(answer: JsonMapping) -> JsonObject:
    """Return an answer; a given answer can have probability 0."""
    fields = dict(answer)
    if "score" in fields:
        fields["score"] = _finite(fields["score"])
    if "log_probs" in fields:
        fields["log_probs"] = [*map(_finite, fields["log_probs"])]
    return fields


def _finite(log_prob: float | None) -> float | None:
    """Return None for the logarithm of probability 0, which has no JSON form."""
    return None if log_prob is None or not math.isfinite(log_prob) else log_prob


def _rounded(weights: Weights) -> NDArray[np.float64]:
    """Return rounded weights in fp64, because fp32 values have no short decimal form."""
    return weights.astype(np.float64).round(DIGITS)

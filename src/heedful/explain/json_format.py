"""Convert an `Explanation` to JSON, as described by ``docs/schemas/explanation.schema.json``.

In JSON, layers and heads are counted from 1, positions on an axis from 0. Weights are rounded to 6 decimal
places, so a row may differ from a sum of 1 by up to half a unit of the last place per key.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from heedful.explain.explanation import Explanation, Weights
from heedful.explain.summary import alignment_of
from heedful.files import is_unicode
from heedful.tasks.model_input import Axis
from heedful.typing import JsonObject

VERSION = 1
DIGITS = 6


def json_pieces(explanation: Explanation) -> Iterator[str]:
    """Yield the JSON object on one line, in pieces; at most one row of weights is a list at a time.

    As Python floats, all weights together would take eight times the memory of the arrays.

    Raises:
        ValueError: a number is not finite; raised before the first piece.
    """
    whole = _without_weights(explanation)
    is_escaped = not is_unicode(json.dumps(whole, ensure_ascii=False, allow_nan=False))
    text = partial(json.dumps, ensure_ascii=is_escaped, allow_nan=False)
    for each in explanation.maps:
        if not np.isfinite(each.weights).all():
            raise ValueError(f"{each.tap}: a weight is not finite")
    maps = zip(whole["maps"], explanation.maps, strict=True)
    for number, (name, value) in enumerate(whole.items()):
        yield f"{', ' if number else '{'}{text(name)}: "
        if name == "maps":
            yield from _list_pieces(_map_pieces(plain, each.weights, text) for plain, each in maps)
        else:
            yield text(value)
    yield "}"


def _map_pieces(plain: JsonObject, weights: Weights, text: Callable[[object], str]) -> Iterator[str]:
    """Yield the JSON of a map: its other fields, then its weights."""
    yield f'{text(plain)[:-1]}, "weights": '
    yield from _list_pieces(_list_pieces([text(_rounded(row).tolist())] for row in head) for head in weights)
    yield "}"


def _list_pieces(items: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the JSON of a list, given its items in pieces."""
    yield "["
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield from item
    yield "]"


def _without_weights(explanation: Explanation) -> JsonObject:
    """Return all fields except the weights of the maps."""
    plain: JsonObject = {
        "version": VERSION,
        "run": explanation.run,
        "task": explanation.task,
        "input": _input_json(explanation.input),
        "answer": dict(explanation.answer),
        "sides": [
            _axis_json(name, axis, explanation.log_probs.get(name)) for name, axis in explanation.axes.items()
        ],
        "maps": [
            {
                "tap": each.tap,
                "kind": each.kind,
                "layer": each.layer + 1,
                "queries": each.queries,
                "keys": each.keys,
                "heads": [head + 1 for head in each.heads],
                **({"part": True} if each.is_part else {}),
            }
            for each in explanation.maps
        ],
        "more": dict(explanation.views),
    }
    if (best := explanation.best) is not None:
        head = None if best.head is None else best.head + 1
        plain["best"] = {"tap": best.tap, "head": head, "step": best.step}
    if (links := alignment_of(explanation)) is not None:
        plain["alignment"] = links
    return plain


def _input_json(given: object) -> str | list[str] | None:
    """Return a text, the path of an image, or a list of texts; None if the input has no JSON form."""
    if isinstance(given, list | tuple):
        return [str(part) for part in given]
    return str(given) if isinstance(given, str) or hasattr(given, "__fspath__") else None


def _axis_json(name: str, axis: Axis, log_probs: Sequence[float | None] | None) -> JsonObject:
    plain: JsonObject = {
        "name": name,
        "tokens": list(axis.tokens),
        "words": list(axis.words),
        "surface": list(axis.surface),
    }
    if axis.grid is not None:
        plain |= {"grid": list(axis.grid), "before": axis.before}
    if axis.image is not None:
        plain["image"] = b64encode(axis.image).decode("ascii")
    if log_probs is not None:
        # The logarithm of probability 0 has no JSON form.
        finite = [None if value is None or not math.isfinite(value) else value for value in log_probs]
        plain["written"] = [None if value is None else round(value, DIGITS) for value in finite]
    return plain


def _rounded(weights: Weights) -> NDArray[np.float64]:
    """Return rounded weights in fp64, because fp32 values have no short decimal form."""
    return weights.astype(np.float64).round(DIGITS)

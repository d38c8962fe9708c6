"""An `Explanation` as one JSON object, as ``docs/schemas/explanation.schema.json`` has it.

Layers and heads are counted from 1 there, as people count them; places on a side from 0. Weights are rounded
to 6 digits behind the point, so a row sums to 1 but for half of that a key.
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.explain.summary import alignment_of
from heedful.explain.view import Explanation, Map, Side

VERSION = 1
DIGITS = 6


def jsonable(explanation: Explanation) -> dict[str, Any]:
    """The whole of it."""
    return {
        "version": VERSION,
        "run": explanation.run,
        "task": explanation.task,
        "input": _input(explanation.input),
        "answer": dict(explanation.answer),
        "sides": [
            _side(name, side, explanation.written.get(name)) for name, side in explanation.sides.items()
        ],
        "maps": [_map(each) for each in explanation.maps],
        "more": dict(explanation.more),
        **_best(explanation),
        **_alignment(explanation),
    }


def _best(explanation: Explanation) -> dict[str, Any]:
    """The head that is known to align best, if one is."""
    if explanation.best is None:
        return {}
    tap, head = explanation.best
    return {"best": {"tap": tap, "head": None if head is None else head + 1}}


def _alignment(explanation: Explanation) -> dict[str, Any]:
    """Which word belongs to which, where a text was written from another."""
    links = alignment_of(explanation)
    return {} if links is None else {"alignment": links}


def _input(given: Any) -> str | list[str] | None:
    """A text, the path of a picture, or several texts; None for what has no form in JSON."""
    if isinstance(given, list | tuple):
        return [str(part) for part in given]
    return str(given) if isinstance(given, str) or hasattr(given, "__fspath__") else None


def _side(name: str, side: Side, written: Sequence[float | None] | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": name,
        "tokens": list(side.tokens),
        "words": list(side.words),
        "surface": list(side.surface),
    }
    if side.grid is not None:
        plain |= {"grid": list(side.grid), "before": side.before}
    if side.picture is not None:
        plain["picture"] = b64encode(side.picture).decode("ascii")
    if written is not None:
        plain["written"] = [None if value is None else _log_prob(value) for value in written]
    return plain


def _log_prob(value: float) -> float | None:
    """None for a probability of zero, whose logarithm JSON cannot hold."""
    return round(value, DIGITS) if math.isfinite(value) else None


def _map(each: Map) -> dict[str, Any]:
    return {
        "tap": each.tap,
        "kind": each.kind,
        "layer": each.layer + 1,
        "queries": each.queries,
        "keys": each.keys,
        "heads": [head + 1 for head in each.heads],
        # As doubles, for the digits of a single precision number go on.
        "weights": np.round(each.weights.astype(np.float64), DIGITS).tolist(),
    }

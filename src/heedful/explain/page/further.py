"""Further views of an explanation, as drawings of two kinds: a number for each token, or a table.

What says its ``kind`` is drawn as it is: ``{"title", "kind": "tokens", "side", "values"}``, with None where
there is no number, or ``{"title", "kind": "table", "columns", "rows"}``, where a cell is a text, a number,
None, or a pair of a text and a probability. The views that heedful makes itself have a form of their own
(theirs is that of a result, this of a picture) and are turned into these. Others are left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.explain.view import Explanation, Side

Drawing = dict[str, Any]

_DIGITS = 6


def drawings(explanation: Explanation) -> list[Drawing]:
    """All that can be drawn of ``explanation.more``, in its order."""
    found: list[Drawing] = []
    for name, view in explanation.more.items():
        if view.get("kind") in ("tokens", "table"):
            found.append(dict(view))
        elif name in _OWN:
            found += _OWN[name](view, explanation.sides)
    return [each for each in found if each["kind"] == "table" or each["side"] in explanation.sides]


def _lens(view: Mapping[str, Any], sides: Mapping[str, Side]) -> list[Drawing]:
    """A row for each depth: the answer that was most probable there to each question."""
    if not view.get("depths"):
        return []
    rows = []
    for depth, each in enumerate(view["depths"]):
        best = [top[0] for top in each["top"]]
        name = f"layer {depth}" if depth else "embeddings"
        rows.append([name, *([one["answer"], _probability(one["log_prob"])] for one in best)])
    columns = ["after", *view["answers"]]
    return [
        {"title": "What each depth would have answered", "kind": "table", "columns": columns, "rows": rows}
    ]


def _losses(view: Mapping[str, Any], sides: Mapping[str, Side]) -> list[Drawing]:
    """What each token cost; nothing where the questions are about the whole input."""
    if not view["places"] or view["side"] not in sides:
        return []
    values: list[float | None] = [None] * len(sides[view["side"]].tokens)
    for place, loss in zip(view["places"], view["losses"], strict=True):
        values[place] = loss
    title = f"What each token of the {view['side']} cost, in nats"
    if view.get("perplexity") is not None:
        title += f" (perplexity {view['perplexity']:.4g})"
    return [{"title": title, "kind": "tokens", "side": view["side"], "values": values}]


def _gradients(view: Mapping[str, Any], sides: Mapping[str, Side]) -> list[Drawing]:
    """What of each side speaks for the answer, and what against it."""
    return [
        {
            "title": f"Gradient times input, {each['name']}",
            "kind": "tokens",
            "side": each["name"],
            "values": each["products"],
        }
        for each in view["sides"]
    ]


def _probability(log_prob: float | None) -> float:
    return 0.0 if log_prob is None else float(f"{math.exp(min(log_prob, 0.0)):.{_DIGITS}g}")


_OWN: dict[str, Callable[[Mapping[str, Any], Mapping[str, Side]], Sequence[Drawing]]] = {
    "lens": _lens,
    "losses": _losses,
    "gradients": _gradients,
}

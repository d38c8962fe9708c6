"""Attention through all layers (`heedful.explain.flow.rollouts`)."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import points
from heedful.explain.flow import rollouts
from heedful.explain.patches import class_map, on_grid
from heedful.explain.reading import ModelInput
from heedful.explain.summary import Shown
from heedful.explain.terminal import choose_style, heat_map, link_lines
from heedful.explain.view import MEMORY, PREFIX, Explanation
from heedful.explain.views.shared import headline, rounded_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

RESIDUAL = 0.5
"""The share of each token that goes past attention, as in the paper."""


def has(run: "Run") -> bool:
    """Whether a stack looks at its own tokens in every layer, and no decoder is in its way."""
    there_are = points(run.model)
    if any(point.keys == MEMORY for point in there_are):
        return False
    return any(point.kind != "cross" and point.queries != PREFIX for point in there_are)


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """How much of each token arrives at each other one, if attention alone moved it.

    Returns:
        ``residual``, and ``matrices``: for each pair of sides their names ``queries`` and ``keys``, and
        ``weights``, whose row says where a token at the top of the stack comes from. Rows of a stack sum
        to 1; of a decoder, those of both its matrices together do.

    Raises:
        RequestError: some attention was not asked for.
    """
    explanation = seen[0]
    seen_all = {(each.tap, each.heads) for each in explanation.maps}
    if {(point.tap, point.heads) for point in points(run.model)} - seen_all:
        raise RequestError(
            "rollout takes the attention of all kinds, layers and heads: explain the input without "
            "choosing some"
        )
    found = rollouts(explanation, residual=RESIDUAL)
    pairs = dict.fromkeys((each.queries, each.keys) for each in explanation.maps)
    matrices = [
        {"queries": queries, "keys": keys, "weights": rounded_all(found[queries, keys])}
        for queries, keys in pairs
        if (queries, keys) in found
    ]
    return {"residual": RESIDUAL, "matrices": matrices}


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """Where each token at the top comes from: the strongest links, or over the image."""
    told = []
    for shown in _matrices(seen, values):
        told.append(shown.title)
        if shown.keys.grid is None:
            told += link_lines(shown.in_words().strongest())
        else:
            over = _over_patches(shown)
            rows, columns = ([str(i + 1) for i in range(n)] for n in over.shape)
            style = choose_style(sys.stdout)
            told += heat_map(columns, rows, over / (over.max() or 1.0), style=style).splitlines()
            told.append(f"  the darkest is {over.max():.2g}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Over each image; all else the page draws as it draws attention."""
    return [
        {
            "title": headline(shown.title),
            "kind": "patches",
            "side": matrix["keys"],
            "images": [{"label": _looks(shown), "values": _over_patches(shown).ravel().tolist()}],
            "among": _among(shown),
        }
        for shown, matrix in zip(_matrices(seen, values), values["matrices"], strict=True)
        if shown.keys.grid is not None
    ]


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """The last one: of a decoder where there is one."""
    from heedful.explain.drawings import attention_over
    from heedful.explain.heat_map import check_size, heat_map

    *_, shown = _matrices(seen, values)
    title = str(seen.answer.get("text", ""))
    if shown.keys.grid is not None:
        note = f"{shown.title}: {_looks(shown)}"
        over = _over_patches(shown)
        return attention_over(over, shown.keys.image, among=_among(shown), title=title, note=note)
    shown = shown.in_words()
    check_size(*shown.weights.shape)
    return heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, title=title, note=shown.title)


def _matrices(seen: Explanation, values: Mapping[str, Any]) -> Iterator[Shown]:
    for each in values["matrices"]:
        queries, keys = each["queries"], each["keys"]
        if queries == keys:
            title = f"rollout of the {queries}: where each token at the top comes from"
        else:
            title = f"rollout: what of the {keys} arrives at each token of the {queries}"
        weights = np.asarray(each["weights"], dtype=float).clip(0.0, 1.0)
        yield Shown(seen.sides[queries], seen.sides[keys], weights, title)


def _over_patches(shown: Shown) -> Any:
    """``[rows, columns]``: what the class token is made of; without one, the mean of all tokens."""
    if shown.queries.grid is not None:
        return class_map(shown.weights, shown.keys)
    return on_grid(shown.weights.mean(axis=0), shown.keys)


def _among(shown: Shown) -> int | None:
    """How many tokens each row is shared among; None of a decoder's, which shares it with its own tokens."""
    return len(shown.keys.tokens) if shown.queries is shown.keys else None


def _looks(shown: Shown) -> str:
    return "class token" if shown.queries.before else "mean of all tokens"

"""All heads at a glance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import points
from heedful.explain.reading import ModelInput
from heedful.explain.summary import NAMES
from heedful.explain.thumbnails import thumbnail
from heedful.explain.view import Explanation, Map
from heedful.explain.views.shared import headline, rounded_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.explain.drawings import HeadGrid
    from heedful.runs.run import Run

Stack = tuple[str, str, str]
"""Who looks at whom: the kind of attention, and the names of both sides."""


def has(run: "Run") -> bool:
    """Whether there is attention."""
    return bool(points(run.model))


def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """How sharply each head looks: the mean over tokens of the greatest weight.

        sharpness = 1/T sum_i max_j a_ij        from 1/K, all K keys alike, to 1, each token at a single one

    Source: Voita et al. 2019, section 4.1 ("confidence", there without the end token).

    Returns:
        ``stacks``: of each its ``kind`` and the sides ``queries`` and ``keys``, and ``layers``, each with
        ``layer`` and ``heads`` from 1, ``tap`` and ``sharpness``.

    Raises:
        RequestError: no attention was asked for.
    """
    stacks = _stacks(seen[0])
    if not stacks:
        raise RequestError("the view heads is of attention: ask for some, or for all")
    return {
        "stacks": [
            {
                "kind": kind,
                "queries": queries,
                "keys": keys,
                "layers": [
                    {
                        "layer": each.layer + 1,
                        "tap": each.tap,
                        "heads": [head + 1 for head in each.heads],
                        "sharpness": rounded_all(each.weights.max(axis=2).mean(axis=1, dtype=np.float64)),
                    }
                    for each in maps
                ],
            }
            for (kind, queries, keys), maps in stacks.items()
        ]
    }


def _stacks(seen: Explanation) -> dict[Stack, list[Map]]:
    """The maps that have weights, layer by layer."""
    found: dict[Stack, list[Map]] = {}
    for each in seen.maps:
        if each.weights.size and not each.is_part:
            found.setdefault((each.kind, each.queries, each.keys), []).append(each)
    return found


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """A line for each layer: the mean of its heads, then each head."""
    told = []
    for stack in values["stacks"]:
        told += [_title(stack), f"  {'layer':>5} {'mean':>6}  each head"]
        for layer in stack["layers"]:
            sharp = layer["sharpness"]
            heads = " ".join(f"{value:>5.2f}" for value in sharp)
            told.append(f"  {layer['layer']:>5} {sum(sharp) / len(sharp):>6.2f}  {heads}")
    return told


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How sharply each looks, each of which opens; thumbnails the page has anyway."""
    found = []
    for stack in values["stacks"]:
        columns = sorted({head for layer in stack["layers"] for head in layer["heads"]})
        rows = [[layer["layer"], *_cells(layer, columns)] for layer in stack["layers"]]
        names = ["layer", *(f"head {number}" for number in columns)]
        found.append({"title": headline(_title(stack)), "kind": "table", "columns": names, "rows": rows})
    return found


def _cells(layer: Mapping[str, Any], columns: Sequence[int]) -> Iterator[dict[str, Any] | None]:
    sharp = dict(zip(layer["heads"], layer["sharpness"], strict=True))
    for head in columns:
        value = sharp.get(head)
        opens = {"tap": layer["tap"], "head": head - 1}
        yield None if value is None else {"text": f"{value:.2f}", "share": min(value, 1.0), **opens}


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """A thumbnail of each head, and of the mean of each layer."""
    from heedful.explain.drawings import head_grids

    grids = [_grid(f"{_name(*stack)} ({_size(maps[0])})", maps) for stack, maps in _stacks(seen).items()]
    note = "a row looks, a column is looked at; colours go with the square root of the weight"
    return head_grids(grids, title=str(seen.answer.get("text", "")), note=note)


def _grid(name: str, maps: Sequence[Map]) -> "HeadGrid":
    """Thumbnails of all heads; where a layer has several, the mean comes last."""
    from heedful.explain.drawings import HeadGrid

    heads = sorted({head for each in maps for head in each.heads})
    has_mean = any(len(each.heads) > 1 for each in maps)
    shape = thumbnail(maps[0].weights[0].astype(np.float64)).shape
    cells = np.full((len(maps), len(heads) + has_mean, *shape), np.nan)
    for row, each in zip(cells, maps, strict=True):
        for head in each.heads:
            row[heads.index(head)] = thumbnail(each.head(head).astype(np.float64))
        if has_mean:
            row[-1] = thumbnail(each.weights.mean(axis=0, dtype=np.float64))
    names = [*(str(head + 1) for head in heads), *["mean"] * has_mean]
    n_rows, n_columns = maps[0].weights.shape[1:]
    aspect = min(max(n_columns / n_rows, 0.5), 2.0)
    return HeadGrid(name, [str(each.layer + 1) for each in maps], names, cells, aspect)


def _size(each: Map) -> str:
    rows, columns = each.weights.shape[1:]
    return f"{rows} \N{MULTIPLICATION SIGN} {columns} tokens"


def _name(kind: str, queries: str, keys: str) -> str:
    """Who looks at whom, in words."""
    of = f"of the {queries}" if queries == keys else f"of the {queries}, at the {keys}"
    return f"{NAMES[kind]} {of}"


def _title(stack: Mapping[str, Any]) -> str:
    name = _name(stack["kind"], stack["queries"], stack["keys"])
    return f"how sharply each head looks (1: each token at a single one): {name}"

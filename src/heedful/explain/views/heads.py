"""View ``heads``: thumbnails and sharpness of all heads."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.errors import RequestError
from heedful.explain.attention_sites import find_sites
from heedful.explain.summary import NAMES
from heedful.explain.thumbnails import thumbnail
from heedful.explain.view import Explanation, Map
from heedful.explain.views.shared import headline, rounded_all
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.explain.drawings import HeadGrid
    from heedful.runs.run import Run

Stack = tuple[str, str, str]
"""Kind of attention, name of the query side, name of the key side."""


def has(run: "Run") -> bool:
    """Whether the model has attention."""
    return bool(find_sites(run.model))


def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the sharpness of each head: the mean over queries of the largest weight.

        sharpness = 1/T sum_i max_j a_ij        from 1/K (uniform over K keys) to 1 (one key per query)

    Source: Voita et al. 2019, section 4.1 ("confidence", there without the end token).

    Returns:
        ``stacks``: for each its ``kind`` and the sides ``queries`` and ``keys``, and ``layers``, each with
        ``layer`` and ``heads`` from 1, ``tap`` and ``sharpness``.

    Raises:
        RequestError: no attention was selected.
    """
    stacks = _stacks(explanations[0])
    if not stacks:
        raise RequestError("view heads needs attention; select some, or remove the selection")
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


def _stacks(explanation: Explanation) -> dict[Stack, list[Map]]:
    """Return the maps that have weights by stack, from the first to the last layer."""
    found: dict[Stack, list[Map]] = {}
    for each in explanation.maps:
        if each.weights.size and not each.is_part:
            found.setdefault((each.kind, each.queries, each.keys), []).append(each)
    return found


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per layer: the mean of its heads, then each head."""
    output = []
    for stack in values["stacks"]:
        output += [_title(stack), f"  {'layer':>5} {'mean':>6}  each head"]
        for layer in stack["layers"]:
            sharp = layer["sharpness"]
            heads = " ".join(f"{value:>5.2f}" for value in sharp)
            output.append(f"  {layer['layer']:>5} {sum(sharp) / len(sharp):>6.2f}  {heads}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return tables of sharpness; clicking a cell opens the head. The page always has thumbnails."""
    found = []
    for stack in values["stacks"]:
        columns = sorted({head for layer in stack["layers"] for head in layer["heads"]})
        rows = [[layer["layer"], *_cells(layer, columns)] for layer in stack["layers"]]
        names = ["layer", *(f"head {number}" for number in columns)]
        found.append({"title": headline(_title(stack)), "kind": "table", "columns": names, "rows": rows})
    return found


def _cells(layer: JsonMapping, columns: Sequence[int]) -> Iterator[JsonObject | None]:
    sharp = dict(zip(layer["heads"], layer["sharpness"], strict=True))
    for head in columns:
        value = sharp.get(head)
        opens = {"tap": layer["tap"], "head": head - 1}
        yield None if value is None else {"text": f"{value:.2f}", "share": min(value, 1.0), **opens}


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw a thumbnail of each head and of the mean of each layer."""
    from heedful.explain.drawings import head_grids

    grids = [
        _grid(f"{_name(*stack)} ({_size(maps[0])})", maps) for stack, maps in _stacks(explanation).items()
    ]
    note = "rows: queries, columns: keys; colours by the square root of the weight"
    return head_grids(grids, title=str(explanation.answer.get("text", "")), note=note)


def _grid(name: str, maps: Sequence[Map]) -> "HeadGrid":
    """Return the thumbnails of all heads, followed by their mean if a layer has several."""
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
    """Return the kind of attention and its sides."""
    of = f"of the {queries}" if queries == keys else f"of the {queries} to the {keys}"
    return f"{NAMES[kind]} {of}"


def _title(stack: JsonMapping) -> str:
    name = _name(stack["kind"], stack["queries"], stack["keys"])
    return f"sharpness of each head (1: one key per query): {name}"

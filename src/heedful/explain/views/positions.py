"""How alike the vectors of positions are, learned or not (Dosovitskiy et al. 2021, figure 7, centre)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from heedful.explain.page.packing import signed
from heedful.explain.patches import mosaic, position_similarity
from heedful.explain.reading import ModelInput
from heedful.explain.view import Explanation
from heedful.explain.views.shared import embeddings_of, rounded_all
from heedful.nn.positions import NoPositions, Positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

MOST = 512
"""Positions of a side, at most."""

DIGITS = 4
"""Of a cosine."""


def has(run: "Run") -> bool:
    """Whether something that is embedded has vectors of positions."""
    return bool(_parts(run.model))


def _parts(model: nn.Module) -> dict[str, Positions]:
    """The parts that make vectors of positions, by the side that they stand in."""
    found = {}
    for side, embedding in embeddings_of(model).items():
        part = getattr(getattr(embedding, "positions", None), "positions", None)
        if isinstance(part, Positions) and not isinstance(part, NoPositions):
            found[side] = part
    return found


@torch.no_grad()
def compute(run: "Run", reading: ModelInput, seen: Sequence[Explanation]) -> dict[str, Any]:
    """The cosine of every two positions that the input has.

    Returns:
        ``sides``: of each its ``name`` and ``similarity``, ``[n][n]``: of the first `MOST` tokens; of a
        image, of its patches.
    """
    found = []
    for name, part in _parts(run.model).items():
        side = reading.sides[name]
        n = min(len(side.tokens), MOST + side.before)
        places = torch.arange(n, device=next(run.model.parameters()).device)
        table = part(places, n).float().cpu().numpy()[side.before :]
        found.append({"name": name, "similarity": rounded_all(position_similarity(table), DIGITS)})
    return {"sides": found}


def lines(seen: Explanation, values: Mapping[str, Any]) -> list[str]:
    """The mean cosine by how far positions are apart; of patches, by row and column."""
    told = []
    for name, cosines in _tables(seen, values):
        told.append(f"mean cosine of the vectors of two positions of the {name}")
        if cosines.ndim == 4:
            told += _of_patches(cosines)
        else:
            steps = [2**k for k in range(10) if 2**k < len(cosines)]
            told += [f"  {step:>4} apart  {np.diagonal(cosines, step).mean():6.3f}" for step in steps]
    return told


def _of_patches(cosines: Any) -> list[str]:
    rows, columns = (np.arange(n) for n in cosines.shape[:2])
    same_row = rows[:, None, None, None] == rows[None, None, :, None]
    same_column = columns[None, :, None, None] == columns[None, None, None, :]
    kinds = {
        "in one row": same_row & ~same_column,
        "in one column": same_column & ~same_row,
        "elsewhere": ~same_row & ~same_column,
    }
    return [
        f"  {name:<14} {cosines[np.broadcast_to(there, cosines.shape)].mean():6.3f}"
        for name, there in kinds.items()
        if there.any()
    ]


def drawings(seen: Explanation, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A patch of all pairs; of an image, a small map for each of its patches, where it lies."""
    return [
        {"title": _title(name), "kind": "heat", **signed(_flat(cosines))}
        for name, cosines in _tables(seen, values)
    ]


def _title(name: str) -> str:
    return f"How alike positions of the {name} are"


def figure(seen: Explanation, values: Mapping[str, Any]) -> "Figure":
    """That of the first side."""
    from heedful.explain.drawings import similarity_map

    (name, cosines), *_ = _tables(seen, values)
    return similarity_map(cosines, _title(name))


def _tables(seen: Explanation, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each side's cosines, ``[n, n]``; of a whole image, ``[rows, columns, rows, columns]``."""
    for each in values["sides"]:
        cosines = np.asarray(each["similarity"], dtype=float)
        grid = seen.sides[each["name"]].grid
        is_whole = grid is not None and len(cosines) == grid[0] * grid[1]
        yield each["name"], cosines.reshape(*grid, *grid) if is_whole and grid else cosines


def _flat(cosines: Any) -> Any:
    """``[rows, columns]`` for the page, with NaN between small maps."""
    return cosines if cosines.ndim == 2 else mosaic(cosines)

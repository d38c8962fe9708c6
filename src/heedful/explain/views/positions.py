"""View ``positions``: cosine similarity of position vectors, learned or fixed.

Source: Dosovitskiy et al. 2021, figure 7, centre.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from heedful.explain.drawing.matrix import Numbers, mosaic
from heedful.explain.drawings import Drawing, Heat
from heedful.explain.views.shared import Figure, embeddings_of, rounded_all
from heedful.nn.positions import NoPositions, Positions
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

MAX_POSITIONS = 512
"""Maximum number of positions per axis."""

DIGITS = 4
"""Decimal places of a cosine."""


def supports(run: LoadedRun) -> bool:
    """Whether an embedding has position vectors."""
    return bool(_position_modules(run.model))


def _position_modules(model: nn.Module) -> dict[str, Positions]:
    """Return the modules that compute position vectors, by axis."""
    modules = {}
    for axis, embedding in embeddings_of(model).items():
        module = getattr(getattr(embedding, "positions", None), "positions", None)
        if isinstance(module, Positions) and not isinstance(module, NoPositions):
            modules[axis] = module
    return modules


@torch.no_grad()
def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the cosine similarities of all pairs of positions of the input.

    Returns:
        ``sides``: for each axis its ``name`` and ``similarity``, ``[n][n]``, of the first `MAX_POSITIONS`
        tokens, or patches.
    """
    sides = []
    for name, module in _position_modules(run.model).items():
        axis = prepared.axes[name]
        n = min(len(axis.tokens), MAX_POSITIONS + axis.before)
        positions = torch.arange(n, device=next(run.model.parameters()).device)
        table = module(positions, n).float().cpu().numpy()[axis.before :]
        sides.append({"name": name, "similarity": rounded_all(position_similarity(table), DIGITS)})
    return {"sides": sides}


def position_similarity(table: ArrayLike) -> Numbers:
    """Return the cosine similarity ``<p_i, p_j> / (|p_i| |p_j|)`` of each pair of rows of a table ``[N, d]``.

    The similarities of a zero vector are 0.
    """
    rows = np.asarray(table, dtype=float)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit @ unit.T


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return the mean cosine by distance; for patches, within rows, within columns, and elsewhere."""
    output = []
    for name, cosines in _tables(explanation, values):
        output.append(f"mean cosine similarity of two position vectors of the {name}")
        if cosines.ndim == 4:
            output += _patch_lines(cosines)
        else:
            steps = [2**k for k in range(10) if 2**k < len(cosines)]
            output += [f"  distance {step:>4}  {np.diagonal(cosines, step).mean():6.3f}" for step in steps]
    return output


def _patch_lines(cosines: Numbers) -> list[str]:
    rows, columns = (np.arange(n) for n in cosines.shape[:2])
    same_row = rows[:, None, None, None] == rows[None, None, :, None]
    same_column = columns[None, :, None, None] == columns[None, None, None, :]
    kinds = {
        "same row": same_row & ~same_column,
        "same column": same_column & ~same_row,
        "elsewhere": ~same_row & ~same_column,
    }
    return [
        f"  {name:<14} {cosines[np.broadcast_to(mask, cosines.shape)].mean():6.3f}"
        for name, mask in kinds.items()
        if mask.any()
    ]


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map of all pairs; for images, a small map per patch at its location."""
    return [Heat(_title(name), _as_matrix(cosines)) for name, cosines in _tables(explanation, values)]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw the heat map of the first axis, from -1 (red) to 1 (blue)."""
    from heedful.explain.drawing.canvas import SIGNED, finish_figure, new_figure, set_title_without_ticks

    (name, cosines), *_ = _tables(explanation, values)
    fig = new_figure(4.6, 4.0)
    axes = fig.add_subplot()
    image = axes.imshow(
        _as_matrix(cosines), cmap=SIGNED, vmin=-1, vmax=1, interpolation="nearest", aspect="equal"
    )
    fig.colorbar(image, ax=axes, shrink=0.8, aspect=16, pad=0.03).outline.set_visible(False)
    set_title_without_ticks(axes, "")
    return finish_figure(fig, _title(name))


def _title(name: str) -> str:
    return f"Cosine similarity of {name} positions"


def _tables(explanation: "Explanation", values: JsonMapping) -> Iterator[tuple[str, Numbers]]:
    """Yield the similarities of each axis, ``[n, n]``, or ``[rows, columns, rows, columns]`` for images."""
    for side in values["sides"]:
        cosines = np.asarray(side["similarity"], dtype=float)
        grid = explanation.axes[side["name"]].grid
        is_whole = grid is not None and len(cosines) == grid[0] * grid[1]
        yield side["name"], cosines.reshape(*grid, *grid) if is_whole and grid else cosines


def _as_matrix(cosines: Numbers) -> Numbers:
    """Return a matrix, with NaN between the small maps of an image."""
    return cosines if cosines.ndim == 2 else mosaic(cosines)

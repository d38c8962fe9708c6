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
from heedful.explain.drawings import Drawing, Heat, Table
from heedful.explain.views.shared import embeddings_of, rounded_all
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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map of all pairs; for images, a small map per patch at its location.

    In the terminal, the mean by distance; for patches, within rows, within columns, and elsewhere.
    """
    output: list[Drawing] = []
    for name, cosines in _tables(explanation, values):
        title = f"Cosine similarity of {name} positions"
        output.append(Heat(title, _as_matrix(cosines), media={"page", "image"}))
        means = _patch_means(cosines) if cosines.ndim == 4 else _distance_means(cosines)
        rows = [[pairs, f"{mean:.3f}"] for pairs, mean in means.items()]
        output.append(Table(title, ["pairs", "mean"], rows, media={"terminal"}))
    return output


def _distance_means(cosines: Numbers) -> dict[str, float]:
    steps = [2**k for k in range(10) if 2**k < len(cosines)]
    return {f"distance {step}": float(np.diagonal(cosines, step).mean()) for step in steps}


def _patch_means(cosines: Numbers) -> dict[str, float]:
    rows, columns = (np.arange(n) for n in cosines.shape[:2])
    same_row = rows[:, None, None, None] == rows[None, None, :, None]
    same_column = columns[None, :, None, None] == columns[None, None, None, :]
    kinds = {
        "same row": same_row & ~same_column,
        "same column": same_column & ~same_row,
        "elsewhere": ~same_row & ~same_column,
    }
    return {
        name: float(cosines[np.broadcast_to(mask, cosines.shape)].mean())
        for name, mask in kinds.items()
        if mask.any()
    }


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

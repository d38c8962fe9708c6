"""View ``residual``: norm of the residual stream of each token, from the embeddings to the last block.

    r_l,t = ||h_l,t||_2      h_0 = embeddings,  h_l = output of block l,  l = 1 … L

In pre-norm stacks the norm grows with depth, because every block adds to the stream; in post-norm stacks a
norm after each sum keeps it near √d_model (Xiong et al. 2020, lemma 2). A token with a much larger norm than
the others, often the first one, is a "massive activation" (Sun et al. 2024).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.explain.drawings import Drawing, Heat
from heedful.explain.views.shared import (
    EMBEDDINGS,
    STACKS,
    Figure,
    headline,
    hidden_states,
    rounded_all,
    stacks_of,
)
from heedful.runs.loading import LoadedRun
from heedful.tasks.model_input import ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation


def supports(run: LoadedRun) -> bool:
    """Whether the model has a stack of blocks."""
    return bool(stacks_of(run.model))


def compute(run: LoadedRun, prepared: ModelInput, explanations: Sequence["Explanation"]) -> JsonObject:
    """Return the norms.

    Returns:
        ``stacks``: for each its ``side`` (name of the axis) and ``norms``, ``[depths][tokens]``, depth 0
        being the embeddings.
    """
    states = hidden_states(run.model, prepared, list(stacks_of(run.model)))
    norms = {
        name: torch.stack([hidden.float().norm(dim=-1) for hidden in depths]).cpu().numpy()
        for name, depths in states.items()
    }
    return {
        "stacks": [
            {"side": EMBEDDINGS[STACKS[name]], "norms": rounded_all(each)} for name, each in norms.items()
        ]
    }


def lines(explanation: "Explanation", values: JsonMapping) -> list[str]:
    """Return a line per depth: the mean norm, and the token with the largest."""
    output = []
    for axis, norms in _matrices(values):
        tokens = explanation.axes[axis].tokens
        output.append(f"{_title(axis)}: mean, largest")
        for depth, row in enumerate(norms):
            name = f"block {depth}" if depth else "embeddings"
            index = int(row.argmax())
            output.append(f"  {name:<11} {row.mean():8.3f} {row[index]:8.3f}  {tokens[index]}")
    return output


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map per stack, rows are depths, relative to its largest norm."""
    return [
        Heat(f"{headline(_title(axis))}, relative to {norms.max():.4g}", norms / norms.max())
        for axis, norms in _matrices(values)
    ]


def figure(explanation: "Explanation", values: JsonMapping) -> Figure:
    """Draw the heat map of the last stack: of the decoder, if there is one.

    Raises:
        RequestError: there are too many tokens to be readable.
    """
    from heedful.explain.drawing.canvas import check_size
    from heedful.explain.drawing.heat_map import heat_map

    *_, (axis, norms) = _matrices(values)
    tokens, depths = explanation.axes[axis].tokens, [str(depth) for depth in range(len(norms))]
    check_size(len(depths), len(tokens))
    note = f"rows: depth; 1 is a norm of {norms.max():.4g}"
    return heat_map(tokens, depths, norms / norms.max(), title=headline(_title(axis)), note=note)


def _title(axis: str) -> str:
    return f"norm of the residual stream of {axis} tokens"


def _matrices(values: JsonMapping) -> list[tuple[str, NDArray[np.float64]]]:
    """Return the axis and the norms ``[depths, tokens]`` of each stack."""
    return [(stack["side"], np.asarray(stack["norms"], dtype=float)) for stack in values["stacks"]]

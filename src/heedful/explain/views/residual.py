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

from heedful.explain.drawings import Drawing, Heat, Table
from heedful.explain.views.shared import (
    EMBEDDINGS,
    STACKS,
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


def drawings(explanation: "Explanation", values: JsonMapping) -> list[Drawing]:
    """Return a heat map per stack, relative to its largest norm; in the terminal means and largest norms."""
    output: list[Drawing] = []
    for stack in values["stacks"]:
        norms, tokens = np.asarray(stack["norms"], dtype=float), explanation.axes[stack["side"]].tokens
        title = f"Norm of the residual stream of {stack['side']} tokens"
        depths = [f"block {depth}" if depth else "embeddings" for depth in range(len(norms))]
        largest = norms.max() or 1.0
        relative = f"{title}, relative to {largest:.4g}"
        output.append(Heat(relative, norms / largest, depths, tokens, media={"page", "image"}))
        rows = [
            [depth, f"{row.mean():.3f}", f"{row.max():.3f}", tokens[row.argmax()]]
            for depth, row in zip(depths, norms, strict=True)
        ]
        output.append(Table(title, ["after", "mean", "largest", "token"], rows, media={"terminal"}))
    return output

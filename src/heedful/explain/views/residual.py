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

from heedful.explain.page.packing import signed
from heedful.explain.view import Explanation
from heedful.explain.views.shared import headline, rounded_all
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.taps import capture
from heedful.tasks.model_input import INPUT, PREFIX, SOURCE, ModelInput
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.runs.run import Run

STACKS = {
    "encoder": ("source_embedding", SOURCE),
    "decoder": ("target_embedding", PREFIX),
    "stack": ("embedding", INPUT),
}
"""Stacks of models; of each the embedding and the side that it reads."""


def has(run: "Run") -> bool:
    """Whether the model has a stack of blocks."""
    return bool(_stacks(run))


def _stacks(run: "Run") -> dict[str, int]:
    """Return the number of blocks of each stack."""
    found = {name: getattr(run.model, name, None) for name in STACKS}
    kinds = EncoderStack | DecoderStack
    return {name: len(stack.blocks) for name, stack in found.items() if isinstance(stack, kinds)}


@torch.no_grad()
def compute(run: "Run", prepared: ModelInput, explanations: Sequence[Explanation]) -> JsonObject:
    """Return the norms.

    Returns:
        ``stacks``: for each its ``side`` and ``norms``, ``[depths][tokens]``, depth 0 being the embeddings.
    """
    outputs = {
        name: [f"{STACKS[name][0]}.output", *(f"{name}.blocks.{i}.output" for i in range(n))]
        for name, n in _stacks(run).items()
    }
    names = [tap for each in outputs.values() for tap in each]
    with capture(run.model, dict.fromkeys(names)) as seen:
        run.model(prepared.batch.inputs, prepared.batch.source)
    norms = {
        name: torch.stack([seen[tap][-1].float().norm(dim=-1) for tap in taps]).cpu().numpy()
        for name, taps in outputs.items()
    }
    return {"stacks": [{"side": STACKS[name][1], "norms": rounded_all(each)} for name, each in norms.items()]}


def lines(explanation: Explanation, values: JsonMapping) -> list[str]:
    """Return a line per depth: the mean norm, and the token with the largest."""
    output = []
    for side, norms in _matrices(values):
        tokens = explanation.axes[side].tokens
        output.append(f"{_title(side)}: mean, largest")
        for depth, row in enumerate(norms):
            name = f"block {depth}" if depth else "embeddings"
            place = int(row.argmax())
            output.append(f"  {name:<11} {row.mean():8.3f} {row[place]:8.3f}  {tokens[place]}")
    return output


def drawings(explanation: Explanation, values: JsonMapping) -> list[JsonObject]:
    """Return a heat map per stack, rows are depths, relative to its largest norm."""
    return [
        {"title": f"{headline(_title(side))}, relative to {norms.max():.4g}", "kind": "heat"}
        | signed(norms / norms.max())
        for side, norms in _matrices(values)
    ]


def figure(explanation: Explanation, values: JsonMapping) -> "Figure":
    """Draw the heat map of the last stack: of the decoder, if there is one.

    Raises:
        RequestError: there are too many tokens to be readable.
    """
    from heedful.explain.heat_map import check_size, heat_map

    *_, (side, norms) = _matrices(values)
    tokens, depths = explanation.axes[side].tokens, [str(depth) for depth in range(len(norms))]
    check_size(len(depths), len(tokens))
    note = f"rows: depth; 1 is a norm of {norms.max():.4g}"
    return heat_map(tokens, depths, norms / norms.max(), title=headline(_title(side)), note=note)


def _title(side: str) -> str:
    return f"norm of the residual stream of {side} tokens"


def _matrices(values: JsonMapping) -> list[tuple[str, NDArray[np.float64]]]:
    """Return the side and the norms ``[depths, tokens]`` of each stack."""
    return [(each["side"], np.asarray(each["norms"], dtype=float)) for each in values["stacks"]]

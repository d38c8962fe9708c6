"""Helpers for several views."""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from heedful.errors import RequestError
from heedful.explain.drawings import EVERYWHERE, Cell, CellLike, Medium, Table
from heedful.nn.blocks import DecoderStack, EncoderStack
from heedful.nn.taps import capture
from heedful.tasks.model_input import INPUT, PREFIX, SOURCE, ModelInput
from heedful.typing import JsonMapping, JsonObject

DIGITS = 6
"""Decimal places of rounded numbers."""

EMBEDDINGS = {"embedding": INPUT, "source_embedding": SOURCE, "target_embedding": PREFIX}
"""Attributes of models with embeddings, and the axis that each embeds."""

STACKS = {"encoder": "source_embedding", "decoder": "target_embedding", "stack": "embedding"}
"""Attributes of models with stacks of blocks, and the embedding that each reads."""

Stack = EncoderStack | DecoderStack


def embeddings_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the embedding modules of a model by axis."""
    return {axis: getattr(model, name) for name, axis in EMBEDDINGS.items() if hasattr(model, name)}


def stacks_of(model: nn.Module) -> dict[str, Stack]:
    """Return the stacks of blocks of a model by name."""
    stacks = {name: getattr(model, name, None) for name in STACKS}
    return {name: stack for name, stack in stacks.items() if isinstance(stack, Stack)}


@torch.no_grad()
def hidden_states(model: nn.Module, prepared: ModelInput, stacks: Sequence[str]) -> dict[str, list[Tensor]]:
    """Return the hidden states ``[T, d]`` of stacks: of the embeddings, then of each block."""
    taps = {
        name: [
            f"{STACKS[name]}.output",
            *(f"{name}.blocks.{i}.output" for i in range(len(stacks_of(model)[name].blocks))),
        ]
        for name in stacks
    }
    with capture(model, dict.fromkeys(tap for stack_taps in taps.values() for tap in stack_taps)) as captured:
        model(prepared.batch.inputs, prepared.batch.source)
    return {name: [captured[tap][-1] for tap in stack_taps] for name, stack_taps in taps.items()}


def questions_of(prepared: ModelInput) -> JsonObject:
    """Return the prediction targets of an input, JSON-ready."""
    targets = prepared.targets
    return {"side": targets.axis, "places": list(targets.positions), "answers": targets.names}


def check_has_probability(prepared: ModelInput) -> None:
    """Check that the answer has a probability.

    Raises:
        RequestError: the answer is a number.
    """
    if prepared.targets.numbers is not None:
        raise RequestError("the answer is a number, which has no probability; use view gradients")


# Numbers and titles


def rounded(value: float) -> float:
    """Round to 6 decimal places."""
    return round(value, DIGITS)


def rounded_or_none(value: float) -> float | None:
    """Round to 6 decimal places; None for infinity and NaN, which JSON cannot hold."""
    return rounded(value) if math.isfinite(value) else None


def rounded_all(values: ArrayLike, digits: int = DIGITS) -> list[object]:
    """Return an array as nested lists of rounded numbers in fp64; fp32 has no short decimal form."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def probability(log_prob: float | None) -> float:
    """Return a probability with 6 significant digits; 0 for None, the logarithm of 0."""
    return 0.0 if log_prob is None else float(f"{math.exp(min(log_prob, 0.0)):.{DIGITS}g}")


def headline(text: str) -> str:
    """Return a text as a title, in sentence case."""
    return text[:1].upper() + text[1:]


# Numbers of heads: layers of a stack with ``layer`` and ``heads`` from 0, ``tap``, and a number per head


def two_places(value: float | None) -> str:
    """Format a number with two decimal places; a dash for None."""
    return "-" if value is None else f"{value:z.2f}"


def head_table(
    title: str,
    layers: Sequence[JsonMapping],
    key: str,
    largest: float,
    *,
    note: str = "",
    media: AbstractSet[Medium] = EVERYWHERE,
) -> Table:
    """Return a table of layers by heads and their mean: larger is darker, a click opens the head."""
    columns = sorted({head for layer in layers for head in layer["heads"]})
    rows = []
    for layer in layers:
        values = dict(zip(layer["heads"], layer[key], strict=True))
        cells: list[CellLike] = [layer["layer"] + 1]
        for head in columns:
            if head not in values:
                cells.append(None)
                continue
            share = None if values[head] is None else max(0.0, min(values[head] / largest, 1.0))
            cells.append(Cell(two_places(values[head]), share, tap=layer["tap"], head=head))
        defined = [value for value in layer[key] if value is not None]
        cells.append(two_places(sum(defined) / len(defined) if defined else None))
        rows.append(cells)
    names = ["layer", *(f"head {head + 1}" for head in columns), "mean"]
    return Table(title, names, rows, note=note, media=media)

"""Expert load: how tokens are distributed over the experts of a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from heedful.nn.experts import Gate
from heedful.nn.taps import intervene
from heedful.tasks.metrics.score import Score


@contextmanager
def count_expert_loads(model: nn.Module) -> Iterator[Callable[[], list[Score]]]:
    """Count the tokens of each expert while the model runs; yield a function that returns the loads so far.

    For each layer with n experts, T tokens that use k experts each, and c_i tokens that use expert i:

    | part of the score | value |
    |---|---|
    | value | max_i c_i / (k T / n): the largest load over the mean; 1 is best, n / k worst |
    | ``shares`` in the details | c_i / (k T) of each expert, in order; they sum to 1 |
    | ``tokens`` in the counts | T |

    Experts have no capacity limit, and no token is dropped.
    """
    gates = {name: module for name, module in model.named_modules() if isinstance(module, Gate)}
    loads = {name: torch.zeros(gate.n_experts, dtype=torch.int64) for name, gate in gates.items()}

    def count(name: str) -> Callable[[Tensor], None]:
        def add(weights: Tensor) -> None:
            loads[name] += (weights > 0).sum(0).cpu()

        return add

    with intervene(model, {f"{name}.gates": count(name) for name in gates}):
        yield lambda: [_score(name, gate, loads[name]) for name, gate in gates.items() if loads[name].any()]


def _score(name: str, gate: Gate, load: Tensor) -> Score:
    layer = 1 + next(int(part) for part in name.split(".") if part.isdecimal())
    shares = load / load.sum()
    return Score(
        f"expert load, layer {layer}",
        float(shares.max()) * gate.n_experts,
        f"experts:{gate.n_experts}|k:{gate.k}",
        {"shares": shares.tolist()},
        {"tokens": int(load.sum()) // gate.k},
    )

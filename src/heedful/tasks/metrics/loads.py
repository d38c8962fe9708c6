"""How the tokens that a model reads are shared among its experts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from heedful.nn.experts import Gate
from heedful.nn.taps import intervene
from heedful.tasks.metrics.score import Score


@contextmanager
def counting(model: nn.Module) -> Iterator[Callable[[], list[Score]]]:
    """Count while the model runs, as often as it does; what is given then tells the loads so far.

    With c_i tokens that chose expert i, of n, and T tokens that chose k each, of every layer with experts:

    | in the score | is |
    |---|---|
    | its value | max_i c_i / (k T / n): the busiest expert's tokens, over the mean; 1 is best, n / k worst |
    | ``shares`` of its details | c_i / (k T) of each expert, in order; they sum to 1 |
    | ``tokens`` of its counts | T |

    No expert has a capacity, and no token is dropped.
    """
    gates = {name: part for name, part in model.named_modules() if isinstance(part, Gate)}
    loads = {name: torch.zeros(gate.n_experts, dtype=torch.int64) for name, gate in gates.items()}

    def count(name: str) -> Callable[[Tensor], None]:
        def see(weights: Tensor) -> None:
            loads[name] += (weights > 0).sum(0).cpu()

        return see

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

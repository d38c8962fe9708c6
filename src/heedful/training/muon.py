"""Muon: momentum whose matrices are made nearly orthogonal before they are applied.

An update of a weight matrix by the gradient is usually of low rank: a few directions get nearly all of
it. Muon replaces the momentum's matrix M = U S Vᵀ by about U Vᵀ, so that every direction is learned at
one rate. Small language models then reach the same loss in a third of the updates that Adam takes
(`docs/performance.md`).

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the rest of the
parameters (embeddings, output layer, biases, gains) are Adam's, as there.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Five steps of this polynomial bring any singular value in (0.002, 1] to between 0.68 and 1.14.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
N_STEPS = 5


def orthogonalised(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Each matrix with its singular values brought near 1, by Newton and Schulz's iteration.

    X ← a X + (b A + c A²) X with A = X Xᵀ, which acts on every singular value s alone: s ← a s + b s³ + c s⁵.
    """
    x = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(N_STEPS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x if matrices.shape[1] <= matrices.shape[2] else x.mT


class Muon(torch.optim.AdamW):
    """Muon on the groups that are marked ``orthogonal``, fused AdamW on the others.

    m ← μ m + g,  W ← (1 - rate·decay) W - rate · √max(1, rows / columns) · orthogonalised(g + μ m)

    Args:
        groups: with the key ``orthogonal``.
        slices: for parameters of orthogonal groups, the numbers of rows of the matrices that lie in them
            one below the other (queries, keys, values); others are one matrix.
        momentum: μ.
        kept: arguments of AdamW, for the other groups.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        *,
        slices: Mapping[nn.Parameter, list[int]],
        momentum: float,
        **kept: Any,
    ) -> None:
        self.slices, self.momentum = slices, momentum
        super().__init__(groups, **kept)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of all groups."""
        groups = self.param_groups
        # AdamW's own step goes through all the groups there are.
        self.param_groups = [group for group in groups if not group["orthogonal"]]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group["orthogonal"]:
                self._orthogonal_step(group)
        return loss

    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        directions = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
                state["step"] = torch.tensor(0.0)  # not used; AdamW, when loaded, looks for one everywhere
            held = state["momentum_buffer"].mul_(self.momentum).add_(parameter.grad)
            directions.append((parameter, parameter.grad.add(held, alpha=self.momentum)))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        # Matrices of one shape go together: a few large products instead of many small ones.
        shapes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, direction in directions:
            sizes = self.slices.get(parameter, [parameter.shape[0]])
            for rows, change in zip(parameter.split(sizes), direction.split(sizes), strict=True):
                shapes[rows.shape].append((rows, change))
        for shape, pairs in shapes.items():
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            changes = orthogonalised(torch.stack([change for _, change in pairs]))
            for (rows, _), change in zip(pairs, changes, strict=True):
                rows.sub_(change, alpha=group["lr"] * scale)


def hidden_matrices(model: nn.Module) -> Iterator[tuple[nn.Parameter, list[int]]]:
    """The weights of linear layers between embeddings and heads, each with the rows of its matrices."""
    heads = getattr(model, "heads", None)
    outer = set() if heads is None else set(heads.modules())
    tables = {p for m in model.modules() if not isinstance(m, nn.Linear) for p in m._parameters.values()}
    seen = set()
    for owner in model.modules():
        slices = getattr(owner, "slices", {})
        for name, layer in owner.named_children():
            if not isinstance(layer, nn.Linear) or layer in outer or layer.weight in tables:
                continue
            if layer.weight.requires_grad and layer.weight not in seen:
                seen.add(layer.weight)
                yield layer.weight, slices.get(f"{name}.weight", [layer.weight.shape[0]])

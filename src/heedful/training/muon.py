"""Muon: momentum SGD whose update matrices are orthogonalised before they are applied.

Gradient updates of a weight matrix usually have low rank: a few directions dominate. Muon replaces the
momentum matrix M = U S Vᵀ by approximately U Vᵀ, so that all directions are learned at the same rate. Small
language models reach the same loss in a third of the updates that Adam needs (`docs/performance.md`).

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". As there, Adam
optimizes the other parameters (embeddings, output layer, biases, gains).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.typing import JsonObject

# Five steps of this polynomial map any singular value in (0.002, 1] into [0.68, 1.14].
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
N_STEPS = 5


def orthogonalised(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Bring the singular values of each matrix near 1 by Newton-Schulz iteration.

    X ← a X + (b A + c A²) X with A = X Xᵀ, which maps each singular value s to a s + b s³ + c s⁵.
    """
    x = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(N_STEPS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x if matrices.shape[1] <= matrices.shape[2] else x.mT


class Muon(torch.optim.AdamW):
    """Muon for parameter groups with ``orthogonal`` set, fused AdamW for the others.

    m ← μ m + g,  W ← (1 - rate·decay) W - rate · √max(1, rows / columns) · orthogonalised(g + μ m)

    Args:
        groups: parameter groups with the key ``orthogonal``.
        slices: for parameters of orthogonal groups that stack several matrices (queries, keys, values), the
            number of rows of each; other parameters are one matrix.
        momentum: μ.
        kept: arguments of AdamW, for the other groups.
    """

    def __init__(
        self,
        groups: list[JsonObject],
        *,
        slices: Mapping[nn.Parameter, list[int]],
        momentum: float,
        **kept: Any,
    ) -> None:
        self.slices, self.momentum = slices, momentum
        super().__init__(groups, **kept)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameter groups."""
        groups = self.param_groups
        # AdamW.step would process every group in self.param_groups.
        self.param_groups = [group for group in groups if not group["orthogonal"]]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group["orthogonal"]:
                self._orthogonal_step(group)
        return loss

    def _orthogonal_step(self, group: JsonObject) -> None:
        directions = []
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
                state["step"] = torch.tensor(0.0)  # unused, but AdamW's state loading expects it
            buffer = state["momentum_buffer"].mul_(self.momentum).add_(parameter.grad)
            directions.append((parameter, parameter.grad.add(buffer, alpha=self.momentum)))
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        # Batch matrices of the same shape: a few large products instead of many small ones.
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
    """Yield the weight of each linear layer between embeddings and heads, and the rows of its matrices."""
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

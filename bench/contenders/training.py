"""Shared training step of the peers: four precisions, eager and compiled, a fused AdamW.

| precision | weights | products |
|---|---|---|
| fp32 | fp32 | fp32 |
| fp32 medium | fp32 | fp32 under `torch.set_float32_matmul_precision("medium")` |
| bf16 | fp32 | bf16 by `torch.autocast`; softmax and loss as autocast decides |
| bf16 pure | bf16 | bf16; logits are converted to fp32 for the loss |

Weights and optimizer are shared by the settings of a library that keep the same type, so that all
contenders fit into memory at once; the work is the same for any values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from harness.contender import Contender, Work

PRECISIONS = ("fp32", "fp32 medium", "bf16", "bf16 pure")
COMPILED = ("fp32", "bf16", "bf16 pure")
"""Precisions that are also measured compiled."""

Batches = Callable[[], list[tuple[Tensor, ...]]]
"""Creates the tensors of every round."""


def contenders(
    library: str, module: Callable[[], nn.Module], batches: Batches, device: str
) -> list[Contender]:
    """Return the library with every setting; ``module`` builds the map from batch tensors to the loss."""
    shared = lru_cache(lambda dtype: _Shared(module, batches, dtype, device))

    def contender(precision: str, compiled: bool) -> Contender:
        build = _builder(shared, precision, compiled, device)
        setting = precision + ", compiled" * compiled
        return Contender(library, setting, build, compiled, bf16=precision.startswith("bf16"))

    return [*(contender(p, False) for p in PRECISIONS), *(contender(p, True) for p in COMPILED)]


class _Shared:
    """Module, batches and optimizer for one type of weights."""

    def __init__(
        self, module: Callable[[], nn.Module], batches: Batches, dtype: torch.dtype, device: str
    ) -> None:
        torch.manual_seed(0)
        self.module = module().to(device=device, dtype=dtype).train()
        self.batches = [tuple(tensor.to(device) for tensor in batch) for batch in batches()]
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )


def _builder(shared: Any, precision: str, compiled: bool, device: str) -> Callable[[], Work]:
    def build() -> Work:
        shared_parts: _Shared = shared(torch.bfloat16 if precision == "bf16 pure" else torch.float32)
        forward = torch.compile(shared_parts.module, dynamic=False) if compiled else shared_parts.module

        def work(number: int) -> None:
            with _precision(precision, device):
                loss = forward(*shared_parts.batches[number % len(shared_parts.batches)])
            loss.backward()
            shared_parts.optimizer.step()
            shared_parts.optimizer.zero_grad(set_to_none=True)

        # The backward pass of fp32 medium must run at that setting too.
        return _medium(work) if precision == "fp32 medium" else work

    return build


@contextmanager
def _precision(precision: str, device: str) -> Iterator[None]:
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        yield


def _medium(work: Work) -> Work:
    def wrapped(number: int) -> None:
        precision_before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            work(number)
        finally:
            torch.set_float32_matmul_precision(precision_before)

    return wrapped


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Return the mean loss, ignoring targets of -100; without autocast bf16 logits are converted to fp32."""
    if not torch.is_autocast_enabled(logits.device.type):
        logits = logits.float()
    return nn.functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=-100, label_smoothing=smoothing
    )

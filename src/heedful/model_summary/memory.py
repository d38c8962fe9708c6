"""Measure the memory of a training update by making one on fake tensors, which have shapes but no values.

Fake tensors on the CPU choose the same kernels as real ones and live as long as they would, so the storages
that exist at the same time are known exactly, down to the temporary ones.
"""

import copy
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from heedful.data.batch import Batch
from heedful.model_summary.measuring import Values, without_values
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import clip, gradient_norm

KINDS = ("weights", "gradients", "optimizer", "activations", "loss")
"""Kinds of storages; ``loss`` are all that are neither kept for the backward pass nor between updates."""


class _Live(Values):
    """Add up the bytes of all storages that exist, by kind, and remember them at their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[int, tuple[str, int]] = {}
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        for each in tree_leaves(out):
            if isinstance(each, FakeTensor):
                self.label(each, "loss", new=True)
        if self.now.total() > self.peak.total():
            self.peak = self.now.copy()
        return out

    def label(self, tensor: Tensor, kind: str, *, new: bool = False) -> None:
        """Set the kind of a tensor's storage; with ``new``, only if the storage is not known yet."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.kinds:
            before = self.kinds[key][0]
            if new or before == "weights":
                return
            self.now[before] -= size
        else:
            weakref.finalize(storage, self._end, key)
        self.kinds[key] = (kind, size)
        self.now[kind] += size

    def _end(self, key: int) -> None:
        kind, size = self.kinds.pop(key)
        self.now[kind] -= size


def update_memory(
    original: ModelWithLoss,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    batch: Batch,
    *,
    accumulates: bool = False,
) -> tuple[Counter[str], set[str]]:
    """Return the bytes that exist at the peak of an update, by kind, and which heads read sequences.

    Args:
        original: the model and its objective, on any device; it is not changed.
        make_optimizer: makes the optimizer of a model.
        batch: the micro-batch, on the CPU.
        accumulates: whether gradients of earlier micro-batches exist in the forward pass.

    Returns:
        Bytes by kind (`KINDS`); and the names of the heads that read one vector for each sequence.
    """
    fake, live = FakeTensorMode(allow_non_fake_inputs=True), _Live()
    batch = copy.deepcopy(batch)  # its layouts would keep fake tensors
    with fake:
        step: Any = without_values(original, lambda x: torch.empty(x.shape, dtype=x.dtype))
    for tensor in (*step.parameters(), *step.buffers()):
        live.label(tensor, "weights")
    parameters = [p for p in step.parameters() if p.requires_grad]
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda p: live.label(p.grad, "gradients"))
    of_sequences: set[str] = set()

    def watch(name: str) -> Callable[[nn.Module, Any], None]:
        n = batch.inputs.layout.n_sequences
        return lambda module, args: of_sequences.add(name) if len(args[0]) == n else None

    for name, head in step.model.heads.items():
        head.register_forward_pre_hook(watch(name))

    def keep(x: Tensor) -> Tensor:
        if isinstance(x, FakeTensor):
            live.label(x, "activations")
        return x

    with fake, live:
        optimizer = make_optimizer(step.model)
        _first_update(optimizer, parameters, live)
        for _ in range(1 + accumulates):
            with saved_tensors_hooks(keep, lambda x: x):
                loss, terms = step(batch, step.counts(batch))
            loss.backward()
            del loss, terms
        clip(parameters, 1.0, gradient_norm(parameters))
        optimizer.step()
    return live.peak, of_sequences


def _first_update(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], live: _Live) -> None:
    """Make the state of the optimizer, which exists from the second update on."""
    for p in parameters:
        p.grad = torch.empty_like(p)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for state in tree_leaves(list(optimizer.state.values())):
        if isinstance(state, FakeTensor):
            live.label(state, "optimizer")
    live.peak = Counter()

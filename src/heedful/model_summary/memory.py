"""Measure the memory of a training update by making one on fake tensors, which have shapes but no values.

Fake tensors on the CPU choose the same kernels as real ones and live as long as they would, so the storages
that exist at the same time are known exactly, down to the temporary ones.
"""

import copy
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from heedful.data.batch import Batch
from heedful.model_summary.described_model import DescribedModel, Extent
from heedful.model_summary.measuring import (
    Arguments,
    Keywords,
    Values,
    apply_heads,
    inputs_of,
    without_values,
)
from heedful.models.base import Model
from heedful.models.registry import SIZES
from heedful.objectives.cross_entropy import NextToken
from heedful.objectives.terms import Term
from heedful.recipes.schema import Recipe
from heedful.text.specials import SPECIALS
from heedful.training.model_with_loss import ModelWithLoss
from heedful.training.optimizers import AdamConfig, build_optimizer, clip, gradient_norm

LENGTH = 32
"""Tokens of a sequence, if neither the request nor the model determines them."""
CHUNK = 1024
MOST_TOKENS = 1 << 17
"""Tokens of the largest batch that is measured; larger batches are extrapolated."""
KINDS = ("weights", "gradients", "optimizer", "activations", "loss")
"""Kinds of storages; ``loss`` are all that are neither kept for the backward pass nor between updates."""


class _Live(Values):
    """Add up the bytes of all storages that exist, by kind, and remember them at their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: dict[int, tuple[str, int]] = {}
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()

    def run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        if func is torch.ops.prim.device.default:  # two of three calls, answered without the fake mode
            return args[0].fake_device
        out = func(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, FakeTensor):
                self.label(tensor, "loss", new=True)
        if self.now.total() > self.peak.total():
            self.peak = self.now.copy()
        return out

    def label(self, tensor: Tensor, kind: str, *, new: bool = False) -> None:
        """Set the kind of a tensor's storage; with ``new``, only if the storage is not known yet."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.kinds:
            old_kind = self.kinds[key][0]
            if new or old_kind == "weights":
                return
            self.now[old_kind] -= size
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
        step = without_values(original, lambda x: torch.empty(x.shape, dtype=x.dtype))
    for tensor in (*step.parameters(), *step.buffers()):
        live.label(tensor, "weights")
    parameters = [p for p in step.parameters() if p.requires_grad]
    for p in parameters:
        p.register_post_accumulate_grad_hook(lambda p: live.label(p.grad, "gradients"))
    of_sequences: set[str] = set()

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        n = batch.inputs.layout.n_sequences
        return lambda module, args: of_sequences.add(name) if len(args[0]) == n else None

    heads = step.model.heads
    assert isinstance(heads, nn.ModuleDict)
    for name, head in heads.items():
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


# The update of a model


class _AllHeads:
    """Objective of a model without a task: the sum of what all heads compute."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """Return one count."""
        return {"all": 1}

    def __call__(self, hidden: Tensor, heads: nn.ModuleDict, batch: Batch) -> list[Term]:
        """Apply all heads."""
        results = apply_heads(hidden, batch.inputs.layout, heads)
        return [Term("all", torch.stack([x.sum() for x in results]).sum(), 1)]


@dataclass(frozen=True)
class Update:
    """A training update of a model: its step and optimizer, and a micro-batch of n sequences."""

    step: Callable[[], ModelWithLoss]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    batch: Callable[[int], Batch]
    accumulates: bool = False

    def memory(self, n: int) -> tuple[dict[str, int], set[str]]:
        """Return the memory of a micro-batch of n sequences, by kind, and which heads read sequences."""
        length = self.batch(1).inputs.layout.max_length
        largest = max(1, MOST_TOKENS // length)

        def measure(n: int) -> tuple[dict[str, int], set[str]]:
            peak, heads = update_memory(
                self.step(), self.optimizer, self.batch(n), accumulates=self.accumulates
            )
            return {kind: peak[kind] for kind in KINDS}, heads

        if n <= largest or largest < 2:
            return measure(n)
        (smaller_use, _), (larger_use, heads) = measure(largest // 2), measure(largest)
        factor = (n - largest) / (largest - largest // 2)
        return {
            kind: round(larger_use[kind] + factor * (larger_use[kind] - smaller_use[kind])) for kind in KINDS
        }, heads


def update_of(described: DescribedModel, extent: Extent) -> Update:
    """Return the update of a recipe; or one with Adam, for a model alone."""
    if described.recipe is not None:
        return _update_of_recipe(described, described.recipe, extent)
    model = described.model
    assert isinstance(model, Model)
    generates = isinstance(dict(model.heads.items()).get("token"), nn.Linear)
    limits = (getattr(part, "max_length", None) for part in model.modules())
    length = extent.length or described.length or min([LENGTH, *(n for n in limits if n)])
    source = extent.source_length or described.source_length or length

    def batch(n: int) -> Batch:
        inputs, source_inputs = inputs_of(model, n, length, source, "cpu")
        return Batch(inputs, torch.zeros(inputs.layout.n_tokens, dtype=torch.int64), source_inputs)

    objective = NextToken(chunk=CHUNK) if generates else _AllHeads()
    return Update(lambda: ModelWithLoss(model, objective), partial(build_optimizer, AdamConfig()), batch)


def _update_of_recipe(described: DescribedModel, recipe: Recipe, extent: Extent) -> Update:
    from heedful.tasks.registry import task_for

    model = described.model
    assert isinstance(model, Model)
    task = task_for(recipe)
    n_texts, longest = len(SIZES[recipe.model.kind]), getattr(recipe.model, "longest", None)
    # A batch needs ids besides the special ones; their values are not read.
    texts = (max(size, len(SPECIALS) + 1) for size in described.sizes[:n_texts])
    sizes = (*texts, *described.sizes[n_texts:])

    def batch_of(length: int, n: int) -> Batch:
        source = extent.source_length or length
        return task.synthetic_batch(sizes, n, length, min(source, longest or source))

    length = extent.length or LENGTH
    if longest is not None:
        # Sequences of a batch may be a token longer than asked for, and consist of several texts.
        lengths = range(min(length, longest), 0, -1)
        length = next((n for n in lengths if batch_of(n, 3).inputs.layout.max_length <= longest), 1)
    return Update(
        lambda: ModelWithLoss(model, task.objective(), "fp32", task.auxiliary_losses(model)),
        partial(build_optimizer, recipe.optimizer),
        partial(batch_of, length),
        recipe.training.accumulate > 1,
    )

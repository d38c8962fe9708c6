"""Count the FLOPs of a model by running it on tensors that have shapes but no values.

A forward pass on the ``meta`` device sends every operation through a dispatch mode, which adds its FLOPs to
the module that is running. The FLOPs of an operator are those of torch's ``FlopCounterMode``, whose table
lacks Fourier transforms; attention counts as its two matrix products. No model has a formula of its own.
"""

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import flop_registry
from torch.utils.hooks import RemovableHandle

from heedful.models.base import Model
from heedful.models.resnet import ResNet
from heedful.nn.layout import Layout, Tokens
from heedful.nn.patches import GridEmbedding, Images, PatchEmbedding

aten = torch.ops.aten

M = TypeVar("M", bound=nn.Module)
Arguments = tuple[Any, ...]
"""Positional arguments of an operation of torch."""
Keywords = dict[str, Any]
"""Its keyword arguments."""


# A model without values


def without_values(model: M, empty: Callable[[Tensor], Tensor]) -> M:
    """Return a copy of a model in training mode whose parameters and buffers are made by ``empty``."""
    memo: dict[int, object] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty_tensor = empty(tensor)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = (
            nn.Parameter(empty_tensor, requires_grad=tensor.requires_grad) if is_parameter else empty_tensor
        )
    return copy.deepcopy(model, memo).train()


class Values(TorchDispatchMode):
    """Answer the questions that a forward pass asks about values.

    Sums are finite, and the tokens of a mixture of experts are spread evenly over the experts.
    """

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            return True
        if func is aten.bincount.default:
            n = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
            total = args[0].numel()
            with _disable_current_modes():
                return torch.tensor([total * (i + 1) // n - total * i // n for i in range(n)])
        return self.run(func, args, kwargs)

    def run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        """Run an operation."""
        return func(*args, **kwargs)


# FLOPs


class Product(NamedTuple):
    """A matrix product, convolution or Fourier transform.

    Args:
        flops: number of its FLOPs.
        inner: length of the sums of a matrix product.
        last: length of the last axis of the result.
    """

    flops: int
    inner: int = 0
    last: int = 0


@dataclass
class Operations:
    """The products of a forward pass, by the innermost module that computes them.

    Args:
        products: the products of each module, in order.
        tokens: length of the first axis of the first argument of each module, in its last call.
        shapes: shape of the result of each module, in its last call.
        running: the modules that are running, the innermost last.
    """

    products: dict[nn.Module, list[Product]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[nn.Module, int] = field(default_factory=dict)
    shapes: dict[nn.Module, torch.Size] = field(default_factory=dict)
    running: list[nn.Module] = field(default_factory=list)

    def add(self, *products: Product) -> None:
        """Add products of the innermost running module."""
        self.products[self.running[-1]] += products


def _transform(x: Tensor, dims: Sequence[int], *args: object, **kwargs: object) -> int:
    """Count 5 N log2 N FLOPs for a fast Fourier transform of N numbers.

    For complex numbers, N a power of two and radix 2 (Cooley and Tukey 1965; Van Loan 1992, "Computational
    frameworks for the fast Fourier transform"); FFTW's authors report speeds by the same count for any N.
    """
    n = math.prod(x.shape[dim] for dim in dims)
    return x.numel() // n * round(5 * n * math.log2(n)) if n else 0


_TRANSFORMS = {aten._fft_c2c: _transform, aten._fft_r2c: _transform}


class _Counting(Values):
    """Count the FLOPs of every operation."""

    def __init__(self, operations: Operations) -> None:
        super().__init__()
        self.operations = operations

    def run(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> object:
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in _TRANSFORMS:
            flops = _TRANSFORMS[packet](*args, **kwargs)
            self.operations.add(Product(flops, *out.shape[-2:]))
        elif packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=out)
            inner = args[1 if packet is aten.addmm else 0].shape[-1]
            self.operations.add(Product(flops, inner, out.shape[-1]))
        return out


@contextmanager
def _track_modules(model: nn.Module, operations: Operations) -> Iterator[None]:
    """Record which modules are running, and the sizes of their arguments and results."""

    def enter(module: nn.Module, args: tuple[object, ...]) -> None:
        operations.running.append(module)
        if args and isinstance(args[0], Tensor) and args[0].dim():
            operations.tokens[module] = len(args[0])

    def leave(module: nn.Module, args: object, out: object) -> None:
        operations.running.pop()
        if isinstance(out, Tensor):
            operations.shapes[module] = out.shape

    handles: list[RemovableHandle] = []
    for module in model.modules():
        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def count_operations(model: nn.Module, run: Callable[[nn.Module], object]) -> Operations:
    """Count the FLOPs of ``run(model)`` with a model on the meta device (`without_values`)."""
    operations = Operations(running=[model])
    with _track_modules(model, operations), _Counting(operations):
        run(model)
    return operations


# Inputs


def inputs_of(
    model: Model, n: int, length: int, source_length: int, device: str
) -> tuple[Tokens | Images, Tokens | Images | None]:
    """Return inputs and source of n sequences for any model: token ids, or images of its size."""
    inputs: nn.Module = getattr(model, "target_embedding", getattr(model, "embedding", model))
    source: nn.Module | None = getattr(model, "source_embedding", None)
    return (
        _sequences(inputs, n, length, device),
        None if source is None else _sequences(source, n, source_length, device),
    )


def _sequences(embedding: nn.Module, n: int, length: int, device: str) -> Tokens | Images:
    if isinstance(embedding, PatchEmbedding | GridEmbedding | ResNet):
        shape, n_tokens = images_of(embedding)
        return Images(torch.empty(n, *shape, device=device), Layout.of([n_tokens] * n, device=device))
    ids = torch.zeros(n * length, dtype=torch.int64, device=device)
    return Tokens(ids, Layout.of([length] * n, device=device))


def images_of(part: PatchEmbedding | GridEmbedding | ResNet) -> tuple[tuple[int, int, int], int]:
    """Return channels, height and width of the images that a module reads, and their number of tokens."""
    if isinstance(part, PatchEmbedding):
        patches = part.patches
        return (patches.projection.in_features // patches.patch**2, *part.size), part.n_tokens
    network = part.network if isinstance(part, GridEmbedding) else part
    assert isinstance(network, ResNet)
    return (next(network.root.parameters()).shape[1], *network.size), network.n_tokens


def apply_heads(
    hidden: Tensor, layout: Layout, heads: nn.ModuleDict, of_sequences: set[str] | None = None
) -> list[Tensor]:
    """Apply every head to hidden states.

    Args:
        hidden: ``[T, d]``.
        layout: their layout.
        heads: the heads of a model.
        of_sequences: names of the heads that read one pooled vector for each sequence; all others read the
            hidden states of all tokens. None: all but the head of tokens, if the model pools.
    """
    zeros = torch.zeros(len(hidden), dtype=torch.int64, device=hidden.device)
    arguments = {"layout": layout, "within": zeros}

    def apply(head: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = head(*(arguments.get(name, x) for name in signature(head.forward).parameters))
        return out

    unpooled = dict(heads.items())
    pooled = apply(unpooled.pop("pooled"), hidden) if "pooled" in unpooled else None
    results = [] if pooled is None else [pooled]
    for name, head in unpooled.items():
        is_pooled = name != "token" if of_sequences is None else name in of_sequences
        results.append(apply(head, pooled if is_pooled and pooled is not None else hidden))
    return results

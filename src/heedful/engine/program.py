"""Compile models to programs: lists of instructions for the native engine.

The modules of the blocks determine the instructions. If a module has no instruction, `UnsupportedError` is
raised, and the model is decoded on the plain path.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.nn import functional

from heedful.engine import native
from heedful.nn.attention.cross_attention import CrossAttention
from heedful.nn.attention.scores import DotScore, ScaledDotScore
from heedful.nn.attention.self_attention import SelfAttention
from heedful.nn.blocks import DecoderBlock, DecoderStack, EncoderBlock, EncoderStack
from heedful.nn.embeddings import TokenEmbedding
from heedful.nn.feedforward import FeedForward
from heedful.nn.norms import BatchNorm, LayerNorm, PowerNorm
from heedful.nn.positions import Added, Concatenated
from heedful.nn.residual import PostNorm, PreNorm
from heedful.nn.taps import attached


class UnsupportedError(Exception):
    """The engine does not support a part of the model."""


@dataclass(frozen=True)
class CacheShape:
    """Number of heads of keys and values, and their widths padded to whole vectors."""

    n_heads: int
    d_k: int
    d_v: int
    of_source: bool

    @classmethod
    def of(cls, part: SelfAttention | CrossAttention) -> "CacheShape":
        """Return the shape of the cache of an attention module."""
        of_source = isinstance(part, CrossAttention)
        return cls(part.n_kv_heads, _padded(part.d_k), _padded(part.d_v), of_source)


_TYPES: dict[object, torch.dtype] = {
    "sums": torch.int32,
    native.BF16: torch.bfloat16,
    native.INT8: torch.int8,
}


Block = TypeVar("Block", EncoderBlock, DecoderBlock)


def unsupported(kind: str, part: nn.Module) -> UnsupportedError:
    """Return the error that names the class of a part without instructions."""
    return UnsupportedError(f"unsupported {kind}: {type(part).__name__}")


def _padded(d: int) -> int:
    return d + -d % native.LANES


@dataclass
class Program:
    """Instructions, their buffers, and the tensors that they refer to.

    Args:
        precision: precision of the weights: fp32, bf16 or int8.
        widths: width of each buffer; every row has a line in each.
        buffers: buffer numbers by name.
        instructions: the instructions, in order.
        caches: shapes of the caches of keys and values, in order.
        embedding: the embedding module.
        converted: the most 4-byte words that the activations of a row need in the type of the weights.

    Running does not change a program, so several runners may share it.
    """

    precision: str
    widths: list[int] = field(default_factory=list)
    buffers: dict[str, int] = field(default_factory=dict)
    instructions: list[native.Instruction] = field(default_factory=list)
    caches: list[CacheShape] = field(default_factory=list)
    embedding: TokenEmbedding | None = None
    converted: int = 0
    _tensors: list[Tensor] = field(default_factory=list)

    def buffer(self, name: str, width: int) -> int:
        """Return the number of the named buffer, and widen it to ``width`` if it is narrower."""
        number = self.buffers.setdefault(name, len(self.widths))
        self.widths += [0] * (number + 1 - len(self.widths))
        self.widths[number] = max(self.widths[number], width)
        return number

    def write(self, op: int, **fields: Tensor | float | None) -> native.Instruction:
        """Append an instruction; tensors are kept in memory and passed as addresses and sizes.

        Raises:
            UnsupportedError: a tensor has the wrong type, or a number does not fit in 32 bits.
        """
        instruction = native.Instruction(op=op, add=-1)
        for name, value in fields.items():
            if isinstance(value, Tensor):
                kind = fields.get("kind", native.FP32) if name == "weights" else name
                if value.dtype != _TYPES.get(kind, torch.float32) or value.device.type != "cpu":
                    raise UnsupportedError(f"unsupported {name}: {value.dtype} on {value.device}")
                value = value.contiguous()
                self._tensors.append(value)
                setattr(instruction, f"n_{name}", value.nbytes)
                value = value.data_ptr()
            elif isinstance(value, int) and not -(2**31) <= value < 2**31:  # ctypes would truncate it
                raise UnsupportedError(f"{name} out of range: {value}")
            setattr(instruction, name, value)
        self.instructions.append(instruction)
        return instruction

    def array(self) -> ctypes.Array[native.Instruction]:
        """Return all instructions as a contiguous ctypes array."""
        return (native.Instruction * len(self.instructions))(*self.instructions)

    # Parts ---------------------------------------------------------------------------------------------

    def embed(self, part: nn.Module, target: int) -> None:
        """Append the embedding, the first instruction; the runner sets its table of positions."""
        if type(part) is not TokenEmbedding:
            raise unsupported("embedding", part)
        encoding = part.positions
        if type(encoding) is not Added and type(encoding) is not Concatenated:
            raise unsupported("embedding", part)
        table = part.weight.detach()
        width = encoding.output_width(table.shape[1])
        self.embedding = part
        self.write(
            native.EMBED, target=target, n_in=table.shape[1], n_out=width, weights=table.contiguous(),
            number=part.scale, beside=type(encoding) is Concatenated,
        )  # fmt: skip
        self.buffer("x", width)

    def linear(
        self, part: nn.Linear, source: int, target: int, *, add: int = -1, activation: int = 0
    ) -> None:
        """Append ``target = activation(source W' + b) + add``."""
        if type(part) is not nn.Linear:
            raise unsupported("projection", part)
        fields = pack(part.weight.detach(), self.precision)
        if part.bias is not None:
            fields["bias"] = _whole_panels(part.bias.detach())
        n_out, n_in = part.weight.shape
        kind = {"fp32": native.FP32, "bf16": native.BF16, "int8": native.INT8}[self.precision]
        self.write(
            native.LINEAR, source=source, target=target, add=add, n_in=n_in, n_out=n_out, kind=kind,
            activation=activation, **fields,
        )  # fmt: skip
        self.converted = max(self.converted, n_in + -n_in % 4)

    def norm(self, part: nn.Module, source: int, target: int) -> int:
        """Append a norm in evaluation mode; return the buffer of its result (``source`` if no norm)."""
        if type(part) is nn.Identity:
            return source
        if type(part) is LayerNorm:
            d = part.normalized_shape[0]
            weights = {"weights": part.weight, "bias": part.bias}
            parameters = {name: w.detach() for name, w in weights.items() if w is not None}
            self.write(
                native.NORM, source=source, target=target, n_in=d, n_out=d, number=part.eps, **parameters
            )
            return target
        factor, shift = _affine(part)
        n = len(factor)
        self.write(native.AFFINE, source=source, target=target, n_in=n, n_out=n, weights=factor, bias=shift)
        return target

    def residual(self, block: nn.Module, write: Callable[[nn.Module, int, int], None]) -> None:
        """Append a residual connection; ``write(part, source, x)`` adds the part's result to buffer x."""
        x = self.buffer("x", 0)
        if type(block) is PostNorm:
            write(block.part, x, x)
            self.norm(block.norm, x, x)
        elif type(block) is PreNorm:
            normed = self.buffer("normed", self.widths[x])
            write(block.part, self.norm(block.norm, x, normed), x)
        else:
            raise unsupported("residual connection", block)

    def self_attention(self, part: nn.Module, source: int, x: int, *, causal: bool) -> None:
        """Append self-attention: project, store keys and values, attend, project."""
        if type(part) is not SelfAttention:
            raise unsupported("mixer", part)
        if part.rotary is not None or part.score_bias is not None:
            raise UnsupportedError(
                f"unsupported mixer: {type(part).__name__} with rotary positions or a score bias"
            )
        if part.causal is not causal:
            raise UnsupportedError(f"self-attention must be {'causal' if causal else 'bidirectional'} here")
        fused = self.buffer("qkv", sum(part.sizes))
        self.linear(part.qkv, source, fused)
        cache = self.store(part, fused, part.sizes[0])
        self._attend(part, fused, x, cache, reads_source=False)

    def store(self, part: SelfAttention | CrossAttention, source: int, first_key: int) -> int:
        """Append the storing of keys and values of every row in a new cache; return its number."""
        number = len(self.caches)
        self.caches.append(CacheShape.of(part))
        self.write(
            native.STORE, source=source, cache=number, first_key=first_key,
            first_value=first_key + part.sizes[1], n_kv_heads=part.n_kv_heads, d_k=part.d_k, d_v=part.d_v,
            n_in=sum(part.sizes[1:]),
        )  # fmt: skip
        return number

    def cross_attention(self, part: nn.Module, source: int, x: int) -> None:
        """Append cross-attention: project the queries, attend to the source, project."""
        if type(part) is not CrossAttention:
            raise unsupported("cross-attention", part)
        queries = self.buffer("q", part.sizes[0])
        self.linear(part.q, source, queries)
        self.caches.append(CacheShape.of(part))
        self._attend(part, queries, x, len(self.caches) - 1, reads_source=True)

    def _attend(
        self, part: SelfAttention | CrossAttention, source: int, x: int, cache: int, *, reads_source: bool
    ) -> None:
        if part.pattern is not None:
            raise UnsupportedError(f"unsupported attention pattern: {type(part.pattern).__name__}")
        if type(part.score) not in (ScaledDotScore, DotScore):
            raise unsupported("attention score", part.score)
        if part.d_k > native.WIDEST_KEY:
            raise UnsupportedError(f"d_k must be at most {native.WIDEST_KEY}, got {part.d_k}")
        mixed = self.buffer("z", part.n_heads * part.d_v)
        self.write(
            native.ATTEND, source=source, target=mixed, cache=cache, reads_source=reads_source,
            n_heads=part.n_heads, n_kv_heads=part.n_kv_heads, d_k=part.d_k, d_v=part.d_v,
            number=part.score.product_scale(part.d_k),
        )  # fmt: skip
        self.linear(part.out, mixed, x, add=x)

    def feed_forward(self, part: nn.Module, source: int, x: int) -> None:
        """Append a feed-forward network: up projection, activation, down projection."""
        if type(part) is not FeedForward:
            raise unsupported("feed-forward network", part)
        hidden = self.buffer("hidden", part.up.out_features)
        self.linear(part.up, source, hidden, activation=_activation(part.activation))
        self.linear(part.down, hidden, x, add=x)

    def encoder_stack(self, stack: nn.Module, *, causal: bool) -> None:
        """Append an encoder stack: self-attention and feed-forward of each block, then the final norm."""
        if type(stack) is not EncoderStack:
            raise unsupported("stack", stack)
        for block in _exactly(EncoderBlock, stack.block_list):
            self.residual(block.mixer, lambda part, s, x: self.self_attention(part, s, x, causal=causal))
            if type(block.feed_forward) is not nn.Identity:
                self.residual(block.feed_forward, self.feed_forward)
        self._final_norm(stack.norm)

    def decoder_stack(self, stack: nn.Module) -> None:
        """Append a decoder stack: self-attention, cross-attention, feed-forward; then the final norm."""
        if type(stack) is not DecoderStack:
            raise unsupported("stack", stack)
        for block in _exactly(DecoderBlock, stack.block_list):
            self.residual(block.mixer, lambda part, s, x: self.self_attention(part, s, x, causal=True))
            self.residual(block.cross_attention, self.cross_attention)
            self.residual(block.feed_forward, self.feed_forward)
        self._final_norm(stack.norm)

    def _final_norm(self, norm: nn.Module) -> None:
        x = self.buffer("x", 0)
        self.norm(norm, x, x)


def _exactly(kind: type[Block], blocks: list[Block]) -> list[Block]:
    """Return the blocks. Subclasses are refused, since they may compute something else."""
    for block in blocks:
        if type(block) is not kind:
            raise unsupported("block", block)
    return blocks


def _activation(part: nn.Module) -> int:
    if type(part) is nn.ReLU:
        return native.RELU
    if type(part) is nn.GELU:
        return native.GELU if part.approximate == "none" else native.GELU_TANH
    if type(part) is nn.SiLU:
        return native.SILU
    raise unsupported("activation", part)


def _affine(part: nn.Module) -> tuple[Tensor, Tensor]:
    """Return factor and shift of a norm with fixed statistics: ``factor * x + shift``."""
    if type(part) is BatchNorm:
        factor = part.weight * torch.rsqrt(part.running_variance + part.eps)
        return factor.detach(), (part.bias - factor * part.running_mean).detach()
    if type(part) is PowerNorm and isinstance(part.scaling, nn.Identity):
        factor = part.weight * torch.rsqrt(part.running_quadratic_mean + part.eps)
        return factor.detach(), part.bias.detach()
    raise unsupported("norm", part)


def observer(model: nn.Module) -> str:
    """Return which tap or hook requires the plain path, or an empty string: the engine supports neither."""
    if attached(model):
        return "a tap is attached"
    if any(part._forward_hooks or part._forward_pre_hooks for part in model.modules()):
        return "a module has a hook"
    return ""


# Packing of weights -----------------------------------------------------------------------------------------


def pack(weight: Float[Tensor, "n_out n_in"], precision: str) -> dict[str, Tensor]:
    """Pack a matrix for `source/linear.h`, as the fields of an instruction.

    The matrix is split into panels of 32 outputs. Within a panel, the weights of the same 1 (fp32), 2 (bf16)
    or 4 (int8) neighbouring inputs are adjacent, output after output. The last axes are zero-padded to whole
    panels.

    Returns:
        ``weights``; for int8 also ``scales``, the quantisation step of each output, and ``sums``, -128 times
        the sum of each output's weights.
    """
    if precision != "int8":
        return {"weights": _panels(weight.bfloat16() if precision == "bf16" else weight, precision)}
    steps, scales = quantised(weight)
    sums = -128 * steps.sum(1, dtype=torch.int32)
    return {
        "weights": _panels(steps, precision),
        "scales": _whole_panels(scales),
        "sums": _whole_panels(sums),
    }


def quantised(
    weight: Float[Tensor, "n_out n_in"],
) -> tuple[Int8[Tensor, "n_out n_in"], Float[Tensor, " n_out"]]:
    """Round to multiples, from -127 to 127, of one scale per output: max |weight| / 127."""
    scales = weight.abs().amax(1) / 127
    steps = weight / scales.masked_fill(scales == 0, 1.0)[:, None]
    return steps.round().to(torch.int8), scales


def _panels(weight: Tensor, precision: str) -> Tensor:
    n_out, n_in = weight.shape
    group_size = {"fp32": 1, "bf16": 2, "int8": 4}[precision]
    padded = functional.pad(weight, (0, -n_in % 4, 0, -n_out % native.PANEL))
    panels = padded.view(-1, native.PANEL, padded.shape[1] // group_size, group_size)
    return panels.transpose(1, 2).contiguous()


def _whole_panels(x: Tensor) -> Tensor:
    return functional.pad(x, (0, -len(x) % native.PANEL)).contiguous()

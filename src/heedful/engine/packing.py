"""Pack weights for the matrix products of `heedful.engine` (`source/linear.h`).

A matrix ``[n_out, n_in]`` is split into panels of 32 outputs. Within a panel, the weights of the same 1
(fp32), 2 (bf16) or 4 (int8) neighbouring inputs are adjacent, output after output.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int8
from torch import Tensor
from torch.nn import functional

from heedful.engine import native_library as native

KINDS = {"fp32": native.FP32, "bf16": native.BF16, "int8": native.INT8}
_GROUP_SIZES = {"fp32": 1, "bf16": 2, "int8": 4}


@dataclass(frozen=True)
class Packed:
    """A packed matrix; the last axes are zero-padded to whole panels.

    Args:
        kind: fp32, bf16 or int8.
        n_out, n_in: size of the matrix.
        weights: the packed weights.
        bias: bias of each output.
        scales: int8: quantisation step of each output.
        sums: int8: -128 times the sum of each output's weights.
    """

    kind: str
    n_out: int
    n_in: int
    weights: Tensor
    bias: Tensor | None
    scales: Tensor | None = None
    sums: Tensor | None = None


def pack(weight: Float[Tensor, "n_out n_in"], bias: Float[Tensor, " n_out"] | None, kind: str) -> Packed:
    """Pack a matrix and its bias."""
    weight = weight.detach()
    n_out, n_in = weight.shape
    bias = None if bias is None else _padded(bias.detach())
    if kind != "int8":
        converted = weight.bfloat16() if kind == "bf16" else weight
        return Packed(kind, n_out, n_in, _panels(converted, _GROUP_SIZES[kind]), bias)
    steps, scales = quantised(weight)
    sums = _padded(-128 * steps.sum(1, dtype=torch.int32))
    return Packed(kind, n_out, n_in, _panels(steps, _GROUP_SIZES[kind]), bias, _padded(scales), sums)


def quantised(
    weight: Float[Tensor, "n_out n_in"],
) -> tuple[Int8[Tensor, "n_out n_in"], Float[Tensor, " n_out"]]:
    """Round to multiples, from -127 to 127, of one scale per output: max |weight| / 127."""
    scales = weight.abs().amax(1) / 127
    steps = weight / scales.masked_fill(scales == 0, 1.0)[:, None]
    return steps.round().to(torch.int8), scales


def _panels(weight: Tensor, group_size: int) -> Tensor:
    n_out, n_in = weight.shape
    full = functional.pad(weight, (0, -n_in % 4, 0, -n_out % native.PANEL))
    panels = full.view(-1, native.PANEL, full.shape[1] // group_size, group_size)
    return panels.transpose(1, 2).contiguous()


def _padded(x: Tensor) -> Tensor:
    return functional.pad(x, (0, -len(x) % native.PANEL)).contiguous()

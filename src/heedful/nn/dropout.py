"""Dropout with a fast random mask on the CPU."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 1 << 16  # values of the 16 random bits per element
_WORD = 64 // 16  # elements per 64-bit draw of the generator


def _levels_dropped(p: float) -> int:
    """Return how many of the 65,536 equally likely values drop an element; never none or all."""
    return min(max(round(p * _LEVELS), 1), _LEVELS - 1)


def _draw_mask(x: Tensor, dropped: int) -> Tensor:
    """Return 1 for kept elements. 64-bit words are drawn and split into 16-bit lanes."""
    words = torch.empty(-(-x.numel() // _WORD), dtype=torch.int64, device=x.device)
    lanes = words.random_(-(1 << 63), None).view(torch.int16)[: x.numel()]
    # Comparisons into bytes and products with bytes are vectorised; with booleans neither is.
    mask = torch.empty(x.numel(), dtype=torch.uint8, device=x.device)
    return torch.ge(lanes, dropped - _LEVELS // 2, out=mask).view(x.shape)


# The same as a custom operator, so that torch.compile does not use its own, slower random numbers. The tag
# prevents recomputing a mask or merging two calls.
_mask_operator = torch.library.custom_op(
    "heedful::draw_mask", _draw_mask, mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,)
)


@_mask_operator.register_fake
def _(x: Tensor, dropped: int) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.uint8)


class _Drop(torch.autograd.Function):
    """Compute ``x * mask * scale``; saves only the mask (one byte per element) for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x * mask).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        return _Drop.apply(grads[0], mask, ctx.scale), None, None


class Dropout(nn.Module):
    """Inverted dropout: in training, zero each element with probability p and scale up the others.

    y = x * m / (1 - p), with m ~ Bernoulli(1 - p) independent for every element, so that E[y] = x.
    In evaluation, and for p = 0, y is x itself. The mask is drawn from torch's global generator of the
    device, and the gradient uses the same mask.

    On the CPU the mask is drawn from 16 random bits per element (torch's Bernoulli draw is 5 to 8 times
    slower there and takes longer than the matrix products around it). p is therefore rounded to a multiple of
    2^-16, between 2^-16 and 1 - 2^-16, and the scale is the inverse of the rounded keep probability, so that
    the expectation is exact. Other devices use torch's fused dropout.

    Source: Srivastava et al. 2014, section 10 (the scaling moved from test time to training);
    Vaswani et al. 2017, section 5.4.

    Args:
        p: probability of zeroing an element, 0 <= p < 1.

    Raises:
        ValueError: p is not in [0, 1).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout probability must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop elements of ``x`` in training; return ``x`` otherwise."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.p, training=True)
        dropped = _levels_dropped(self.p)
        # Calling the operator takes longer than drawing the mask.
        draw = _mask_operator if torch.compiler.is_compiling() else _draw_mask
        out: Tensor = _Drop.apply(x, draw(x, dropped), _LEVELS / (_LEVELS - dropped))
        return out

    def extra_repr(self) -> str:
        """Return the probability for ``repr``."""
        return f"p={self.p}"

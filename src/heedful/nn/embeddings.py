"""Token embeddings."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.dropout import Dropout
from heedful.nn.layout import Tokens
from heedful.nn.residual import checked_output
from heedful.nn.taps import Tap

OUTPUT = "embedded tokens, the input of the first layer"


class _Lookup(torch.autograd.Function):
    """Embedding lookup in half precision, with the gradient summed in fp32.

    The gradient of a frequent token has many terms; in bf16 a sum stops growing after some hundred terms.
    """

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape, ctx.dtype = weight.shape, weight.dtype
        return weight.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        total = torch.zeros(ctx.shape, dtype=torch.float32, device=ids.device)
        return None, total.index_add_(0, ids, grads[0].float()).to(ctx.dtype)


def embed(ids: Int[Tensor, " T"], weight: Float[Tensor, "V d"]) -> Float[Tensor, "T d"]:
    """Return row ``ids[t]`` of the table for every t."""
    if weight.dtype in (torch.bfloat16, torch.float16):
        looked_up: Tensor = _Lookup.apply(ids, weight)
        return looked_up
    return functional.embedding(ids, weight)


class TokenEmbedding(nn.Module):
    """``x_t = Dropout(combine(scale * E[id_t], PE(position_t)))``.

    Args:
        weight: E, ``[V, d]``. Pass the same parameter to two embeddings and an output layer to tie them
            (Press and Wolf 2016).
        positions: combines the embedded tokens with their positions: called as
            ``positions(x [T, d], positions [T], end)``.
        scale: the paper multiplies embeddings by sqrt(d_model) (Vaswani et al. 2017, section 3.4;
            missing from every lecture), so that positions of size 1 do not dominate them if E is tied to
            the output layer and therefore small.
        dropout: dropout rate of the sum.

    The lectures disagree on the origin of E (S0 learned, S4 pretrained, S3 either): it is learned unless
    initialised by `heedful.data.vectors`.
    """

    def __init__(
        self, weight: nn.Parameter, positions: nn.Module, *, scale: float = 1.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.weight, self.positions, self.scale = weight, positions, scale
        self.dropout = Dropout(dropout)
        self.output = Tap(OUTPUT)

    def forward(self, tokens: Tokens) -> Float[Tensor, "T d"]:
        """Embed packed ids."""
        x = embed(tokens.ids, self.weight)
        x = x if self.scale == 1.0 else x * self.scale
        return self.output(self.dropout(self.positions(x, tokens.layout.positions, tokens.layout.end)))


class SegmentedEmbedding(nn.Module):
    """``x_t = Dropout(norm(combine(scale * E[id_t], PE(position_t)) + S[segment_t]))``.

    Tokens without segments use the first segment. Source: Devlin et al. 2019, figure 2; the norm is in the
    released code.

    Args:
        weight: E, ``[V, d]``.
        positions: combines the embedded tokens with their positions, as in `TokenEmbedding`.
        segments: S, ``[n_segments, d]``, or None.
        norm: norm of the sum.
        scale: see `TokenEmbedding`.
        dropout: dropout rate of the normalised sum.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        positions: nn.Module,
        segments: nn.Parameter | None,
        norm: nn.Module,
        *,
        scale: float = 1.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.weight, self.positions, self.segments = weight, positions, segments
        self.norm, self.scale, self.dropout = norm, scale, Dropout(dropout)
        self.output = Tap(OUTPUT)

    def forward(self, tokens: Tokens) -> Float[Tensor, "T d"]:
        """Embed packed ids."""
        x = embed(tokens.ids, self.weight)
        x = x if self.scale == 1.0 else x * self.scale
        x = self.positions(x, tokens.layout.positions, tokens.layout.end)
        if self.segments is not None:
            x = x + (self.segments[:1] if tokens.segments is None else embed(tokens.segments, self.segments))
        elif tokens.segments is not None:
            raise ValueError("tokens must not have segments: this embedding has no segment table")
        return self.output(self.dropout(checked_output(self.norm(x), self.norm, x)))

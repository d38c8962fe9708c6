"""Output heads with a nonlinear transform before the output projection."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.embeddings import embed
from heedful.nn.norms import LayerNorm

STD = 0.02
"""Standard deviation of the initial weights, as in BERT (released code)."""


def _transform(d_in: int, d_out: int, activation: nn.Module, eps: float) -> nn.Sequential:
    """Build ``LayerNorm(f(W x + b))``, with W initialised to N(0, 0.02²) and b to 0."""
    layer = nn.Linear(d_in, d_out)
    nn.init.normal_(layer.weight, std=STD)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, activation, LayerNorm(d_out, eps))


class MaskedHead(nn.Module):
    """BERT's masked language modelling head: ``E LayerNorm(f(W h + b)) + c``, with E the embedding table or,
    in an untied model, a matrix of its own.

    d^2 + 3 d + V parameters besides the table: 622,650 for 768 and 30,522. Objectives apply ``transform`` to
    the masked rows and multiply by ``out`` in chunks. Source: Devlin et al. 2019 (released code).

    Args:
        table: E, ``[V, d]``.
        activation: f; GELU by default.
        eps: ε of the norm.
    """

    def __init__(self, table: nn.Parameter, activation: nn.Module | None = None, eps: float = 1e-5) -> None:
        super().__init__()
        n_tokens, d_model = table.shape
        self.transform = _transform(d_model, d_model, nn.GELU() if activation is None else activation, eps)
        self.out = nn.Linear(d_model, n_tokens)
        self.out.weight = table
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n V"]:
        """Compute the logits."""
        return self.out(self.transform(x))


class BoundaryHead(nn.Module):
    """SpanBERT's span boundary head: predicts the tokens of a span from the two tokens next to it.

        h = LayerNorm(GELU(W_1 [x_{s-1}; x_{e+1}; p_{i-s+1}] + b_1)),   y = LayerNorm(GELU(W_2 h + b_2))

    and logits ``E y + c`` with the embedding table E. Source: Joshi et al. 2020, section 3.2.

    Args:
        table: E, ``[V, d]``.
        longest: number of position vectors p within a span; later tokens use the last one.
        eps: ε of the norms.
    """

    def __init__(self, table: nn.Parameter, longest: int, eps: float = 1e-5) -> None:
        super().__init__()
        n_tokens, d_model = table.shape
        self.positions = nn.Parameter(torch.randn(longest, d_model) * STD)
        self.first = _transform(3 * d_model, d_model, nn.GELU(), eps)
        self.second = _transform(d_model, d_model, nn.GELU(), eps)
        self.out = nn.Linear(d_model, n_tokens)
        self.out.weight = table
        nn.init.zeros_(self.out.bias)

    def transform(
        self, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"], within: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d"]:
        """Compute y from the hidden states next to the span of each token and its index in the span."""
        positions = embed(within.clamp(max=len(self.positions) - 1), self.positions)
        return self.second(self.first(torch.cat([before, after, positions.to(before.dtype)], -1)))

    def forward(
        self, before: Float[Tensor, "n d"], after: Float[Tensor, "n d"], within: Int[Tensor, " n"]
    ) -> Float[Tensor, "n V"]:
        """Compute the logits."""
        return self.out(self.transform(before, after, within))

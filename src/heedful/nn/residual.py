"""Residual connections around a part, with a norm after the sum or before the part.

    PostNorm:  x -> Norm(x + Dropout(part(x)))          Vaswani et al. 2017, section 3.1
    PreNorm:   x -> x + Dropout(part(Norm(x)))          Xiong et al. 2020, figure 1(b)

With two of them in an encoder block there are 2^2 paths through it (S1). Pre-norm is absent from the
lectures; a stack of pre-norm blocks needs one more norm at its end.

Their tap ``added`` sees ``Dropout(part(...))``: what the part adds to the residual stream.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.taps import Tap

ADDED = "what the part adds to the residual stream"


class PostNorm(nn.Module):
    """``Norm(x + Dropout(part(x, ...)))``."""

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)
        self.added = Tap(ADDED)

    def forward(self, x: Float[Tensor, "T d"], *context: Any) -> Float[Tensor, "T d"]:
        """``context`` (layout, memory, cache) goes to the part as it is."""
        return self.norm(x + self.added(self.dropout(self.part(x, *context))))


class PreNorm(nn.Module):
    """``x + Dropout(part(Norm(x), ...))``."""

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)
        self.added = Tap(ADDED)

    def forward(self, x: Float[Tensor, "T d"], *context: Any) -> Float[Tensor, "T d"]:
        """``context`` (layout, memory, cache) goes to the part as it is."""
        return x + self.added(self.dropout(self.part(self.norm(x), *context)))


Residual = PostNorm | PreNorm

"""Residual connections around a sublayer, with a norm after the sum or before the sublayer.

    PostNorm:  x -> Norm(x + Dropout(part(x)))          Vaswani et al. 2017, section 3.1
    PreNorm:   x -> x + Dropout(part(Norm(x)))          Xiong et al. 2020, figure 1(b)

An encoder block with two residual connections has 2^2 paths (S1). Pre-norm is not in the lectures; a stack
of pre-norm blocks needs one more norm at its end.

The tap ``added`` sees ``Dropout(part(...))``, which is added to the residual stream.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.errors import RequestError, type_name
from heedful.nn.dropout import Dropout
from heedful.nn.taps import Tap

ADDED = "output of the sublayer that is added to the residual stream"


def checked_output(output: object, part: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a part after checking that it is a tensor of the shape of the input.

    Raises:
        RequestError: it is not; others might broadcast.
    """
    # Comparing numbers of tokens would compile a block again for other numbers.
    first = 1 if torch.compiler.is_compiling() else 0
    if not isinstance(output, Tensor) or output.shape[first:] != x.shape[first:]:
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type_name(output)
        raise RequestError(
            f"{type(part).__name__}: expected an output of the shape of the input, {tuple(x.shape)}, got "
            f"{got}; forward takes and returns [T, d_model]"
        )
    return output


class PostNorm(nn.Module):
    """``Norm(x + Dropout(part(x, ...)))``."""

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)
        self.added = Tap(ADDED)

    def forward(self, x: Float[Tensor, "T d"], *context: object) -> Float[Tensor, "T d"]:
        """Apply the sublayer; ``context`` (layout, memory, cache) is passed to it unchanged."""
        update = self.dropout(checked_output(self.part(x, *context), self.part, x))
        return checked_output(self.norm(x + self.added(update)), self.norm, x)


class PreNorm(nn.Module):
    """``x + Dropout(part(Norm(x), ...))``."""

    def __init__(self, part: nn.Module, norm: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.part, self.norm, self.dropout = part, norm, Dropout(dropout)
        self.added = Tap(ADDED)

    def forward(self, x: Float[Tensor, "T d"], *context: object) -> Float[Tensor, "T d"]:
        """Apply the sublayer; ``context`` (layout, memory, cache) is passed to it unchanged."""
        update = self.part(checked_output(self.norm(x), self.norm, x), *context)
        return x + self.added(self.dropout(checked_output(update, self.part, x)))


Residual = PostNorm | PreNorm

"""The channel mixer: a small network applied to every token by itself."""

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout


class FeedForward(nn.Module):
    """Position-wise feed-forward network: ``FFN(x) = f(x W_1 + b_1) W_2 + b_2``.

    | lectures | here | shape |
    |---|---|---|
    | W_1, b_1 | ``up`` | d_model x d_ff |
    | W_2, b_2 | ``down`` | d_ff x d_model |
    | max(0, .) | ``activation`` | |

    Parameters: 2 d_model d_ff + d_ff + d_model; 2,099,712 for 512 and 2048. The same as two
    convolutions of width 1. Source: Vaswani et al. 2017, section 3.3, equation 2.

    Errors in the lectures: S0 mixes W z and z W in one formula; S2 cites Press and Wolf here, whose
    paper is about tying embeddings.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: nn.Module | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.activation = nn.ReLU() if activation is None else activation
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model)
        for layer in (self.up, self.down):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*T d"]) -> Float[Tensor, "*T d"]:
        """Apply to every token."""
        return self.down(self.dropout(self.activation(self.up(x))))

    @property
    def adds_constant(self) -> dict[str, range]:
        """b_2 is added to every token alike (`heedful.nn.declarations`)."""
        return {"down.bias": range(len(self.down.bias))}

"""Feed-forward channel mixers, applied to every token separately: plain and gated.

The tap ``hidden`` sees the hidden units before dropout, ``[T, d_ff]``, the input of W_2 or W_down. In a
mixture of experts it sees the rows routed to the expert.
"""

from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.heads import init_slices
from heedful.nn.dropout import Dropout
from heedful.nn.taps import Tap

HIDDEN = "hidden units, before dropout"


class FeedForward(nn.Module):
    """Position-wise feed-forward network: ``FFN(x) = f(x W_1 + b_1) W_2 + b_2``.

    | lectures | here | shape |
    |---|---|---|
    | W_1, b_1 | ``up`` | d_model x d_ff |
    | W_2, b_2 | ``down`` | d_ff x d_model |
    | max(0, .) | ``activation`` | |

    Parameters: 2 d_model d_ff + d_ff + d_model; 2,099,712 for 512 and 2048. Equivalent to two convolutions
    of width 1. Source: Vaswani et al. 2017, section 3.3, equation 2.

    Errors in the lectures: S0 mixes W z and z W in one formula; S2 cites Press and Wolf, whose paper is
    about tying embeddings.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: nn.Module | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = nn.ReLU() if activation is None else activation
        self.hidden = Tap(HIDDEN)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        for layer in (self.up, self.down):
            nn.init.xavier_uniform_(layer.weight)
            if bias:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "*T d"]) -> Float[Tensor, "*T d"]:
        """Apply the network to every token."""
        return self.down(self.dropout(self.hidden(self.activation(self.up(x)))))

    @property
    def adds_constant(self) -> dict[str, range]:
        """b_2 is added to every token (`heedful.nn.declarations`)."""
        return _bias_of(self.down)


class GatedFeedForward(nn.Module):
    """``FFN(x) = (f(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down``, ``*`` elementwise.

    | paper | here | shape |
    |---|---|---|
    | W, V, W_2 | W_gate, W_up, ``down`` | d_model x d_ff, d_model x d_ff, d_ff x d_model |
    | f | ``activation`` | sigmoid: GLU; ReLU: ReGLU; GELU: GEGLU; SiLU (Swish with β = 1): SwiGLU |

    W_gate and W_up share one matrix, ``gate_up``, but are initialised separately.

    Parameters: 3 d_model d_ff without biases, as in the paper; with 2/3 of the hidden units, as many as a
    plain `FeedForward`.

    Source: Shazeer 2020, "GLU variants improve Transformer", equations 5 and 6.

    Args:
        d_model: model dimension.
        d_ff: number of hidden units.
        activation: f; SiLU by default.
        bias: whether the three linear maps have biases.
        dropout: dropout rate of the products.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: nn.Module | None = None,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=bias)
        self.activation = nn.SiLU() if activation is None else activation
        self.hidden = Tap(HIDDEN)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        init_slices(self.gate_up.weight, [d_ff, d_ff])
        nn.init.xavier_uniform_(self.down.weight)
        if bias:
            nn.init.zeros_(self.gate_up.bias)
            nn.init.zeros_(self.down.bias)

    @property
    def slices(self) -> dict[str, list[int]]:
        """Row counts of the two matrices that share one parameter."""
        return {"gate_up.weight": [self.down.in_features] * 2}

    @property
    def adds_constant(self) -> dict[str, range]:
        """b_down is added to every token (`heedful.nn.declarations`)."""
        return _bias_of(self.down)

    def forward(self, x: Float[Tensor, "*T d"]) -> Float[Tensor, "*T d"]:
        """Apply the network to every token."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.dropout(self.hidden(self.activation(gate) * up)))


def _bias_of(down: nn.Linear) -> dict[str, range]:
    return {} if down.bias is None else {"down.bias": range(len(down.bias))}

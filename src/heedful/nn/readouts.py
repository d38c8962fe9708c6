"""Readouts: the input of the output layer at each step of a recurrent decoder.

A readout is called as ``readout(s, y, c)`` on the state, the embedded last token E y_{t-1} and the context,
for one step of many sequences or for all steps at once.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MaxoutReadout(nn.Module):
    """``t = max of adjacent pairs of U_o s + V_o E y + C_o c + b`` (Goodfellow et al. 2013).

    Source: Bahdanau et al. 2015, appendix A.2.2. There s is s_{t-1}, the query of the attention.
    """

    def __init__(self, d_state: int, d_embedding: int, d_context: int, d_out: int) -> None:
        super().__init__()
        self.d_out = d_out
        self.state = nn.Linear(d_state, 2 * d_out)
        self.token = nn.Linear(d_embedding, 2 * d_out, bias=False)
        self.context = nn.Linear(d_context, 2 * d_out, bias=False)
        for linear in (self.state, self.token, self.context):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.state.bias)

    def forward(
        self,
        s: Float[Tensor, "T d_state"],
        y: Float[Tensor, "T d_embedding"],
        c: Float[Tensor, "T d_context"],
    ) -> Float[Tensor, "T d_out"]:
        """Compute the readout of the state s, the embedded last token y and the context c."""
        return (self.state(s) + self.token(y) + self.context(c)).unflatten(-1, (-1, 2)).amax(dim=-1)


class TanhReadout(nn.Module):
    """``t = tanh(W_c [c; s] + b)``, Luong's attentional state (Luong et al. 2015, equation 5; no bias there).

    W_c is stored as its two halves.
    """

    def __init__(self, d_state: int, d_context: int, d_out: int) -> None:
        super().__init__()
        self.d_out = d_out
        self.state = nn.Linear(d_state, d_out)
        self.context = nn.Linear(d_context, d_out, bias=False)
        nn.init.xavier_uniform_(self.state.weight)
        nn.init.xavier_uniform_(self.context.weight)
        nn.init.zeros_(self.state.bias)

    def forward(
        self,
        s: Float[Tensor, "T d_state"],
        y: Float[Tensor, "T d_embedding"],
        c: Float[Tensor, "T d_context"],
    ) -> Float[Tensor, "T d_out"]:
        """Compute the readout; it depends on the token y only through s."""
        return torch.tanh(self.state(s) + self.context(c))

"""Bridges: from what was encoded to a decoder's first state s_0.

A bridge is called on an `Encoded` and returns the states of all layers of the decoder, first layer
first, one row for each sentence.
"""

import torch
from torch import nn

from heedful.nn.attention.recurrent import Encoded, States


class ProjectedBridge(nn.Module):
    """``s_0 = tanh(W_s h + b)`` for each state of each layer.

    h is `Encoded.summary`: for a bidirectional encoder, the right-to-left state at the first token, as in
    Bahdanau et al. 2014, appendix A.2.2.
    """

    def __init__(self, d_in: int, d_hidden: int, n_states: int) -> None:
        super().__init__()
        self.n_states = n_states
        self.linear = nn.Linear(d_in, n_states * d_hidden)
        for part in self.linear.weight.data.chunk(n_states):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.linear.bias)

    def forward(self, encoded: Encoded) -> States:
        """The states, in the type of the summary: under autocast too, a state is carried in fp32."""
        states = self.linear(encoded.summary).to(encoded.summary.dtype)
        return torch.tanh(states).chunk(self.n_states, dim=-1)


class CopyBridge(nn.Module):
    """``s_0 = h_T``, layer by layer and with the cells' memory (Sutskever et al. 2014; Luong et al. 2015)."""

    def forward(self, encoded: Encoded) -> States:
        """The encoder's final states; its layers must be the decoder's in number and width."""
        return tuple(state for states in encoded.finals for state in states)


class ZeroBridge(nn.Module):
    """``s_0 = 0``: the decoder learns of the source by attention alone."""

    def __init__(self, d_hidden: int, n_states: int) -> None:
        super().__init__()
        self.d_hidden, self.n_states = d_hidden, n_states

    def forward(self, encoded: Encoded) -> States:
        """Zeros."""
        shape = (encoded.layout.n_sequences, self.d_hidden)
        return tuple(encoded.annotations.new_zeros(shape) for _ in range(self.n_states))

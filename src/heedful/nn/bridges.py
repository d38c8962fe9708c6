"""Bridges: compute the initial decoder state s_0 from the encoder output.

A bridge is called on an `EncoderOutput` and returns the states of all decoder layers, first layer first, with
one row per sentence.
"""

import torch
from torch import nn

from heedful.nn.attention.recurrent import EncoderOutput, States


class ProjectedBridge(nn.Module):
    """``s_0 = tanh(W_s h + b)`` for each state of each layer.

    h is `EncoderOutput.summary`: for a bidirectional encoder, the right-to-left state at the first token, as
    in Bahdanau et al. 2015, appendix A.2.2.
    """

    def __init__(self, d_in: int, d_hidden: int, n_states: int) -> None:
        super().__init__()
        self.n_states = n_states
        self.linear = nn.Linear(d_in, n_states * d_hidden)
        for part in self.linear.weight.data.chunk(n_states):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(self.linear.bias)

    def forward(self, encoded: EncoderOutput) -> States:
        """Return the states in the dtype of the summary: states stay in fp32 also under autocast."""
        states = self.linear(encoded.summary).to(encoded.summary.dtype)
        return torch.tanh(states).chunk(self.n_states, dim=-1)


class CopyBridge(nn.Module):
    """``s_0 = h_T`` for each layer, including memory cells (Sutskever et al. 2014; Luong et al. 2015)."""

    def forward(self, encoded: EncoderOutput) -> States:
        """Return the final encoder states; encoder and decoder must have equal layer counts and widths."""
        return tuple(state for states in encoded.finals for state in states)


class ZeroBridge(nn.Module):
    """``s_0 = 0``: the decoder reads the source only through attention."""

    def __init__(self, d_hidden: int, n_states: int) -> None:
        super().__init__()
        self.d_hidden, self.n_states = d_hidden, n_states

    def forward(self, encoded: EncoderOutput) -> States:
        """Return zeros."""
        shape = (encoded.layout.n_sequences, self.d_hidden)
        return tuple(encoded.annotations.new_zeros(shape) for _ in range(self.n_states))

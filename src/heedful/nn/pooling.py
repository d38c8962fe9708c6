"""Pooling: from the hidden states of a sequence to one vector."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.layout import Layout


class FirstPooling(nn.Module):
    """Hidden state of the first token, the class token in BERT and ViT.

    Source: Devlin et al. 2019, section 3. Sequences must not be empty.
    """

    def forward(self, x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B d"]:
        """Return one row per sequence."""
        if layout.has_empty:
            raise ValueError("sequences must not be empty: an empty sequence has no first token")
        return x[layout.offsets[:-1]]


class LastPooling(nn.Module):
    """Hidden state of the last token, the only one that sees all others in a causal stack.

    Source: Radford et al. 2018, section 3.2. Sequences must not be empty.
    """

    def forward(self, x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B d"]:
        """Return one row per sequence."""
        if layout.has_empty:
            raise ValueError("sequences must not be empty: an empty sequence has no last token")
        return x[layout.offsets[1:] - 1]


class MeanPooling(nn.Module):
    """Mean of the hidden states; zeros for an empty sequence."""

    def forward(self, x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B d"]:
        """Return one row per sequence, summed in fp32."""
        sums = torch.zeros(layout.n_sequences, x.shape[1], dtype=torch.float32, device=x.device)
        sums = sums.index_add(0, layout.sequence, x.float())
        return (sums / layout.length_tensor.clamp(min=1)[:, None]).to(x.dtype)


class MaxPooling(nn.Module):
    """Maximum of each feature over time (Kim 2014, section 2); sequences must not be empty."""

    def forward(self, x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B d"]:
        """Return one row per sequence."""
        if layout.has_empty:
            raise ValueError("sequences must not be empty: an empty sequence has no maximum")
        hidden = ~layout.real[:, :, None]
        return layout.pad(x).masked_fill(hidden, float("-inf")).amax(1)


class Pooler(nn.Module):
    """``activation(W pool(x) + b)``: BERT's pooler, with ``tanh`` on the first token.

    d^2 + d parameters. Source: Devlin et al. 2019 (in the released code; the paper does not mention it).

    Args:
        pooling: computes one vector per sequence.
        d_model: model dimension.
        activation: tanh by default.
    """

    def __init__(self, pooling: nn.Module, d_model: int, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.pooling = pooling
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.Tanh() if activation is None else activation

    def forward(self, x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "B d"]:
        """Return one row per sequence."""
        return self.activation(self.dense(self.pooling(x, layout)))

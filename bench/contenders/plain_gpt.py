"""A small GPT in plain torch, the usual baseline of small language models.

Pre-norm, learned positions, GELU, no biases, output tied to the embedding, initial values N(0, 0.02²),
those of the projections that end a residual branch divided by sqrt(2 n_layers) (Radford et al. 2019).
"""

import math

from torch import Tensor, nn


class Block(nn.Module):
    """Causal self-attention, then a feed-forward, each with a residual connection."""

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.rate = n_heads, dropout
        self.before_attention = nn.LayerNorm(d_model, bias=False)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.before_feed_forward = nn.LayerNorm(d_model, bias=False)
        self.up = nn.Linear(d_model, 4 * d_model, bias=False)
        self.down = nn.Linear(4 * d_model, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, S, d] -> [B, S, d]``."""
        qkv = self.qkv(self.before_attention(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        rate = self.rate if self.training else 0.0
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        wide = nn.functional.gelu(self.up(self.before_feed_forward(x)))
        return x + self.dropout(self.down(wide))


class PlainGPT(nn.Module):
    """Decoder-only language model: ids to logits."""

    def __init__(
        self, vocab: int, length: int, n_layers: int, d_model: int, n_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, d_model)
        self.positions = nn.Embedding(length, d_model)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.head = nn.Linear(d_model, vocab, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                ends_branch = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * n_layers) if ends_branch else 1.0))

    def forward(self, ids: Tensor) -> Tensor:
        """``[B, S] -> [B, S, V]``."""
        x = self.dropout(self.tokens(ids) + self.positions.weight[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return parameter groups: weight decay for matrices, none for gains."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]

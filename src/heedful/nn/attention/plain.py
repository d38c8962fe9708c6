"""Self-attention before there is anything to learn: the tokens are queries, keys and values at once."""

from jaxtyping import Float
from torch import Tensor

from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout


def parameter_free_self_attention(x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "T d"]:
    """softmax(X Xᵀ) X for every sequence, with X its tokens as rows.

    A token attends most to what lies in its own direction, which is mostly itself, and nothing can
    change that: the reason for learned projections to queries, keys and values.

    Source: lecture S1, section on self-attention.
    """
    rows = layout.pad(x)[:, None]
    weights = attention_weights(DotScore()(rows, rows), layout.sees(layout))
    return layout.unpad(weighted_sum(weights, rows)[:, 0])

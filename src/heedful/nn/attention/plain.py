"""Self-attention without parameters: the tokens themselves are queries, keys and values."""

from jaxtyping import Float
from torch import Tensor

from heedful.nn.attention.scores import DotScore
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.layout import Layout
from heedful.nn.visibility import Visibility


def parameter_free_self_attention(x: Float[Tensor, "T d"], layout: Layout) -> Float[Tensor, "T d"]:
    """Compute softmax(X Xᵀ) X for every sequence, with its tokens as the rows of X.

    A token attends most to the vectors with the largest dot product with it: of similar direction or large
    norm, often itself. Learned projections to queries, keys and values remove this restriction.

    Source: lecture S1, section on self-attention.
    """
    rows = layout.pad(x)[:, None]
    weights = attention_weights(DotScore()(rows, rows), Visibility.of(layout, layout))
    return layout.unpad(weighted_sum(weights, rows)[:, 0])

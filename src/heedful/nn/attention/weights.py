"""Scores to weights, and weights to a weighted sum: what every attention does, whatever its score.

    alpha_ij = exp(e_ij) / sum_{r in S_i} exp(e_ir),   z_i = sum_{j in S_i} alpha_ij v_j

| lectures | here |
|---|---|
| e_ij, score(s_{t-1}, h_j) | ``scores[..., i, j]`` |
| alpha_ij | ``weights[..., i, j]`` |
| S_i (S4) | `Visibility` |
| z_i, c_t | a row of the result |

Errors in the lectures. S0 adds the causal mask to A, which is a softmax already, and takes the
softmax again: the first one ran over later words too, so these still change what comes out, and the
rows are flattened. The mask belongs on the scores, before the one softmax. S4 calls the T x d_v
result the attention matrix: that name belongs to the weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.nn.visibility import Visibility


def attention_weights(scores: Float[Tensor, "B H Q K"], visibility: Visibility) -> Float[Tensor, "B H Q K"]:
    """Softmax over the visible keys; a query that sees none gets a row of exact zeros.

    Source: Vaswani et al. 2017, equation 1; masking, section 3.2.3.
    """
    if visibility.hint == "all":
        return torch.softmax(scores, dim=-1)
    hidden = visibility.hidden[:, None]
    # The lowest finite number and not -inf: a row without keys must stay finite, also in its gradient.
    weights = torch.softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), dim=-1)
    if visibility.every_query_sees_a_key:
        return weights
    return weights.masked_fill(hidden, 0.0)


def weighted_sum(
    weights: Float[Tensor, "B H Q K"], values: Float[Tensor, "B H K d_v"]
) -> Float[Tensor, "B H Q d_v"]:
    """``weights @ values``. Invisible values must be finite: zero times NaN is NaN."""
    return weights @ values

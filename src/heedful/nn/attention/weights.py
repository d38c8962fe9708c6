"""Attention weights from scores, and weighted sums of values, for self- and cross-attention.

    alpha_ij = exp(e_ij) / sum_{r in S_i} exp(e_ir) for j in S_i, else 0
    z_i = sum_{j in S_i} alpha_ij v_j;  0 if S_i is empty

As matrices, with all keys visible: Z = softmax(Q Kᵀ / √d_k) V (Vaswani et al. 2017, equation 1). Attention in
recurrent decoders has its own softmax (`heedful.nn.attention.recurrent`).

| lectures | here |
|---|---|
| e_ij, score(s_{t-1}, h_j) | ``scores[..., i, j]`` |
| alpha_ij | ``weights[..., i, j]`` |
| S_i (S4) | `Visibility` |
| z_i, c_t | a row of the result |

Errors in the lectures. S0 adds the causal mask to A, which is already a softmax, and applies softmax again:
the first softmax includes later words, so they still affect the result, and the second makes the rows
flatter. The mask must be applied to the scores, before a single softmax. S4 calls the T x d_v result the
attention matrix; the term refers to the weights.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from heedful.nn.visibility import Visibility


def attention_weights(scores: Float[Tensor, "B H Q K"], visibility: Visibility) -> Float[Tensor, "B H Q K"]:
    """Compute softmax over the visible keys; a query without visible keys gets a row of exact zeros.

    Source: Vaswani et al. 2017, equation 1; masking, section 3.2.3.
    """
    if visibility.hint == "all":
        return torch.softmax(scores, dim=-1)
    masked = visibility.hidden[:, None]
    # The lowest finite number instead of -inf: rows without keys and their gradients must stay finite.
    weights = torch.softmax(scores.masked_fill(masked, torch.finfo(scores.dtype).min), dim=-1)
    if visibility.every_query_sees_a_key:
        return weights
    return weights.masked_fill(masked, 0.0)


def weighted_sum(
    weights: Float[Tensor, "B H Q K"], values: Float[Tensor, "B H K d_v"]
) -> Float[Tensor, "B H Q d_v"]:
    """Compute ``weights @ values``. Invisible values must be finite: zero times NaN is NaN."""
    return weights @ values

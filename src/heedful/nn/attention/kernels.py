"""Attention kernels, and the choice between them.

Three kernels compute the same, up to rounding:

| kernel | scores | computes |
|---|---|---|
| ``explicit`` | all | scores and weights by separate operations; taps can replace them |
| ``matmul`` | products s q·k' | one operation with its own gradient, softmax in fp32, without dropout |
| ``sdpa`` | products s q·k' | torch's ``scaled_dot_product_attention``, without storing the weights |

with any constant s (`ScoreFunction.product_scale`). `choose` chooses between them.

For every kernel, invisible keys and values have no effect, even if they hold NaN, and a query with no visible
key gets output 0 and gradient 0. For that, if the mask hides any real token, NaN and infinity are replaced by
0 in all queries, keys and values; a diverging model is still seen in the residual stream.
"""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from heedful.nn.attention.scores import ScoreFunction, checked_scores
from heedful.nn.attention.weights import attention_weights, weighted_sum
from heedful.nn.dropout import Dropout
from heedful.nn.taps import Heads, Tap
from heedful.nn.visibility import Visibility

Kernel = Literal["explicit", "matmul", "sdpa"]

# On a CPU, matmul is faster than sdpa for short sequences and for all bf16 training (on the Zen 4 of
# docs/benchmarks/performance.md, forward and backward at 16 tokens, bf16: matmul 2 ms, sdpa 18 ms, sdpa in
# fp32 4 ms; matmul is faster at 24, 256 and 512 tokens in bf16 too). For long fp32 sequences, sdpa needs less
# RAM. The limit is for the geometric mean of Q and K.
CPU_SDPA_FROM = 256


def choose(
    queries: Tensor,
    keys: Tensor,
    *,
    is_product: bool,
    wants_weights: bool,
    learned_bias: bool = False,
    drops: bool = False,
) -> Kernel:
    """Choose the kernel from score, device, dtype, lengths and requirements.

    Args:
        queries: ``[B, H, Q, d_k]``.
        keys: prepared, ``[B, G, K, d_p]``.
        is_product: the score is a scaled dot product.
        wants_weights: a hook may replace scores or weights.
        learned_bias: the bias of the scores requires a gradient (every kernel supports a constant bias).
        drops: attention dropout is active.
    """
    if not is_product or wants_weights or learned_bias:
        return "explicit"
    if queries.device.type != "cpu":
        return "sdpa"
    # torch.compile fuses the explicit operations itself.
    separate: Kernel = "explicit" if drops or torch.compiler.is_compiling() else "matmul"
    if queries.dtype == torch.bfloat16 and queries.requires_grad:
        return separate
    return "sdpa" if queries.shape[2] * keys.shape[2] >= CPU_SDPA_FROM**2 else separate


def attend(
    queries: Float[Tensor, "B H Q d_k"],
    keys: Float[Tensor, "B G K d_p"],
    values: Float[Tensor, "B G K d_v"],
    visibility: Visibility,
    score: ScoreFunction,
    *,
    dropout: Dropout,
    scores_tap: Tap,
    weights_tap: Tap,
    bias: Float[Tensor, "..."] | None = None,
    kernel: Kernel | None = None,
) -> Float[Tensor, "B H Q d_v"]:
    """Compute attention over padded tensors.

    Args:
        queries: padding rows may hold any finite values.
        keys: prepared by ``score.prepare``; G heads, each shared by H / G query heads.
        values: as many heads and rows as keys.
        visibility: which keys each query sees.
        score: score function of queries and keys.
        dropout: applied to the weights.
        scores_tap: receives the scores, without the bias.
        weights_tap: receives the weights, before dropout. A hook that can replace scores or weights forces
            the explicit kernel. If they are only observed, any kernel runs, and `compute_for_taps` computes
            them separately.
        bias: added to the scores (relative positions, ALiBi); broadcasts to [B, H, Q, K]. It is cast to the
            dtype of the scores. Half precision rounds it, in bf16 by at most 1/256 of its value.
        kernel: force a kernel; by default `choose` decides. ``matmul`` applies no dropout: `choose` takes it
            only if none is active.
    """
    if visibility.masks_real_keys:
        queries, keys, values = (replace_non_finite(x) for x in (queries, keys, values))
    scale = score.product_scale(queries.shape[-1])
    wants = scores_tap.has_hooks or weights_tap.has_hooks
    if kernel is None:
        kernel = choose(
            queries,
            keys,
            is_product=scale is not None,
            wants_weights=wants,
            learned_bias=bias is not None and bias.requires_grad,
            drops=dropout.training and dropout.p > 0,
        )
    if kernel != "explicit" and (scores_tap.has_observers or weights_tap.has_observers):
        compute_for_taps(queries, keys, visibility, score, bias, scores_tap, weights_tap)
    if kernel == "sdpa":
        assert scale is not None
        return _sdpa(queries, keys, values, visibility, scale, dropout, bias)
    groups = queries.shape[1] // keys.shape[1]
    if groups > 1:
        keys, values = (x.repeat_interleave(groups, dim=1) for x in (keys, values))
    if kernel == "matmul":
        assert scale is not None
        return _matmul(queries, keys, values, visibility, scale, bias)
    scores = scores_tap(checked_scores(score(queries, keys), score, queries, keys))
    biased = scores if bias is None else scores + bias.to(scores.dtype)
    weights = weights_tap(attention_weights(biased, visibility))
    return weighted_sum(dropout(weights), values)


@torch.no_grad()
def compute_for_taps(
    queries: Float[Tensor, "B H Q d_k"],
    keys: Float[Tensor, "B G K d_p"],
    visibility: Visibility,
    score: ScoreFunction,
    bias: Float[Tensor, "..."] | None,
    scores_tap: Tap,
    weights_tap: Tap,
) -> None:
    """Compute scores and weights for observers if the kernel does not materialize them.

    Only the requested heads are computed. Arguments as in `attend`; queries and keys are finite. Product
    scores are computed at least in fp32 (``matmul`` rounds them to the type of the queries first).
    """
    groups = queries.shape[1] // keys.shape[1]
    is_product = score.product_scale(queries.shape[-1]) is not None
    wide = torch.promote_types(queries.dtype, torch.float32)

    def scores(heads: Heads) -> Tensor:
        indices = range(queries.shape[1]) if heads is None else heads
        head_queries = queries if heads is None else queries[:, list(heads)]
        head_keys = keys if heads is None and groups == 1 else keys[:, [head // groups for head in indices]]
        if not is_product:  # its weights have the dtype of the queries
            return (score if heads is None else score.for_heads(heads))(head_queries, head_keys)
        with torch.autocast(queries.device.type, enabled=False):
            return score(head_queries.to(wide), head_keys.to(wide))

    def weights(heads: Heads) -> Tensor:
        biased = scores(heads)
        if bias is not None:
            by_head = heads is not None and bias.dim() > 2 and bias.shape[-3] > 1
            biased = biased + (bias[..., list(heads or ()), :, :] if by_head else bias).to(biased.dtype)
        return attention_weights(biased, visibility)

    scores_tap.show(scores)
    weights_tap.show(weights)


def replace_non_finite(x: Tensor) -> Tensor:
    """Replace NaN and infinity by zero, so that zero weights and gradients stay zero."""
    # On a CPU, check first whether there is anything to replace: a finite sum has finite terms.
    can_check = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if can_check and bool(x.detach().sum(dtype=torch.float32).isfinite()):
        return x
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


# Block size of the queries in causal attention, so that most masked scores are not computed.
CAUSAL_ROWS = 128


class _MatmulAttention(torch.autograd.Function):
    """softmax(scale · q kᵀ + bias) v; saves the inputs and the weights for the backward pass.

    With W the weights, Z = W V and G the gradient of Z:
    dV = Wᵀ G,  dS = W ⊙ (G Vᵀ - rowsum(W ⊙ G Vᵀ)),  dQ = scale dS K,  dK = scale dSᵀ Q.

    The bias, [1 or B, 1 or H, Q, K] or None, is constant. ``ends`` splits the queries into blocks: (end of
    the block, number of leading keys that it may see).
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        masked: Tensor | None,
        has_empty_rows: bool,
        scale: float,
        ends: list[tuple[int, int]],
        bias: Tensor | None,
    ) -> Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        out, saved_weights, start = q.new_empty(*q.shape[:-1], v.shape[-1]), [], 0
        for end, n_visible in ends:
            scores = (q[:, :, start:end] @ k[:, :, :n_visible].mT).to(wide).mul_(scale)
            if bias is not None:
                scores += bias[..., start:end, :n_visible]
            hidden = None if masked is None else masked[:, :, start:end, :n_visible]
            if hidden is not None:
                scores.masked_fill_(hidden, torch.finfo(wide).min)
            weights = scores.softmax(-1)
            if has_empty_rows and hidden is not None:
                weights.masked_fill_(hidden, 0.0)
            weights = weights.to(q.dtype)
            out[:, :, start:end] = weights @ v[:, :, :n_visible]
            saved_weights.append(weights)
            start = end
        ctx.save_for_backward(q, k, v, *saved_weights)
        ctx.scale, ctx.ends = scale, ends
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *saved_weights = ctx.saved_tensors
        (grad,) = grads
        wide = torch.promote_types(q.dtype, torch.float32)
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        start = 0
        for (end, n_visible), weights in zip(ctx.ends, saved_weights, strict=True):
            g_rows, keys, values = grad[:, :, start:end], k[:, :, :n_visible], v[:, :, :n_visible]
            s = torch.ops.aten._softmax_backward_data(
                (g_rows @ values.mT).to(wide), weights.to(wide), -1, wide
            )
            s = s.mul_(ctx.scale).to(q.dtype)
            d_q[:, :, start:end] = s @ keys
            d_k[:, :, :n_visible] += s.mT @ q[:, :, start:end]
            d_v[:, :, :n_visible] += weights.mT @ g_rows
            start = end
        return d_q, d_k, d_v, None, None, None, None, None


def _matmul(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visibility: Visibility,
    scale: float,
    bias: Tensor | None,
) -> Tensor:
    """Call `_MatmulAttention`, which keeps fewer tensors for the backward pass than separate operations.

    `choose` takes it on a CPU for product scores and short sequences or bf16 training, where it is faster
    than torch's fused kernel (`CPU_SDPA_FROM`), if nothing needs the weights themselves: no dropout and no
    hook. It takes no dropout, so a caller that forces it gets attention without dropout.
    """
    masked: Bool[Tensor, "B 1 Q K"] | None = None
    if visibility.hint != "all":
        masked = visibility.hidden[:, None]
    has_empty_rows = not visibility.every_query_sees_a_key
    n_queries, n_keys = queries.shape[2], keys.shape[2]
    ends = [(n_queries, n_keys)]
    if visibility.hint == "causal":  # query i sees no key after i
        steps = range(CAUSAL_ROWS, n_queries, CAUSAL_ROWS)
        ends = [*((end, end) for end in steps), *ends]
    out: Tensor = _MatmulAttention.apply(queries, keys, values, masked, has_empty_rows, scale, ends, bias)
    return out


def _sdpa(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    visibility: Visibility,
    scale: float,
    dropout: Dropout,
    bias: Tensor | None,
) -> Tensor:
    """Call torch's fused kernel; rows without visible keys are handled here because its backends differ.

    The kernel takes a mask or a bias, so the mask is merged into the bias as very low values.
    """
    mask_from_hint = visibility.hint == "all" or (visibility.hint == "causal" and bias is None)
    mask = None if mask_from_hint else visibility.visible[:, None]
    empty_rows = None
    if mask is not None and not visibility.every_query_sees_a_key:
        empty_rows = ~mask.any(-1, keepdim=True)
        mask = mask | empty_rows
    if bias is not None:
        bias = bias.to(queries.dtype)
        # Half of the lowest number: some backends multiply by log2 e, which must not overflow.
        mask = bias if mask is None else bias.masked_fill(~mask, torch.finfo(bias.dtype).min / 2)
    out = functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        dropout_p=dropout.p if dropout.training else 0.0,
        is_causal=mask is None and visibility.hint == "causal",
        scale=scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return out if empty_rows is None else out.masked_fill(empty_rows, 0.0)

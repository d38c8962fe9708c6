"""Multi-head additive attention for recurrent decoders, optionally location-aware.

    e_th,i = g_hᵀ tanh(W_q^h s + b^h + W_k^h h_i + f_th,i),       alpha_th = softmax_i(scale e_th,i)
    c_t = W_o [sum_i alpha_t1,i W_v^1 h_i; ...; sum_i alpha_tH,i W_v^H h_i]

As `heedful.models.recurrent` builds them:

| lecture S2 | ``location`` | ``scale`` | f_th,i |
|---|---|---|---|
| multi-head additive | None | 1 / sqrt(d_k) | 0 |
| multi-head location-aware | filters of one width | 2 (ESPnet's constant) | U_h (F_h * alpha_{t-1,h})_i |
| multi-head multi-resolution | one width per head | 1 / sqrt(d_k) | the same |

The second row is that of Chorowski et al. 2015 (section 2.2) with separate filters per head: F_h * alpha is a
convolution (as in neural networks, without flipping the filter) along the source, so an alignment can
continue from its previous position. It depends on the previous step and has no parallel form, so it is
available in recurrent decoders only. Before the first step, every head has uniform weights over the real
tokens.

Source: the lecture names them without equations. The equations follow ESPnet (``AttMultiHeadAdd``,
``AttMultiHeadLoc``, ``AttMultiHeadMultiResLoc``), whose g_h also has a bias, which softmax ignores. Its
docstring says of the last that the number of channels varies by head; in fact the filter width varies.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.heads import init_slices, merge_heads, split_heads
from heedful.nn.attention.recurrent import (
    Annotations,
    AttentionResult,
    EncoderOutput,
    SourceMemory,
    masked_softmax,
)


class LocationFeatures(nn.Module):
    """``f_h = U_h (F_h * alpha_h)``: features of each head's last alignment, with the width of its keys.

    F_h has ``channels`` centred filters of width 2 w_h + 1; U_h is d_k x channels, and ``weight[h]`` its
    transpose. Neither has a bias, so padding, with alignment zero, has no effect.

    Args:
        half_widths: w_h of every head.
        channels: number of filters of F_h.
        d_k: width of a key.
    """

    def __init__(self, half_widths: Sequence[int], channels: int, d_k: int) -> None:
        super().__init__()
        self.filters = nn.ModuleList(
            nn.Conv1d(1, channels, 2 * w + 1, padding=w, bias=False) for w in half_widths
        )
        self.weight = nn.Parameter(torch.empty(len(half_widths), channels, d_k))
        for matrix in self.weight.data:
            nn.init.xavier_uniform_(matrix)

    def forward(self, alignment: Float[Tensor, "N H S"]) -> Float[Tensor, "N H S d_k"]:
        """Compute the features of every source position."""
        heads = alignment.split(1, dim=1)
        filtered = [convolve(head).mT for convolve, head in zip(self.filters, heads, strict=True)]
        # Heads first: one matrix product per head, without copying U.
        features = torch.stack(filtered).flatten(1, 2) @ self.weight
        return features.unflatten(1, (alignment.shape[0], -1)).transpose(0, 1)


def resolutions(half_width: int, n_heads: int) -> list[int]:
    """Return ``w_h = w (h + 1) // H``: 25, 50, 75, 100 for w = 100, H = 4 (filter widths 51 to 201)."""
    return [half_width * (h + 1) // n_heads for h in range(n_heads)]


class MultiHeadAdditiveAttention(nn.Module):
    """Multi-head additive attention for recurrent decoders (see above).

    | parameter | shape | |
    |---|---|---|
    | ``query`` | d_query -> n_heads d_k | W_q^h and b^h, ordered by head |
    | ``key``, ``value`` | d_annotation -> n_heads d_k, n_heads d_v | W_k^h, W_v^h |
    | ``vector`` | n_heads x d_k x 1 | g_h |
    | ``out`` | n_heads d_v -> d_annotation | W_o |

    Same interface as `RecurrentAttention`; the weights have an axis for heads, ``[N, H, S]``. With a
    location, the weights are the history.

    The parallel counterpart is `CrossAttention` with an `AdditiveScore` that has a vector per head: there
    all heads share one W_q and W_k, on top of each head's own projections. The two are equal if the
    shared W_q and W_k are identities, v_h = g_h / sqrt(d_k), and the projection of the queries has the bias
    b^h. With a location there is no parallel form.

    Args:
        d_query: width of s.
        d_annotation: width of h_i, and of the context.
        n_heads: number of heads, H.
        d_k, d_v: widths of the keys and values of a head.
        scale: factor of the scores; 1 / sqrt(d_k) by default.
        location: computes features of the last alignments; None for no location features.
    """

    def __init__(
        self,
        d_query: int,
        d_annotation: int,
        n_heads: int,
        *,
        d_k: int,
        d_v: int,
        scale: float | None = None,
        location: LocationFeatures | None = None,
    ) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v, self.d_context = n_heads, d_k, d_v, d_annotation
        self.scale = 1.0 / math.sqrt(d_k) if scale is None else scale
        self.query = nn.Linear(d_query, n_heads * d_k)
        self.key = nn.Linear(d_annotation, n_heads * d_k, bias=False)
        self.value = nn.Linear(d_annotation, n_heads * d_v, bias=False)
        self.vector = nn.Parameter(torch.empty(n_heads, d_k, 1))
        self.location = location
        self.out = nn.Linear(n_heads * d_v, d_annotation, bias=False)
        for layer, d in ((self.query, d_k), (self.key, d_k), (self.value, d_v)):
            init_slices(layer.weight, [d] * n_heads)
        for vector in self.vector.data:
            nn.init.xavier_uniform_(vector)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.query.bias)

    def make_memory(self, encoded: EncoderOutput) -> Annotations:
        """Project keys and values of all heads, once per sentence."""
        layout, annotations = encoded.layout, encoded.annotations
        keys, values = (
            split_heads(layout.pad(part(annotations)), self.n_heads).contiguous()
            for part in (self.key, self.value)
        )
        return Annotations(values, keys, None if layout.is_rectangular else ~layout.real[:, None])

    def check_query(self, d_query: int) -> None:
        """Raise ValueError if the queries have another width."""
        if d_query != self.query.in_features:
            raise ValueError(f"expected attention with d_query={d_query}, got {self.query.in_features}")

    def initial_history(self, memory: SourceMemory) -> Tensor | None:
        """Return the initial history of B hypotheses: uniform alignments, or None without a location."""
        if self.location is None:
            return None
        assert isinstance(memory, Annotations)
        n, _, length, _ = memory.keys.shape
        wide = torch.promote_types(memory.keys.dtype, torch.float32)
        uniform = masked_softmax(memory.keys.new_zeros(n, 1, length, dtype=wide), memory.masked)
        return uniform.expand(n, self.n_heads, length)

    def forward(
        self, query: Float[Tensor, "N d_query"], memory: Annotations, history: Tensor | None
    ) -> AttentionResult:
        """Attend once with every head; the context of a sentence without tokens is exactly 0."""
        n = len(memory.keys)
        q = split_heads(self.query(query).unflatten(0, (n, -1)), self.n_heads)
        sums = q[:, :, :, None] + memory.keys[:, :, None]  # [B, H, M, S, d_k], M hypotheses per sentence
        if self.location is not None:
            assert history is not None
            if history.shape[-1]:  # convolutions reject empty rows
                features = self.location(history.to(memory.keys.dtype))
                sums = sums + features.unflatten(0, (n, -1)).transpose(1, 2)
        shape = sums.shape[:-1]
        scores = self.scale * (torch.tanh(sums).flatten(2, 3) @ self.vector).view(shape)
        masked = None if memory.masked is None else memory.masked[:, :, None]
        weights = masked_softmax(scores, masked)
        context = self.out(merge_heads(weights @ memory.vectors).flatten(0, 1))
        weights = weights.transpose(1, 2).flatten(0, 1)
        return AttentionResult(context, weights, None if self.location is None else weights)

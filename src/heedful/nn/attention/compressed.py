"""Memory-compressed attention: keys and values are shortened by a factor c (3 in the paper).

Keys and values are shortened by a convolution with kernel size = stride = c and no nonlinearity. With k_t
the projected keys of a head, and C_1 ... C_c its d_k x d_k filters,

    slot 0 = k_0,        slot j = C_1 k_{c(j-1)} + ... + C_c k_{cj-1} + b        for j = 1, 2, ...

and the same for values, with separate filters. Slot j represents the c tokens before position cj:

    token      0   1   2 | 3   4   5 | 6   7          slot j is visible to query i if and only if cj <= i
    slot       `-- 1 --' | `-- 2 --' |
    query 0, 1, 2 see slot 0; 3, 4, 5 also 1; 6, 7 also 2

A token therefore cannot attend to its own block (but the first block to token 0, through slot 0), and
trailing tokens that do not fill a block are in no slot; combine with local attention to attend to nearby
tokens. Slot 0, the unconvolved first token, gives the first block something to attend to.

Source: Liu et al. 2018, section 4.2.3 ("memory-compressed attention"), which projects first and then
convolves keys and values. The paper does not specify whether a filter reads one head or all of them; here
it reads one, so that heads stay independent. The released code (tensor2tensor) differs: it convolves the
tokens, with a d_model x d_model filter for each of the c positions, and projects the result.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.attention.heads import HeadOptions, MultiHead, init_layer, split_heads
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.visibility import Visibility


class Compression(nn.Module):
    """Strided convolution per head, with kernel size = stride = ``factor``.

    | parameter | shape | |
    |---|---|---|
    | ``weight`` | heads x (factor d) x d | C_1ᵀ ... C_cᵀ of each head, from the earliest token on |
    | ``bias`` | heads d | ordered by head |
    """

    def __init__(self, n_heads: int, d: int, factor: int, *, bias: bool) -> None:
        super().__init__()
        if factor < 2:
            raise ValueError(f"factor must be at least 2, got {factor}")
        self.factor = factor
        self.weight = nn.Parameter(torch.empty(n_heads, factor * d, d))
        for filters in self.weight.data:
            nn.init.xavier_uniform_(filters)
        self.bias = nn.Parameter(torch.zeros(n_heads * d)) if bias else None

    def forward(self, x: Float[Tensor, "B h S d"]) -> Float[Tensor, "B h n d"]:
        """Return ``n = S // factor`` vectors; trailing vectors that do not fill a block are dropped."""
        n = x.shape[2] // self.factor
        # Heads first: one matrix product per head, without copying the filters.
        blocks = x.transpose(0, 1)[:, :, : n * self.factor].reshape(
            len(self.weight), -1, self.weight.shape[1]
        )
        y = (blocks @ self.weight).unflatten(1, (len(x), n)).transpose(0, 1)
        return y if self.bias is None else y + self.bias.to(y.dtype).unflatten(0, (len(self.weight), 1, -1))


@dataclass
class CompressedCache:
    """Cache of the slots so far and of the tokens that do not fill a block yet.

    Args:
        memory: the slots.
        tail_keys, tail_values: projections of the last tokens, ``[N, G, P, d]`` with P = factor - 1; the
            length of each hypothesis determines how many are valid.
    """

    memory: KeyValueCache = field(default_factory=KeyValueCache)
    tail_keys: Float[Tensor, "N G P d_k"] | None = None
    tail_values: Float[Tensor, "N G P d_v"] | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "CompressedCache":
        """Return the cache of the hypotheses ``rows``."""
        select_rows = lambda x: None if x is None else x.index_select(0, rows)  # noqa: E731
        return CompressedCache(
            self.memory.select(rows), select_rows(self.tail_keys), select_rows(self.tail_values)
        )


class MemoryCompressedAttention(MultiHead):
    """Causal self-attention to a memory that is ``factor`` times shorter than the sequence (see above).

    Args:
        d_model: model dimension.
        n_heads: number of heads, h.
        factor: compression factor, c.
        options: see `HeadOptions`; ``qkv_bias`` also adds a bias to the convolutions.

    Cost: G factor (d_k^2 + d_v^2) parameters more than `SelfAttention` for G heads of keys and values;
    scores and weighted sums cost 1 / ``factor`` of its.
    """

    fused_name = "qkv"  # see `MultiHead`
    causal = True
    not_compilable = True
    """Slot counts depend on the sequence lengths: compiling would trace a new graph for every batch
    (`heedful.nn.declarations`)."""

    def __init__(
        self, d_model: int, n_heads: int, *, factor: int = 3, **options: Unpack[HeadOptions]
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        self.factor = factor
        self.qkv = nn.Linear(d_model, sum(self.sizes), bias=self.qkv_bias)
        init_layer(self.qkv, self.sizes)
        self.compress_keys = Compression(self.n_kv_heads, self.d_k, factor, bias=self.qkv_bias)
        self.compress_values = Compression(self.n_kv_heads, self.d_v, factor, bias=self.qkv_bias)

    @property
    def without_gradient(self) -> dict[str, Iterable[int]]:
        """Empty: slot 0 is not convolved, so no bias shifts all scores of a query equally.

        (See `heedful.nn.declarations`.)
        """
        return {}

    @property
    def adds_constant(self) -> dict[str, range]:
        """Only the output bias: the value bias passes through the convolution, except in slot 0."""
        return {} if self.out.bias is None else {"out.bias": range(len(self.out.bias))}

    def new_cache(self) -> CompressedCache:
        """Return an empty cache."""
        return CompressedCache()

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: CompressedCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Attend within each sequence; with a cache, the tokens continue the cached sequences."""
        q, k, v = layout.pad(self.qkv(x)).split(self.sizes, dim=-1)
        keys, values = (split_heads(part, self.n_kv_heads) for part in (k, v))
        if cache is None:
            keys = self.score.prepare(torch.cat([keys[:, :, :1], self.compress_keys(keys)], dim=2))
            values = torch.cat([values[:, :, :1], self.compress_values(values)], dim=2)
        else:
            keys, values = self._continue(keys, values, layout, cache)
        with_past = layout.with_past
        memory = with_past.memo(("memory", self.factor), lambda: memory_layout(with_past, self.factor))
        visibility = Visibility.of(layout, memory, causal=True, key_stride=self.factor)
        mixed = self._attend(split_heads(q, self.n_heads), keys, values, visibility)
        return self.out(layout.unpad(mixed))

    def _continue(
        self, keys: Tensor, values: Tensor, layout: Layout, cache: CompressedCache
    ) -> tuple[Tensor, Tensor]:
        """Append the tokens of ``layout`` to the cache and return the memory so far."""
        starts, lengths = layout.starts, layout.lengths
        # The first token of each new sequence is slot 0.
        n_first_tokens = [int(start == 0 and n > 0) for start, n in zip(starts, lengths, strict=True)]
        first_tokens = Layout.of(n_first_tokens, device=layout.device)
        n_slot_0 = first_tokens.max_length
        cache.memory.append(self.score.prepare(keys[:, :, :n_slot_0]), values[:, :, :n_slot_0], first_tokens)
        # Concatenate the tail and the new tokens, and count the blocks that they fill.
        tails = Layout.of([start % self.factor for start in starts], device=layout.device)
        combined = [a + b for a, b in zip(tails.lengths, lengths, strict=True)]
        filled = [n // self.factor for n in combined]
        blocks = Layout.of(filled, [1 + start // self.factor for start in starts], layout.device)
        cache.tail_keys, all_keys = _append_tail(cache.tail_keys, keys, tails, layout, self.factor)
        cache.tail_values, all_values = _append_tail(cache.tail_values, values, tails, layout, self.factor)
        n_filled = blocks.max_length * self.factor
        new_keys = self.score.prepare(self.compress_keys(all_keys[:, :, :n_filled]))
        new_values = self.compress_values(all_values[:, :, :n_filled])
        cache.memory.append(new_keys, new_values, blocks)
        slots, n_slots = cache.memory, memory_layout(layout.with_past, self.factor).max_length
        assert slots.keys is not None
        assert slots.values is not None
        return slots.keys[:, :, :n_slots], slots.values[:, :, :n_slots]


def memory_layout(layout: Layout, factor: int) -> Layout:
    """Return the layout of the slots: for each sequence, the first token and its complete blocks."""
    return Layout.of([1 + n // factor if n else 0 for n in layout.lengths], device=layout.device)


def _append_tail(
    tail: Tensor | None, projected: Tensor, tails: Layout, layout: Layout, factor: int
) -> tuple[Tensor, Tensor]:
    """Concatenate ``tail`` and ``projected``; return the new tail and the concatenation."""
    n, heads, _, d = projected.shape
    ends = [a + b for a, b in zip(tails.lengths, layout.lengths, strict=True)]
    buffer = projected.new_zeros(n, heads, max(ends, default=0) + factor, d)
    if tail is not None:
        buffer[:, :, : factor - 1] = tail
    rows, columns = layout.sequence, layout.within
    buffer[rows, :, tails.length_tensor[rows] + columns] = projected[rows, :, columns]
    filled = torch.tensor([end - end % factor for end in ends], device=projected.device)
    tail_columns = filled[:, None] + torch.arange(factor - 1, device=projected.device)
    return buffer.gather(2, tail_columns[:, None, :, None].expand(n, heads, factor - 1, d)), buffer

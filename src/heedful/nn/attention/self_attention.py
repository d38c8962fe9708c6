"""Self-attention: the tokens of a sequence look at each other."""

from collections.abc import Sequence
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.heads import HeadOptions, MultiHead, init_layer, merge_heads, split_heads
from heedful.nn.attention.kernels import attend, finite, show_beside
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.windows import Window
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import Tap
from heedful.nn.visibility import Visibility

# Sequences longer than so many windows are cut into blocks, where each token is compared with two windows.
# (6 heads of 64, fp32, forward and backward, one thread: windows of 256 in 2048 tokens take 187 ms in blocks,
# 460 ms as a mask and 282 ms without windows; of 128 in 512 tokens 179, 213 and 204 ms; of 256 in 512 tokens
# 186, 161 and 150 ms.)
WINDOWS_PART_FROM = 2

# For blocks, whose parts are no whole sequences: it belongs to no model, so nobody is attached to it.
_NOBODY = Tap()


class SelfAttention(MultiHead):
    """Multi-head self-attention: queries, keys and values from the same tokens.

    Args:
        d_model: width of the tokens.
        n_heads: h.
        causal: a token sees itself and what is before it.
        window, block, earlier_blocks: see `Visibility`. Local attention (Liu et al. 2018, section 4.2.3) is
            causal with a block: a token sees its own block, up to itself. With one earlier block it also
            sees all of the block before, as the authors' released code has it. Sliding windows (Beltagy et
            al. 2020, section 3.1; causal: Jiang et al. 2023, section 2) are a window of w: a token sees
            itself, w - 1 tokens before it, and w - 1 after it where it reads ahead.
        rotary: turns queries and prepared keys by their positions.
        score_bias: what is added to the scores for the distance of query and key.
        options: widths of the heads, their score, biases, dropout: see `HeadOptions`.

    Cost: 4 d_model^2 parameters with split heads and no bias. Padding does not exist here; pads of the
    rectangle are zero and invisible. Blocks are computed as sequences of their own, with the keys of earlier
    blocks before theirs, so that time and memory grow with the block and not with the sequence; so are causal
    windows in long sequences, in blocks of w with one block before each. The taps see whole sequences even
    so: where somebody listens, blocks are a mask. So are windows with a cache, and windows that read ahead.
    """

    fused = "qkv"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        causal: bool = False,
        window: int | None = None,
        block: int | None = None,
        earlier_blocks: int = 0,
        rotary: Rotary | None = None,
        score_bias: Alibi | None = None,
        **options: Unpack[HeadOptions],
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        if rotary is not None and not self.score.ignores_rotation:
            raise ValueError(
                "rotary positions need a score that depends on products alone, "
                f"not {type(self.score).__name__}"
            )
        if block is None and earlier_blocks:
            raise ValueError(f"earlier_blocks={earlier_blocks} needs the length of a block")
        self.causal, self.window = causal, window
        self.block, self.earlier_blocks = block, earlier_blocks
        self.rotary, self.score_bias = rotary, score_bias
        self.qkv = nn.Linear(d_model, sum(self.sizes), bias=self.qkv_bias)
        init_layer(self.qkv, self.sizes)

    @property
    def reads_ahead(self) -> bool:
        """Whether a token sees later ones (`heedful.nn.declarations`)."""
        return not self.causal

    @property
    def _keys_at_rest(self) -> Sequence[int]:
        if self.rotary is None:
            return super()._keys_at_rest
        # A score with a matrix mixes the rows before they are turned.
        turned = self.d_k if list(self.score.parameters()) else self.rotary.d_rotated
        heads = range(self._first_key, self._first_key + self.sizes[1], self.d_k)
        return [first + row for first in heads for row in range(turned, self.d_k)]

    @property
    def eager(self) -> bool:
        """Whether it reads lengths one by one: compiled, every batch would be a graph of its own."""
        return self.block is not None or (self.window is not None and self.causal)

    @property
    def q_heads(self) -> Float[Tensor, "H d_model d_k"]:
        """W_Q of each head, a view of the fused matrix."""
        return self.qkv.weight.split(self.sizes)[0].unflatten(0, (self.n_heads, -1)).mT

    @property
    def k_heads(self) -> Float[Tensor, "G d_model d_k"]:
        """W_K of each head of keys, a view."""
        return self.qkv.weight.split(self.sizes)[1].unflatten(0, (self.n_kv_heads, -1)).mT

    @property
    def v_heads(self) -> Float[Tensor, "G d_model d_v"]:
        """W_V of each head of values, a view."""
        return self.qkv.weight.split(self.sizes)[2].unflatten(0, (self.n_kv_heads, -1)).mT

    def new_cache(self) -> KeyValueCache:
        """What it remembers of sequences of which nothing is written yet."""
        return KeyValueCache()

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: KeyValueCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Mix the tokens of each sequence; with a cache, they continue the sequences held there."""
        if cache is not None and not self.causal:
            raise ValueError("attention that reads ahead cannot continue from a cache: it needs causal=True")
        projected = self.qkv(x)
        parting = self._parting(layout) if cache is None else None
        if parting is not None:
            mixed = self._by_blocks(projected, layout, *parting)
            if any(tap.observed for tap in self._taps):
                self._show_whole(projected, layout, mixed)
        else:
            mixed = layout.unpad(self._attend(*self._inputs(projected, layout, cache)))
        return self.out(mixed)

    def blocks_for(self, length: int) -> tuple[int, int] | None:
        """How sequences of up to so many tokens are computed: in blocks of which length, and with how many
        blocks before each; None: whole.
        """
        if self.window is None:
            return None if self.block is None else (self.block, self.earlier_blocks * (length > self.block))
        if self.block is not None or not self.causal:
            return None
        if length <= self.window:  # it reaches everything
            return self.window, 0
        return (self.window, 1) if length > WINDOWS_PART_FROM * self.window else None

    def _parting(self, layout: Layout) -> tuple[int, int] | None:
        """The same, where it may be: what a listener replaces is that of whole sequences."""
        looked_at = any(tap.active for tap in self._taps)
        return None if looked_at else self.blocks_for(layout.max_length)

    def _inputs(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor, Visibility, Tensor | None]:
        """What attention reads: queries, keys, values, who sees whom, and what is added to the scores."""
        q, k, v = layout.pad(projected).split(self.sizes, dim=-1)
        queries = split_heads(q, self.n_heads)
        keys, values = self._keys_and_values(k, v)
        if self.rotary is not None:
            queries, keys = self.rotary(queries, layout), self.rotary(keys, layout)
        if cache is not None:
            keys, values = cache.append(keys, values, layout)
        held = layout if cache is None else layout.through
        seen = layout.sees(
            held, causal=self.causal, window=self.window, block=self.block, earlier_blocks=self.earlier_blocks
        )
        return queries, keys, values, seen, self._bias(seen)

    def _bias(self, seen: Visibility) -> Tensor | None:
        return None if self.score_bias is None else self.score_bias(seen.queries, seen.keys)

    def _by_blocks(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, block: int, earlier: int
    ) -> Float[Tensor, "T hd"]:
        """The same block by block, each with so many earlier ones before it."""
        blocks = layout.cut(block)
        q, k, v = blocks.pad(projected).split(self.sizes, dim=-1)
        queries = split_heads(q, self.n_heads)
        keys, values = self._keys_and_values(k, v)
        if earlier:
            window = layout._memo(("window", block, earlier), lambda: Window.of(layout, block, earlier))
            keys, values = window.over(keys), window.over(values)
            seen = window.queries.sees(
                window.keys, causal=self.causal, window=self.window, allowed=window.real
            )
        else:
            seen = blocks.sees(blocks, causal=self.causal)
        if self.rotary is not None:
            # Places in the window will do: only offsets matter.
            queries, keys = self.rotary(queries, seen.queries), self.rotary(keys, seen.keys)
        mixed = attend(
            queries,
            keys,
            values,
            seen,
            self.score,
            dropout=self.dropout,
            scores_tap=_NOBODY,
            weights_tap=_NOBODY,
            bias=self._bias(seen),
        )
        return blocks.unpad(merge_heads(mixed))

    @torch.no_grad()
    def _show_whole(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, mixed: Float[Tensor, "T hd"]
    ) -> None:
        """Tell watchers of whole sequences what was computed block by block."""
        queries, keys, values, seen, bias = self._inputs(projected, layout, None)
        for tap, value in ((self.queries, queries), (self.keys, keys), (self.values, values)):
            tap.notify(value)
        show_beside(finite(queries), finite(keys), seen, self.score, bias, self.scores, self.weights)
        self.mixed.notify(split_heads(layout.pad(mixed), self.n_heads))

"""Self-attention: the tokens of a sequence attend to each other."""

from collections.abc import Sequence
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.attention.heads import HeadOptions, MultiHead, init_layer, merge_heads, split_heads
from heedful.nn.attention.kernels import attend, compute_for_taps, replace_non_finite
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.windows import BlockWindows
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import Tap
from heedful.nn.visibility import AttentionPattern, Blocks, Visibility, Window

# Sequences longer than this many windows are split into blocks; each token is then compared with two windows.
# 6 heads of 64, fp32, forward and backward, one thread of the Xeon of docs/benchmarks/performance.md, in ms:
#
#     window  tokens  in blocks  with a mask  without windows
#        256    2048        187          460              282
#        128     512        179          213              204
#        256     512        186          161              150
MIN_WINDOWS_FOR_BLOCKS = 2

# Passed for blocks, whose values are not those of whole sequences: taps receive these later (`_notify_taps`).
_UNUSED_TAP = Tap()


class SelfAttention(MultiHead):
    """Multi-head self-attention: queries, keys and values from the same tokens, ``x: [T, d_model]``.

        Q_i = X W_Q^i,  K_i = X W_K^i,  V_i = X W_V^i                       i = 1, ..., h
        head_i = softmax(Q_i K_iᵀ / √d_k + bias, over visible keys) V_i     (or any other `ScoreFunction`)
        output = concat(head_1, ..., head_h) W_O

    Source: Vaswani et al. 2017, equation 1 and section 3.2.2. `MultiHead` has the shapes and views of the
    matrices, `heedful.nn.attention.weights` the softmax over visible keys.

    Args:
        d_model: model dimension.
        n_heads: number of heads, h.
        causal: a token sees only itself and earlier tokens.
        pattern: the positions that a token sees (`heedful.nn.visibility`); None: all. Local attention (Liu et
            al. 2018, section 4.2.3) is causal with ``Blocks(size)``: a token sees its own block, up to
            itself; with ``earlier=1`` also the whole previous block, as in the authors' released code. With
            ``Window(w)``, a sliding window (causal: Jiang et al. 2023, section 2), a token sees itself, w - 1
            tokens before it, and, if not causal, w - 1 tokens after it; Beltagy et al. 2020 (section 3.1)
            call the total of both sides w.
        rotary: rotates queries and prepared keys by their positions.
        score_bias: bias of the scores that depends on the distance of query and key.
        options: head sizes, score, biases and dropout: see `HeadOptions`.

    Cost: 4 d_model^2 parameters with split heads, no bias, as many key heads as heads, and a score without
    parameters. Tokens are packed; attention may pad internally, and padding is masked. How patterns are
    computed:

    | setting | computed |
    |---|---|
    | causal blocks, or blocks without earlier ones | as separate sequences, with the keys of earlier blocks |
    | causal windows of w, length at most w | as plain causal attention |
    | causal windows of w, length over 2w | in blocks of w, with one earlier block each |
    | other patterns | on whole sequences, with a mask; without it if the pattern hides nothing |
    | any with a cache, or with a hook that can replace values | on whole sequences, with a mask |

    Taps receive whole sequences in every case.
    """

    fused_name = "qkv"  # see `MultiHead`

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        causal: bool = False,
        pattern: AttentionPattern | None = None,
        rotary: Rotary | None = None,
        score_bias: Alibi | None = None,
        **options: Unpack[HeadOptions],
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        if rotary is not None and not self.score.is_rotation_invariant:
            raise ValueError(
                "rotary positions require a score that does not change if queries and keys are rotated alike "
                f"(scaled dot, dot, bilinear, cosine), got {type(self.score).__name__}"
            )
        self.causal, self.pattern = causal, pattern
        self.rotary, self.score_bias = rotary, score_bias
        self.qkv = nn.Linear(d_model, sum(self.sizes), bias=self.qkv_bias)
        init_layer(self.qkv, self.sizes)

    @property
    def non_causal(self) -> bool:
        """Whether a token sees later tokens (`heedful.nn.declarations`)."""
        return not self.causal

    @property
    def _unrotated_keys(self) -> Sequence[int]:
        if self.rotary is None:
            return super()._unrotated_keys
        # A score with a matrix mixes the rows before the rotation.
        rotated = self.d_k if list(self.score.parameters()) else self.rotary.d_rotated
        heads = range(self._first_key, self._first_key + self.sizes[1], self.d_k)
        return [first_row + row for first_row in heads for row in range(rotated, self.d_k)]

    @property
    def not_compilable(self) -> bool:
        """Whether Python reads the lengths, so that torch.compile would compile again for every batch
        (`heedful.nn.declarations`).
        """
        return self.blocks_for(1) is not None

    @property
    def q_heads(self) -> Float[Tensor, "H d_model d_k"]:
        """W_Q of each head, as a view of the fused matrix."""
        return self.qkv.weight.split(self.sizes)[0].unflatten(0, (self.n_heads, -1)).mT

    @property
    def k_heads(self) -> Float[Tensor, "G d_model d_k"]:
        """W_K of each key head, as a view."""
        return self.qkv.weight.split(self.sizes)[1].unflatten(0, (self.n_kv_heads, -1)).mT

    @property
    def v_heads(self) -> Float[Tensor, "G d_model d_v"]:
        """W_V of each value head, as a view."""
        return self.qkv.weight.split(self.sizes)[2].unflatten(0, (self.n_kv_heads, -1)).mT

    def new_cache(self) -> KeyValueCache:
        """Return an empty cache."""
        return KeyValueCache()

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, cache: KeyValueCache | None = None
    ) -> Float[Tensor, "T d"]:
        """Attend within each sequence; with a cache, the tokens continue the cached sequences."""
        if cache is not None and not self.causal:
            raise ValueError("a cache requires causal attention; set causal=True")
        projected = self.qkv(x)
        blocks = self._block_sizes(layout) if cache is None else None
        if blocks is not None:
            mixed = self._by_blocks(projected, layout, *blocks)
            if any(tap.has_observers for tap in self._taps):
                self._notify_taps(projected, layout, mixed)
        else:
            mixed = layout.unpad(self._attend(*self._inputs(projected, layout, cache)))
        return self.out(mixed)

    def blocks_for(self, length: int) -> tuple[int, int] | None:
        """Return how sequences of up to ``length`` tokens are split: the block length and the number of
        earlier blocks visible from each; None if they are not split.
        """
        match self.pattern:
            case Blocks(size=size, earlier=earlier) if self.causal or not earlier:
                return size, earlier * (length > size)
            case Window(size=size) if self.causal:
                if length <= size:  # the window covers the sequence
                    return size, 0
                return (size, 1) if length > MIN_WINDOWS_FOR_BLOCKS * size else None
        return None

    def _block_sizes(self, layout: Layout) -> tuple[int, int] | None:
        """Return `blocks_for` the layout; None if a hook may replace values, which are of whole sequences."""
        intervened = any(tap.has_hooks for tap in self._taps)
        return None if intervened else self.blocks_for(layout.max_length)

    def _inputs(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor, Visibility, Tensor | None]:
        """Return the inputs of attention: queries, keys, values, visibility and bias of the scores."""
        q, k, v = layout.pad(projected).split(self.sizes, dim=-1)
        queries = split_heads(q, self.n_heads)
        keys, values = self._keys_and_values(k, v)
        if self.rotary is not None:
            queries, keys = self.rotary(queries, layout), self.rotary(keys, layout)
        if cache is not None:
            keys, values = cache.append(keys, values, layout)
        key_layout = layout if cache is None else layout.with_past
        visibility = Visibility.of(layout, key_layout, causal=self.causal, pattern=self.pattern)
        return queries, keys, values, visibility, self._bias(visibility)

    def _bias(self, visibility: Visibility) -> Tensor | None:
        return None if self.score_bias is None else self.score_bias(visibility.queries, visibility.keys)

    def _by_blocks(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, block: int, earlier: int
    ) -> Float[Tensor, "T hd"]:
        """Compute attention in blocks, each with ``earlier`` blocks before it."""
        blocks = layout.split_blocks(block)
        q, k, v = blocks.pad(projected).split(self.sizes, dim=-1)
        queries = split_heads(q, self.n_heads)
        keys, values = self._keys_and_values(k, v)
        if earlier:
            window = layout.memo(("window", block, earlier), lambda: BlockWindows.of(layout, block, earlier))
            keys, values = window.with_earlier_blocks(keys), window.with_earlier_blocks(values)
            pattern = self.pattern if isinstance(self.pattern, Window) else None
            visibility = Visibility.of(
                window.queries, window.keys, causal=self.causal, pattern=pattern, allowed=window.real
            )
        else:
            visibility = Visibility.of(blocks, blocks, causal=self.causal)
        if self.rotary is not None:
            # Positions within the window suffice: only relative positions matter.
            queries, keys = self.rotary(queries, visibility.queries), self.rotary(keys, visibility.keys)
        mixed = attend(
            queries,
            keys,
            values,
            visibility,
            self.score,
            dropout=self.dropout,
            scores_tap=_UNUSED_TAP,
            weights_tap=_UNUSED_TAP,
            bias=self._bias(visibility),
        )
        return blocks.unpad(merge_heads(mixed))

    @torch.no_grad()
    def _notify_taps(
        self, projected: Float[Tensor, "T qkv"], layout: Layout, mixed: Float[Tensor, "T hd"]
    ) -> None:
        """Notify observers with the values of whole sequences after a computation in blocks."""
        queries, keys, values, visibility, bias = self._inputs(projected, layout, None)
        for tap, value in ((self.queries, queries), (self.keys, keys), (self.values, values)):
            tap.notify(value)
        compute_for_taps(
            replace_non_finite(queries),
            replace_non_finite(keys),
            visibility,
            self.score,
            bias,
            self.scores,
            self.weights,
        )
        self.mixed.notify(split_heads(layout.pad(mixed), self.n_heads))

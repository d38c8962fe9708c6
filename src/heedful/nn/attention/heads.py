"""Heads: several attentions side by side, each on its own slice of the projections.

    head_i = Attention(Q W_Q^i, K W_K^i, V W_V^i)
    MultiHead(Q, K, V) = Concat(head_1 ... head_h) W_O

| lectures | here | shape |
|---|---|---|
| W_Q^i | `SelfAttention.q_heads` ``[i]`` | d_model x d_k |
| W_K^i, W_V^i | ``k_heads[i]``, ``v_heads[i]`` | d_model x d_k, d_model x d_v |
| W_O | ``out.weight`` transposed | n_heads d_v x d_model |
| h | ``n_heads`` | |

Split heads have d_k = d_v = d_model / n_heads (Vaswani et al. 2017, section 3.2.2): many heads then
cost what one costs. Full-width heads (d_k = d_v = d_model, as Keras reads S1's figure) cost n_heads
times as much. Both are the same code with other widths.

Errors in the lectures. S0 prints 64 x 512 = 32,178 three times: it is 32,768. S1 gives head matrices
as N x d/H (they are d x d/H) and says that the original paper has d = 768 and H = 10 (512 and 8; ten
does not divide 768, and 768 with 12 heads is BERT's). S2 writes one W_O for each head: there is one,
of n_heads d_v x d_model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heedful.nn.attention.kernels import attend
from heedful.nn.attention.relative import Alibi, Rotary
from heedful.nn.attention.scores import ScaledDotScore, Score
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.state import KeyValueCache
from heedful.nn.taps import Tap
from heedful.nn.visibility import Visibility


def split_heads(x: Float[Tensor, "B S hd"], n_heads: int) -> Float[Tensor, "B h S d"]:
    """Cut the last axis into heads; a view, nothing is copied."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B h S d"]) -> Float[Tensor, "B S hd"]:
    """The inverse of `split_heads`: concatenate the heads."""
    return x.transpose(1, 2).flatten(2)


def init_slices(weight: Float[Tensor, "rows d"], sizes: list[int]) -> None:
    """Xavier-uniform each slice as the matrix it is, not the fused matrix as one."""
    for part in weight.data.split(sizes):
        nn.init.xavier_uniform_(part)


def _head_width(d_model: int, n_heads: int, given: int | None) -> int:
    if given is not None:
        return given
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}; give d_k and d_v")
    return d_model // n_heads


class MultiHead(nn.Module):
    """What self- and cross-attention share: head sizes, score, dropout, taps, output projection."""

    fused: ClassVar[str]
    """Name of the projection that holds the keys and the values."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int | None,
        d_v: int | None,
        n_kv_heads: int | None,
        score: Score | None,
        qkv_bias: bool,
        out_bias: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.qkv_bias = qkv_bias
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        if n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads={n_heads} is not divisible by n_kv_heads={self.n_kv_heads}")
        self.d_k = _head_width(d_model, n_heads, d_k)
        self.d_v = _head_width(d_model, n_heads, d_v)
        self.score = ScaledDotScore() if score is None else score
        self.dropout = Dropout(dropout)
        self.scores, self.weights = Tap(), Tap()
        self.out = nn.Linear(n_heads * self.d_v, d_model, bias=out_bias)
        nn.init.xavier_uniform_(self.out.weight)
        if out_bias:
            nn.init.zeros_(self.out.bias)

    @property
    def sizes(self) -> list[int]:
        """Widths of the fused projections of queries, keys and values."""
        kv = self.n_kv_heads
        return [self.n_heads * self.d_k, kv * self.d_k, kv * self.d_v]

    @property
    def slices(self) -> dict[str, list[int]]:
        """The rows of the matrices that lie in one parameter."""
        return {f"{self.fused}.weight": self.sizes if self.fused == "qkv" else self.sizes[1:]}

    @property
    def without_gradient(self) -> dict[str, Iterable[int]]:
        """Rows of the keys' bias b: it adds q.b to all scores of a query, which a softmax does not see.

        That holds where scores are products, and no positions turn the keys. (See `heedful.nn.declarations`.)
        """
        product = self.score.product_scale(self.d_k) is not None
        rows = self._keys_at_rest if self.qkv_bias and product else ()
        return {f"{self.fused}.bias": rows} if rows else {}

    @property
    def adds_constant(self) -> dict[str, range]:
        """The output's bias, and the rows of the values' bias: weights sum to 1 where none are dropped."""
        first = self._first_key + self.sizes[1]
        values = {f"{self.fused}.bias": range(first, first + self.sizes[2])}
        out = {} if self.out.bias is None else {"out.bias": range(len(self.out.bias))}
        return out | (values if self.qkv_bias and self.dropout.p == 0 else {})

    @property
    def _keys_at_rest(self) -> Sequence[int]:
        """Rows of the keys in the fused projection, of those that positions do not turn."""
        return range(self._first_key, self._first_key + self.sizes[1])

    @property
    def _first_key(self) -> int:
        """The first row of the keys in the fused projection that holds them."""
        return self.sizes[0] if self.fused == "qkv" else 0

    def _keys_and_values(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.score.prepare(split_heads(keys, self.n_kv_heads)),
            split_heads(values, self.n_kv_heads),
        )


class SelfAttention(MultiHead):
    """Multi-head self-attention: queries, keys and values from the same tokens.

    Args:
        d_model: width of the tokens.
        n_heads: h.
        d_k, d_v: widths of a query or key, and of a value; d_model / n_heads by default.
        n_kv_heads: heads of keys and values, each shared by n_heads / n_kv_heads heads of queries
            (Ainslie et al. 2023); n_heads by default.
        score: how a query and a key are compared; scaled dot product by default.
        causal: a token sees itself and what is before it.
        window, block, earlier_blocks: see `Visibility`. Local attention (Liu et al. 2018, section 4.2.3) is
            causal with a block: a token sees its own block, up to itself. With one earlier block it also
            sees all of the block before, as the authors' released code has it.
        qkv_bias, out_bias: whether the projections have a bias (the paper's have none).
        dropout: on the attention weights.
        rotary: turns queries and prepared keys by their positions.
        score_bias: what is added to the scores for the distance of query and key.

    Cost: 4 d_model^2 parameters with split heads and no bias. Padding does not exist here; pads of the
    rectangle are zero and invisible. Blocks are computed as sequences of their own, with the keys of earlier
    blocks before theirs, so that time and memory grow with the block and not with the sequence.
    """

    fused = "qkv"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        n_kv_heads: int | None = None,
        score: Score | None = None,
        causal: bool = False,
        window: int | None = None,
        block: int | None = None,
        earlier_blocks: int = 0,
        qkv_bias: bool = False,
        out_bias: bool = False,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        score_bias: Alibi | None = None,
    ) -> None:
        super().__init__(
            d_model,
            n_heads,
            d_k=d_k,
            d_v=d_v,
            n_kv_heads=n_kv_heads,
            score=score,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            dropout=dropout,
        )
        if rotary is not None and not self.score.ignores_rotation:
            raise ValueError(
                f"rotary positions need a score that depends on products alone, not {type(score).__name__}"
            )
        if block is None and earlier_blocks:
            raise ValueError(f"earlier_blocks={earlier_blocks} needs the length of a block")
        self.causal, self.window = causal, window
        self.block, self.earlier_blocks = block, earlier_blocks
        self.rotary, self.score_bias = rotary, score_bias
        self.qkv = nn.Linear(d_model, sum(self.sizes), bias=qkv_bias)
        init_slices(self.qkv.weight, self.sizes)
        if qkv_bias:
            nn.init.zeros_(self.qkv.bias)

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
        return self.block is not None

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
        if self.block is not None and cache is None and self._blocks_may_part:
            return self._by_blocks(x, layout, self.block)
        q, k, v = layout.pad(self.qkv(x)).split(self.sizes, dim=-1)
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
        return self.out(layout.unpad(self._attend(queries, keys, values, seen)))

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, seen: Visibility
    ) -> Float[Tensor, "B Q hd"]:
        z = attend(
            queries,
            keys,
            values,
            seen,
            self.score,
            dropout=self.dropout,
            scores_tap=self.scores,
            weights_tap=self.weights,
            bias=None if self.score_bias is None else self.score_bias(seen.queries, seen.keys),
        )
        return merge_heads(z)

    @property
    def _blocks_may_part(self) -> bool:
        """Whether blocks can be taken for sequences; whoever looks at weights wants those of whole ones."""
        return self.window is None and not (self.scores.active or self.weights.active)

    def _by_blocks(self, x: Tensor, layout: Layout, block: int) -> Float[Tensor, "T d"]:
        """The same block by block."""
        blocks, earlier = layout.cut(block), self.earlier_blocks if layout.max_length > block else 0
        q, k, v = blocks.pad(self.qkv(x)).split(self.sizes, dim=-1)
        queries = split_heads(q, self.n_heads)
        keys, values = self._keys_and_values(k, v)
        if earlier:
            window = layout._memo(("window", block, earlier), lambda: Window.of(layout, block, earlier))
            keys, values = window.over(keys), window.over(values)
            seen = window.queries.sees(window.keys, causal=self.causal, allowed=window.real)
        else:
            seen = blocks.sees(blocks, causal=self.causal)
        if self.rotary is not None:
            # Places in the window will do: only offsets matter.
            queries, keys = self.rotary(queries, seen.queries), self.rotary(keys, seen.keys)
        return self.out(blocks.unpad(self._attend(queries, keys, values, seen)))


@dataclass(frozen=True, eq=False)
class Window:
    """Blocks of tokens (`Layout.cut`), and for each a window over itself and the blocks before it.

    Args:
        queries: the blocks, each placed at the end of its window.
        keys: the windows.
        missing: of the earlier blocks, the most distant first, which do not exist.
        real: which keys do.
    """

    queries: Layout
    keys: Layout
    missing: Bool[Tensor, "n earlier"]
    real: Bool[Tensor, "n 1 w"]

    @classmethod
    def of(cls, layout: Layout, block: int, earlier: int) -> "Window":
        """The windows over the blocks of ``layout``, some of whose sequences are longer than a block."""
        cut = layout.cut(block)
        place = torch.tensor([i for n in layout.lengths for i in range(-(-n // block))], device=layout.device)
        missing = place[:, None] < torch.arange(earlier, 0, -1, device=layout.device)
        real = torch.cat([(~missing).repeat_interleave(block, dim=1), cut.real], dim=1)
        queries = Layout.of(cut.lengths, [earlier * block] * cut.n_sequences, layout.device)
        keys = Layout.of([(earlier + 1) * block] * cut.n_sequences, device=layout.device)
        return cls(queries, keys, missing, real[:, None])

    def over(self, x: Float[Tensor, "n h b d"]) -> Float[Tensor, "n h w d"]:
        """Before each block of x, those that come before it in its sequence."""
        parts, n = [x], self.missing.shape[1]
        for back in range(1, n + 1):
            # What lies before a sequence belongs to another one: nothing of it may pass, not even a NaN.
            gone = self.missing[:, n - back, None, None, None]
            parts.insert(0, x.roll(back, 0).masked_fill(gone, 0.0))
        return torch.cat(parts, dim=2)


class AttentionMemory:
    """What cross-attention reads: keys (prepared for the score) and values of each sentence."""

    def __init__(
        self, keys: Float[Tensor, "B G S d_p"], values: Float[Tensor, "B G S d_v"], layout: Layout
    ) -> None:
        self.keys, self.values, self.layout = keys, values, layout

    def select(self, sentences: Int[Tensor, " M"]) -> "AttentionMemory":
        """The memory of some of the sentences; columns that are padding for all of them go."""
        layout = self.layout.select(sentences.tolist())
        keys, values = self.keys.index_select(0, sentences), self.values.index_select(0, sentences)
        return AttentionMemory(keys[:, :, : layout.max_length], values[:, :, : layout.max_length], layout)


class CrossAttention(MultiHead):
    """Multi-head attention of one sequence (queries) over another (keys and values).

    Errors in the lectures: S0 titles it "Masked", but no causal mask belongs here (the whole source is
    known), and drops the factor 1 / sqrt(d_k); the padding of the source must stay invisible here too.

    Arguments as `SelfAttention`; ``d_memory`` is the width of what is attended to.
    """

    fused = "kv"

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_memory: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        n_kv_heads: int | None = None,
        score: Score | None = None,
        qkv_bias: bool = False,
        out_bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            d_model,
            n_heads,
            d_k=d_k,
            d_v=d_v,
            n_kv_heads=n_kv_heads,
            score=score,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            dropout=dropout,
        )
        self.q = nn.Linear(d_model, self.sizes[0], bias=qkv_bias)
        self.kv = nn.Linear(d_memory or d_model, sum(self.sizes[1:]), bias=qkv_bias)
        init_slices(self.q.weight, self.sizes[:1])
        init_slices(self.kv.weight, self.sizes[1:])
        for projection in (self.q, self.kv):
            if qkv_bias:
                nn.init.zeros_(projection.bias)

    def remember(self, encoded: Float[Tensor, "T_s d_s"], layout: Layout) -> AttentionMemory:
        """Project what will be attended to; done once for a sentence, however many queries follow."""
        k, v = layout.pad(self.kv(encoded)).split(self.sizes[1:], dim=-1)
        return AttentionMemory(*self._keys_and_values(k, v), layout)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, memory: AttentionMemory
    ) -> Float[Tensor, "T d"]:
        """Attend; where several sequences share a sentence, they are its queries side by side."""
        if memory.layout.n_sequences:
            layout = layout.merge(layout.n_sequences // memory.layout.n_sequences)
        z = attend(
            split_heads(layout.pad(self.q(x)), self.n_heads),
            memory.keys,
            memory.values,
            layout.sees(memory.layout),
            self.score,
            dropout=self.dropout,
            scores_tap=self.scores,
            weights_tap=self.weights,
        )
        return self.out(layout.unpad(merge_heads(z)))


def weights_per_hypothesis(weights: Float[Tensor, "B H Q K"]) -> Float[Tensor, "N H K"]:
    """Weights of one-token steps, where row b holds the queries of all hypotheses of sentence b."""
    return torch.flatten(weights.transpose(1, 2), 0, 1)

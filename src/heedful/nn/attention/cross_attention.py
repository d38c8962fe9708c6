"""Cross-attention: the tokens of one sequence attend to those of another."""

from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.attention.heads import HeadOptions, MultiHead, init_layer, split_heads
from heedful.nn.layout import Layout
from heedful.nn.visibility import AttentionPattern, Visibility


class AttentionMemory:
    """Keys (prepared for the score) and values of each sentence, for cross-attention."""

    def __init__(
        self, keys: Float[Tensor, "B G S d_p"], values: Float[Tensor, "B G S d_v"], layout: Layout
    ) -> None:
        self.keys, self.values, self.layout = keys, values, layout

    def select(self, sentences: Int[Tensor, " M"]) -> "AttentionMemory":
        """Select some of the sentences; columns that are padding in all of them are dropped."""
        layout = self.layout.select(sentences.tolist())
        keys, values = self.keys.index_select(0, sentences), self.values.index_select(0, sentences)
        return AttentionMemory(keys[:, :, : layout.max_length], values[:, :, : layout.max_length], layout)


class CrossAttention(MultiHead):
    """Multi-head attention of one sequence ``x: [T, d_model]`` over another, ``encoded: [T_s, d_memory]``.

        Q_i = X W_Q^i,  K_i = E W_K^i,  V_i = E W_V^i,  head_i = softmax(Q_i K_iᵀ / √d_k) V_i
        output = concat(head_1, ..., head_h) W_O

    with X the queries' sequence and E the encoded source: the sentence, or the patches of an image.

    Source: Vaswani et al. 2017, section 3.2.3, first item.

    Errors in the lectures: S0 titles it "Masked", but no causal mask belongs here (the whole source is
    known), and drops the factor 1 / sqrt(d_k); the padding of the source must still be masked.

    Args:
        d_model: model dimension.
        n_heads: number of heads, h.
        d_memory: width of the encoded vectors; d_model by default.
        pattern: the positions of E that a query sees, depending on its own position in its sequence
            (`heedful.nn.visibility`); None: all.
        options: see `HeadOptions`.
    """

    fused_name = "kv"  # see `MultiHead`

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_memory: int | None = None,
        pattern: AttentionPattern | None = None,
        **options: Unpack[HeadOptions],
    ) -> None:
        super().__init__(d_model, n_heads, **options)
        self.pattern = pattern
        self.q = nn.Linear(d_model, self.sizes[0], bias=self.qkv_bias)
        self.kv = nn.Linear(d_memory or d_model, sum(self.sizes[1:]), bias=self.qkv_bias)
        init_layer(self.q, self.sizes[:1])
        init_layer(self.kv, self.sizes[1:])

    def make_memory(
        self,
        encoded: Float[Tensor, "T_s d_memory"],
        layout: Layout,
        values: Float[Tensor, "T_s d_memory"] | None = None,
    ) -> AttentionMemory:
        """Project the encoded sentences to keys and values, once for all queries.

        Args:
            encoded: vectors of the source.
            layout: their layout.
            values: vectors that the values are projected from, if not from ``encoded``: Attention(Q, K, V)
                has three inputs (Vaswani et al. 2017, section 3.2.2).
        """
        projected = self.kv(encoded)
        if values is not None:
            n_keys = self.sizes[1]
            projected = torch.cat([projected[:, :n_keys], self.kv(values)[:, n_keys:]], dim=1)
        k, v = layout.pad(projected).split(self.sizes[1:], dim=-1)
        return AttentionMemory(*self._keys_and_values(k, v), layout)

    def forward(
        self, x: Float[Tensor, "T d"], layout: Layout, memory: AttentionMemory
    ) -> Float[Tensor, "T d"]:
        """Attend to the memory. All hypotheses of a source are one row of queries, so keys are not copied.

        ``layout`` has N sequences for the B sources of the memory, N / B of each source in turn.
        """
        rows, keys = layout, memory.layout
        if keys.n_sequences:
            if not torch.compiler.is_compiling():  # which would compile again for other numbers
                _check_multiple(layout.n_sequences, keys.n_sequences)
            rows = layout.merge(layout.n_sequences // keys.n_sequences)
        queries = split_heads(rows.pad(self.q(x)), self.n_heads)
        visibility = self._visibility(layout, rows, keys)
        mixed = self._attend(queries, memory.keys, memory.values, visibility)
        return self.out(rows.unpad(mixed))

    def _visibility(self, layout: Layout, rows: Layout, keys: Layout) -> Visibility:
        """Return which keys each query sees, once for all layers with the same pattern.

        Positions are those of a query in its sequence (``layout``), not in the merged row (``rows``).
        """
        pattern = self.pattern
        if pattern is None:
            return Visibility.of(rows, keys)

        def make() -> Visibility:
            pattern.check(layout.end, keys.end)
            queries = rows.pad(layout.positions)[:, :, None]
            allowed = pattern.sees(queries, torch.arange(keys.max_length, device=keys.device))
            return Visibility.of(rows, keys, allowed=allowed)

        return layout.memo(("cross-attention", pattern, keys), make)


def _check_multiple(n_sequences: int, n_sources: int) -> None:
    """Check that each source has as many sequences as the others, and at least one.

    Raises:
        ValueError: it has not.
    """
    if n_sequences < n_sources or n_sequences % n_sources:
        raise ValueError(
            f"the number of sequences, {n_sequences}, must be equal to that of the sources, {n_sources}, or "
            "a multiple of it"
        )

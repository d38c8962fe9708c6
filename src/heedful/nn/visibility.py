"""Attention visibility: which queries see which keys, as a mask or as a hint for kernels."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from heedful.nn.layout import Layout
from heedful.nn.lazy import lazy

Hint = Literal["all", "causal", "dense"]


@dataclass(frozen=True, eq=False)
class Visibility:
    """Set S_i of keys that each query i may attend to (lecture S4: the sum runs over r in S_i).

    A query sees a key of its row if every specified condition holds, with p the position
    (`Layout.positions`) of the query and r the position of the key times ``key_stride``:

    | condition | holds if |
    |---|---|
    | always | the key is a real token |
    | ``causal`` | r <= p |
    | ``window`` w | abs(p - r) < w |
    | ``block`` b, ``earlier_blocks`` n | 0 <= p // b - r // b <= n: the same block or one of n before |
    | ``allowed`` | its entry is true; any shape that broadcasts to [B, Q, K] |

    Row n of the queries attends to row n of the keys. A stride above 1 is for keys that represent several
    tokens each (`heedful.nn.attention.compressed`).
    """

    queries: Layout
    keys: Layout
    causal: bool = False
    window: int | None = None
    block: int | None = None
    allowed: Bool[Tensor, "..."] | None = None
    earlier_blocks: int = 0
    key_stride: int = 1

    def __post_init__(self) -> None:
        if self.queries.n_sequences != self.keys.n_sequences:
            raise ValueError(
                "queries and keys must have the same number of rows, "
                f"got {self.queries.n_sequences} and {self.keys.n_sequences}"
            )

    @classmethod
    def of(
        cls,
        queries: Layout,
        keys: Layout,
        *,
        causal: bool = False,
        window: int | None = None,
        block: int | None = None,
        allowed: Bool[Tensor, "..."] | None = None,
        earlier_blocks: int = 0,
        key_stride: int = 1,
    ) -> "Visibility":
        """Return which of ``keys`` each token of ``queries`` sees; cached in ``queries``."""
        conditions = (causal, window, block, allowed, earlier_blocks, key_stride)
        if torch.compiler.is_compiling():  # copies would have to recompute the derived values
            return cls(queries, keys, *conditions)
        make = lambda: cls(queries.acyclic, keys.acyclic, *conditions)  # noqa: E731
        if allowed is not None:
            return make()
        return queries.memo(("visibility", None if keys is queries else keys, *conditions), make)

    @lazy
    def hint(self) -> Hint:
        """Simplest mask that a kernel may use.

        ``all``: no mask; every query sees every key of its row, and there is no padding. ``causal``: query i
        sees keys 0..i of the padded row; padding keys come after every real query, so rows may differ in
        length. ``dense``: `visible` is required.
        """
        if self.window is not None or self.block is not None or self.allowed is not None:
            return "dense"
        if not self.causal:
            return "all" if self.keys.is_rectangular else "dense"
        if self._keys_all_past:
            return "all"
        return "causal" if self._queries_are_keys else "dense"

    @lazy
    def _queries_are_keys(self) -> bool:
        queries, keys = self.queries, self.keys
        if self.key_stride != 1:
            return False
        return queries is keys or (queries.lengths == keys.lengths and queries.starts == keys.starts)

    @lazy
    def _keys_all_past(self) -> bool:
        """Whether the causal mask hides nothing: every query is at or after the last key of its row."""
        if self.queries.is_new and self.keys.is_new:
            return self.keys.is_rectangular and self.keys.max_length <= 1
        rows = zip(self.queries.starts, self.keys.starts, self.keys.lengths, strict=True)
        return self.keys.is_rectangular and all(q >= self.key_stride * (k + n - 1) for q, k, n in rows)

    @lazy
    def masks_real_keys(self) -> bool:
        """Whether a real key may be invisible to a query of its row."""
        if self.window is not None or self.block is not None or self.allowed is not None:
            return True
        return self.causal and not self._keys_all_past

    @lazy
    def every_query_sees_a_key(self) -> bool:
        """Whether every query is guaranteed to see a key."""
        if self.allowed is not None or self.keys.has_empty:
            return False
        unbounded = self.window is None and self.block is None
        if unbounded and (not self.causal or self.keys.is_new):  # all queries see the first key
            return True
        if self.key_stride != 1:
            return False
        if self.queries is self.keys and self.keys.is_new:
            return True
        # Otherwise a query is guaranteed to see a key if the query itself is among the keys.
        ends = zip(self.queries.starts, self.queries.lengths, self.keys.lengths, strict=True)
        return self.keys.is_new and all(s + n <= k for s, n, k in ends)

    @lazy
    def visible(self) -> Bool[Tensor, "B Q K"]:
        """Dense mask: true if the query sees the key. The rows of padding queries are not masked."""
        device = self.keys.device
        shape = (self.queries.n_sequences, self.queries.max_length, self.keys.max_length)
        q = torch.arange(shape[1], device=device) + self.queries.start_tensor[:, None]
        k = (torch.arange(shape[2], device=device) + self.keys.start_tensor[:, None]) * self.key_stride
        q, k = q[:, :, None], k[:, None, :]
        mask = self.keys.real[:, None, :].expand(shape)
        if self.causal:
            mask = mask & (k <= q)
        if self.window is not None:
            mask = mask & ((q - k).abs() < self.window)
        if self.block is not None:
            distance = q // self.block - k // self.block
            mask = mask & (distance >= 0) & (distance <= self.earlier_blocks)
        if self.allowed is not None:
            mask = mask & self.allowed
        return mask

    @lazy
    def hidden(self) -> Bool[Tensor, "B Q K"]:
        """Inverse of `visible`: true if the query does not see the key."""
        return ~self.visible

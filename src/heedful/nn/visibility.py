"""Attention visibility: which queries see which keys, as a mask or as a hint for kernels.

A pattern describes a set S_i of key positions for each query position i, for example a window. A `Visibility`
applies it to the layouts of a batch, together with the causal mask and the padding.

| pattern | a query sees |
|---|---|
| `Window` | the positions near its own |
| `Blocks` | its block of positions, and neighbouring blocks |
| `Dilated` | every n-th position near its own |
| `Strided` | the positions near its own, and every n-th one |
| `Fixed` | its block, and the last positions of every block |
| `GlobalTokens` | the positions near its own, and the first ones, which see all |
| `Tree` | itself and its ancestors in a tree |
| `Mask` | what a table says |

A new pattern is a frozen dataclass with a method `AttentionPattern.sees`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedful.errors import RequestError
from heedful.nn.layout import Layout
from heedful.nn.lazy import lazy

Hint = Literal["all", "causal", "dense"]


@dataclass(frozen=True)
class AttentionPattern:
    """Base class of sets S_i of positions that a query at position i may attend to.

    In causal attention, a query sees those of them that are not later than itself.
    """

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether a query at position ``query`` sees a key at position ``key``; both broadcast."""
        raise NotImplementedError

    @property
    def includes_self(self) -> bool:
        """Whether every query sees the key at its own position; if not sure, False."""
        return False

    def check(self, n_queries: int, n_keys: int) -> None:
        """Check that the pattern is defined for so many positions of queries and keys.

        Raises:
            RequestError: if it is not.
        """

    def covers(self, n: int) -> bool:
        """Return whether each of the first ``n`` positions sees all of them; if not sure, False."""
        return False


@dataclass(frozen=True)
class Window(AttentionPattern):
    """A sliding window: abs(i - r) < size (Beltagy et al. 2020, section 3.1).

    Args:
        size: a query sees itself, size - 1 positions before it and, if not causal, as many after it.
    """

    size: int
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the positions are near each other."""
        return (query - key).abs() < self.size

    def covers(self, n: int) -> bool:
        """Return whether the window is as long as the sequence."""
        return n <= self.size


@dataclass(frozen=True)
class Blocks(AttentionPattern):
    """Blocks of positions: abs(i // size - r // size) <= earlier (causal: Liu et al. 2018, section 4.2.3).

    Args:
        size: length of a block.
        earlier: number of blocks before its own that a query also sees and, if not causal, after it.
    """

    size: int
    earlier: int = 0
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the positions are in the same block, or in near ones."""
        return (query // self.size - key // self.size).abs() <= self.earlier

    def covers(self, n: int) -> bool:
        """Return whether all positions are in near blocks."""
        return n <= self.size * (self.earlier + 1)


@dataclass(frozen=True)
class Dilated(AttentionPattern):
    """A window with gaps: i - r is a multiple of step, and smaller than size steps (Beltagy et al. 2020,
    section 3.1).

    Args:
        size: number of positions that a query sees, on each side if not causal, including its own.
        step: distance between them.
    """

    size: int
    step: int
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the distance is one of the steps."""
        distance = (query - key).abs()
        return (distance % self.step == 0) & (distance < self.size * self.step)

    def covers(self, n: int) -> bool:
        """Return whether there are no gaps in a window as long as the sequence."""
        return n == 1 or (self.step == 1 and n <= self.size)


@dataclass(frozen=True)
class Strided(AttentionPattern):
    """A window of ``stride`` positions, and every stride-th position (Child et al. 2019, section 4.2: the
    union of both strided sets).

    Args:
        stride: size of the window, and distance between the other positions.
    """

    stride: int
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the distance is smaller than the stride, or a multiple of it."""
        distance = (query - key).abs()
        return (distance < self.stride) | (distance % self.stride == 0)

    def covers(self, n: int) -> bool:
        """Return whether the window is as long as the sequence."""
        return n <= self.stride or self.stride == 1


@dataclass(frozen=True)
class Fixed(AttentionPattern):
    """Blocks of ``size`` positions, and the last ``summary`` positions of every block (Child et al. 2019,
    section 4.2: the union of both fixed sets).

    Args:
        size: length of a block.
        summary: number of positions at the end of every block that all later blocks see.
    """

    size: int
    summary: int = 1
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the key is in the block of the query, or at the end of a block."""
        return (query // self.size == key // self.size) | (key % self.size >= self.size - self.summary)

    def covers(self, n: int) -> bool:
        """Return whether there is one block."""
        return n <= self.size


@dataclass(frozen=True)
class GlobalTokens(AttentionPattern):
    """The first ``n`` positions see all and are seen by all; the others see a window (Beltagy et al. 2020,
    section 3.1; in causal attention, the attention sinks of Xiao et al. 2024).

    Args:
        n: number of global positions.
        size: size of the window, as in `Window`.
    """

    n: int
    size: int
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether one of both is global, or they are near each other."""
        return (query < self.n) | (key < self.n) | ((query - key).abs() < self.size)

    def covers(self, n: int) -> bool:
        """Return whether the window is as long as what is not global."""
        return n - self.n <= self.size or n <= self.size


@dataclass(frozen=True)
class Tree(AttentionPattern):
    """A query sees itself and its ancestors in a complete tree, whose nodes are numbered level by level: the
    parent of position i > 0 is (i - 1) // branching (the mask of tree attention: Miao et al. 2024, section
    4.2).

    Args:
        branching: number of children of each node, at least 2.
    """

    branching: int
    includes_self = True

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Return whether the key is the query or one of its ancestors."""
        ancestor, seen = query, query == key
        for _ in range(MAX_LEVELS):
            ancestor = ((ancestor - 1) // self.branching).clamp(min=0)
            seen = seen | (ancestor == key)
        return seen

    def covers(self, n: int) -> bool:
        """Return whether there is only the root."""
        return n == 1


MAX_LEVELS = 32
"""Levels of the largest tree: with two children per node, 2³² positions."""


@dataclass(frozen=True)
class Mask(AttentionPattern):
    """A table of what each position sees.

    Args:
        rows: a row per query position, of as many characters as there are key positions: ``1`` if the query
            sees the key, else ``0``.
    """

    rows: tuple[str, ...]

    @classmethod
    def of(cls, table: Bool[Tensor, "Q K"]) -> "Mask":
        """Return the pattern of a table of booleans."""
        return cls(tuple("".join("01"[value] for value in row) for row in table.tolist()))

    @property
    def includes_self(self) -> bool:
        """Whether the diagonal is 1."""
        return all(row[i : i + 1] == "1" for i, row in enumerate(self.rows))

    def check(self, n_queries: int, n_keys: int) -> None:
        """Check that the table has so many rows and columns."""
        shape = (len(self.rows), len(self.rows[0]))
        if n_queries > shape[0] or n_keys > shape[1]:
            raise RequestError(
                f"the mask of visible tokens must have a row per query and a column per key ({n_queries} and "
                f"{n_keys}), got {shape[0]} and {shape[1]}; enlarge the mask, or shorten the sequences"
            )

    @lazy
    def _table(self) -> Bool[Tensor, "Q K"]:
        return torch.tensor([[char == "1" for char in row] for row in self.rows])

    def sees(self, query: Int[Tensor, "*q"], key: Int[Tensor, "*k"]) -> Bool[Tensor, "*s"]:
        """Look up the table; positions beyond it, which only padding has, are those at its end."""
        table = self._table.to(query.device)
        return table[query.clamp(max=table.shape[0] - 1), key.clamp(max=table.shape[1] - 1)]


@dataclass(frozen=True, eq=False)
class Visibility:
    """Set S_i of keys that each query i may attend to (lecture S4: the sum runs over r in S_i).

    A query sees a key of its row if every specified condition holds, with p the position
    (`Layout.positions`) of the query and r the position of the key times ``key_stride``:

    | condition | holds if |
    |---|---|
    | always | the key is a real token |
    | ``causal`` | r <= p |
    | ``pattern`` | `AttentionPattern.sees` (p, r) |
    | ``allowed`` | its entry is true; any shape that broadcasts to [B, Q, K] |

    Row n of the queries attends to row n of the keys. A stride above 1 is for keys that represent several
    tokens each (`heedful.nn.attention.compressed`).

    Raises:
        ValueError: the numbers of rows differ.
        RequestError: the pattern is not defined for so many positions.
    """

    queries: Layout
    keys: Layout
    causal: bool = False
    pattern: AttentionPattern | None = None
    allowed: Bool[Tensor, "..."] | None = None
    key_stride: int = 1

    def __post_init__(self) -> None:
        if self.queries.n_sequences != self.keys.n_sequences:
            raise ValueError(
                "queries and keys must have the same number of rows, "
                f"got {self.queries.n_sequences} and {self.keys.n_sequences}"
            )
        if self.pattern is not None:
            self.pattern.check(self.queries.end, self.keys.end * self.key_stride)

    @classmethod
    def of(
        cls,
        queries: Layout,
        keys: Layout,
        *,
        causal: bool = False,
        pattern: AttentionPattern | None = None,
        allowed: Bool[Tensor, "..."] | None = None,
        key_stride: int = 1,
    ) -> "Visibility":
        """Return which of ``keys`` each token of ``queries`` sees; cached in ``queries``."""
        conditions = (causal, pattern, allowed, key_stride)
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
        if self._has_pattern or self.allowed is not None:
            return "dense"
        if not self.causal:
            return "all" if self.keys.is_rectangular else "dense"
        if self._keys_all_past:
            return "all"
        return "causal" if self._queries_are_keys else "dense"

    @lazy
    def _has_pattern(self) -> bool:
        """Whether the pattern may hide anything."""
        if self.pattern is None or torch.compiler.is_compiling():  # the lengths are then not known
            return self.pattern is not None
        return not self.pattern.covers(max(self.queries.end, self.keys.end * self.key_stride))

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
        if self._has_pattern or self.allowed is not None:
            return True
        return self.causal and not self._keys_all_past

    @lazy
    def every_query_sees_a_key(self) -> bool:
        """Whether every query is guaranteed to see a key."""
        if self.allowed is not None or self.keys.has_empty:
            return False
        if not self._has_pattern and (not self.causal or self.keys.is_new):  # all queries see the first key
            return True
        if self.key_stride != 1 or not (self.pattern is None or self.pattern.includes_self):
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
        if self.pattern is not None and self._has_pattern:
            mask = mask & self.pattern.sees(q, k)
        if self.allowed is not None:
            mask = mask & self.allowed
        return mask

    @lazy
    def hidden(self) -> Bool[Tensor, "B Q K"]:
        """Inverse of `visible`: true if the query does not see the key."""
        return ~self.visible

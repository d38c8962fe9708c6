"""A compiled model: the model contract (ARCHITECTURE.md) on the native engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from heedful.engine.running import ROWS, Engine, KeyValueCaches, Numbers, Rows, Runner
from heedful.nn.layout import Layout, Tokens

FIRST_CAPACITY = 64
"""Initial capacity in positions; it is doubled when it is used up."""


@dataclass
class Hypotheses:
    """N hypotheses, ``width`` per sentence. A state must not be used after it was passed to another step.

    Args:
        own_caches: keys and values of their tokens.
        source_caches: keys and values of the sources, one line per source.
        positions: number of tokens of each hypothesis.
        cache_lines: the cache line that each hypothesis writes.
        ancestors: ``[N, capacity]``: the cache line that holds each position.
        sources, source_lengths: the source line that each hypothesis reads, and its length.
        width: number of hypotheses per sentence.
    """

    own_caches: KeyValueCaches
    source_caches: KeyValueCaches | None
    positions: Numbers
    cache_lines: Numbers
    ancestors: Int32[np.ndarray, "N C"]
    sources: Numbers
    source_lengths: Numbers
    width: int = 1

    def __post_init__(self) -> None:
        self.rows: Rows | None = None
        """The rows of single steps, reused while the hypotheses stay the same."""
        self.longest = int(self.positions.max(initial=0))
        """Number of positions in use."""

    @property
    def n(self) -> int:
        """Return the number of hypotheses N."""
        return len(self.positions)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the number of tokens of each hypothesis."""
        return tuple(self.positions.tolist())

    @property
    def device(self) -> torch.device:
        """Return the CPU device."""
        return torch.device("cpu")

    def next_layout(self, lengths: Sequence[int]) -> Layout:
        """Return the layout of ``lengths`` further tokens for each hypothesis."""
        return Layout.of(lengths, self.lengths)

    def advance(self, lengths: Int32[np.ndarray, " N"] | int) -> None:
        """Count tokens appended to each hypothesis."""
        self.positions += lengths
        self.longest = (
            self.longest + lengths if isinstance(lengths, int) else int(self.positions.max(initial=0))
        )

    def select(self, rows: Tensor | Sequence[int]) -> "Hypotheses":
        """Make row n continue row ``rows[n]``, which must belong to the same sentence."""
        parents = np.asarray(rows)
        if len(parents) != self.n:
            raise ValueError(f"expected {self.n} parents, got {len(parents)}; use `keep` to remove sentences")
        n_used = self.longest
        # In place: the rows of the next step refer to these arrays.
        self.ancestors[:, :n_used] = self.ancestors[parents, :n_used]
        self.positions[:] = self.positions[parents]
        return self

    def expand(self, width: int) -> "Hypotheses":
        """Repeat every hypothesis ``width`` times in succession; all but the first get new cache lines."""
        if width == 1:
            return self
        n, lines = self.n, self.own_caches.lines
        cache_lines = np.empty((n, width), np.int32)
        cache_lines[:, 0] = self.cache_lines
        cache_lines[:, 1:] = lines + np.arange(n * (width - 1), dtype=np.int32).reshape(n, width - 1)
        n_used = self.longest
        return Hypotheses(
            self.own_caches.grown(lines + n * (width - 1), self.own_caches.capacity, n_used),
            self.source_caches,
            self.positions.repeat(width),
            cache_lines.reshape(-1),
            self.ancestors.repeat(width, 0),
            self.sources.repeat(width),
            self.source_lengths.repeat(width),
            self.width * width,
        )

    def keep(self, sentences: Sequence[int]) -> "Hypotheses":
        """Keep only these sentences."""
        rows = np.asarray(sentences, np.int64)[:, None] * self.width + np.arange(self.width)
        rows = rows.reshape(-1)
        return Hypotheses(
            self.own_caches, self.source_caches, self.positions[rows], self.cache_lines[rows],
            self.ancestors[rows], self.sources[rows], self.source_lengths[rows], self.width,
        )  # fmt: skip

    def add(self, n: int) -> "Hypotheses":
        """Append ``n`` hypotheses without tokens, in cache lines that no other one uses.

        The caches are copied only if there are too few such lines; their number is then at least doubled.

        Raises:
            ValueError: the hypotheses have sources, or a width other than 1.
        """
        lines = self.own_caches.lines
        if self.n + n > lines:
            return self.resized(max(self.n + n, 2 * lines), self.own_caches.capacity).add(n)
        self._require_simple()
        free = np.setdiff1d(_numbers(lines), self.cache_lines, assume_unique=True)[:n]
        empty = np.zeros(n, np.int32)
        return Hypotheses(
            self.own_caches,
            None,
            np.concatenate((self.positions, empty)),
            np.concatenate((self.cache_lines, free)),
            np.concatenate((self.ancestors, free[:, None].repeat(self.ancestors.shape[1], 1))),
            _numbers(self.n + n),
            np.zeros(self.n + n, np.int32),
        )

    def resized(self, lines: int, capacity: int) -> "Hypotheses":
        """Return the same hypotheses in the first lines of new caches, which may be larger or smaller.

        Raises:
            ValueError: they do not fit, have sources, or a width other than 1.
        """
        self._require_simple()
        if lines < self.n or capacity < self.longest:
            raise ValueError(
                f"{self.n} hypotheses of up to {self.longest} tokens do not fit {lines} lines of {capacity}"
            )
        return Hypotheses(
            self.own_caches.taken(self.cache_lines, lines, capacity, self.longest),
            None,
            self.positions,
            _numbers(self.n),
            np.repeat(_numbers(self.n)[:, None], capacity, 1),
            self.sources,
            self.source_lengths,
        )

    def _require_simple(self) -> None:
        if self.width != 1 or self.source_caches is not None:
            raise ValueError("only hypotheses of width 1 without sources can be added or moved")

    def reserve(self, length: int) -> None:
        """Grow the caches, if needed, so that positions below ``length`` can be written."""
        capacity = self.own_caches.capacity
        if length <= capacity:
            return
        n_used, capacity = self.longest, max(length, 2 * capacity)
        self.own_caches = self.own_caches.grown(self.own_caches.lines, capacity, n_used)
        ancestors = np.zeros((self.n, capacity), np.int32)
        ancestors[:, :n_used] = self.ancestors[:, :n_used]
        self.ancestors, self.rows = ancestors, None


class CompiledModel:
    """Model interface for decoding: ``start``, ``extend`` and ``heads``, and `step` for single tokens.

    It owns working memory, so it supports one decoding at a time.

    Args:
        engine: the compiled model; several instances may share it.
    """

    alignment_taps: tuple[str, ...] = ()
    """Empty: the engine returns no attention weights; use the plain model for these."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.heads = {"token": self.logits}
        self._runner = Runner(engine, engine.decoder)
        self._reader: Runner | None = None

    @torch.inference_mode()
    def start(self, source: Tokens | int) -> Hypotheses:
        """Encode the sources (or take the number of sequences) and return a state without tokens."""
        memory = None if isinstance(source, int) else self._encode(source)
        n = source if isinstance(source, int) else source.layout.n_sequences
        lengths = [0] * n if isinstance(source, int) else list(source.layout.lengths)
        return Hypotheses(
            KeyValueCaches(self.engine.own_cache_shapes, n, FIRST_CAPACITY),
            memory,
            np.zeros(n, np.int32),
            _numbers(n),
            np.repeat(_numbers(n)[:, None], FIRST_CAPACITY, 1),
            _numbers(n),
            np.array(lengths, np.int32),
        )

    def _encode(self, source: Tokens) -> KeyValueCaches:
        """Encode the sources; return keys and values for every cross-attention layer, a line per source."""
        program, layout = self.engine.encoder, source.layout
        assert program is not None
        memory = KeyValueCaches(self.engine.source_cache_shapes, layout.n_sequences, layout.max_length)
        groups = list(_sentences(layout.lengths))
        starts = [0, *accumulate(layout.lengths)]
        n_rows = max((starts[g.stop] - starts[g.start] for g in groups), default=0)
        if self._reader is None or self._reader.n_rows < n_rows:
            self._reader = Runner(self.engine, program, max(ROWS, n_rows))
        lines = max((g.stop - g.start for g in groups), default=0)
        encoder_caches = KeyValueCaches(
            [c for c in program.caches if not c.of_source], lines, layout.max_length
        )
        for group in groups:
            part = layout if len(groups) == 1 else layout.select(range(group.start, group.stop))
            ids = source.ids[starts[group.start] : starts[group.stop]]
            self._reader.attach(encoder_caches, memory.part(group), layout.max_length)
            self._reader.use(_whole(ids, part, encoder_caches.capacity), linked=True)
            self._reader.run()
        return memory

    @torch.inference_mode()
    def extend(self, tokens: Tokens, state: Hypotheses) -> tuple[Float[Tensor, "T d"], Hypotheses]:
        """Append tokens to every hypothesis; ``tokens.layout`` must come from `Hypotheses.next_layout`."""
        layout, longest = tokens.layout, tokens.layout.with_past.max_length
        state.reserve(longest)
        sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.positions))
        state.ancestors[sequences, positions] = state.cache_lines[sequences]
        rows = Rows(
            np.ascontiguousarray(tokens.ids.numpy()),
            positions,
            state.cache_lines[sequences],
            sequences,
            positions + 1,
            state.ancestors,
            state.sources[sequences],
            state.source_lengths[sequences],
        )
        self._runner.attach(state.own_caches, state.source_caches, longest)
        x = self._runner.buffer("x")
        hidden = x.new_empty(layout.n_tokens, x.shape[1])
        for span in _spans(layout.n_tokens):
            self._runner.use(rows.part(span), linked=True)
            self._runner.run(head=False)
            hidden[span] = x[: span.stop - span.start]
        state.advance(np.array(layout.lengths, np.int32))
        return hidden, state

    @torch.inference_mode()
    def logits(self, hidden: Float[Tensor, "N d"]) -> Float[Tensor, "N V"]:
        """Compute the logits of hidden states with the output head."""
        x, logits = self._runner.buffer("x"), self._runner.buffer("logits")
        out = logits.new_empty(len(hidden), logits.shape[1])
        for span in _spans(len(hidden)):
            n = span.stop - span.start
            x[:n] = hidden[span]
            self._runner.run_head(n)
            out[span] = logits[:n]
        return out

    def step(self, ids: Int[Tensor, " N"], state: Hypotheses) -> tuple[Float[Tensor, "N V"], Hypotheses]:
        """Append one token to every hypothesis and return the logits of the next one.

        The next step overwrites the memory of the logits.
        """
        if state.n > ROWS:
            hidden, state = self.extend(Tokens(ids, state.next_layout((1,) * state.n)), state)
            return self.logits(hidden), state
        longest = state.longest + 1
        state.reserve(longest)
        rows = _single(ids, state)
        state.ancestors[rows.sequences, state.positions] = state.cache_lines
        self._runner.attach(state.own_caches, state.source_caches, longest)
        self._runner.use(rows, linked=False)
        self._runner.run()
        state.advance(1)
        return self._runner.buffer("logits")[: state.n], state


def _single(ids: Tensor, state: Hypotheses) -> Rows:
    """Return rows of one token per hypothesis; the arrays are reused while the hypotheses stay the same."""
    if state.rows is None:
        state.rows = Rows(
            ids.numpy().copy(),
            state.positions,
            state.cache_lines,
            _numbers(state.n),
            state.positions + 1,
            state.ancestors,
            state.sources,
            state.source_lengths,
        )
    else:
        state.rows.ids[:] = ids.numpy()
        np.add(state.positions, 1, out=state.rows.n_visible)
    return state.rows


def _whole(ids: Tensor, layout: Layout, capacity: int) -> Rows:
    """Return the rows of whole sequences, whose tokens attend to all tokens of their own sequence."""
    sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.within))
    ancestors = np.repeat(_numbers(layout.n_sequences)[:, None], capacity, 1)
    n_visible = np.array(layout.lengths, np.int32)[sequences]
    return Rows(np.ascontiguousarray(ids.numpy()), positions, sequences, sequences, n_visible, ancestors)


def _sentences(lengths: tuple[int, ...]) -> Iterator[slice]:
    """Yield groups of consecutive sentences with at most `ROWS` tokens, or of one longer sentence."""
    begin, tokens = 0, 0
    for i, length in enumerate(lengths):
        if tokens and tokens + length > ROWS:
            yield slice(begin, i)
            begin, tokens = i, 0
        tokens += length
    if lengths:
        yield slice(begin, len(lengths))


def _spans(n: int) -> Iterator[slice]:
    return (slice(begin, min(begin + ROWS, n)) for begin in range(0, n, ROWS))


def _numbers(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)

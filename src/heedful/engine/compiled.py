"""A compiled model: the model contract (ARCHITECTURE.md) on the native engine."""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.engine.engine import Engine
from heedful.engine.running import ROWS, Room, Rows, Runner
from heedful.engine.state import Hypotheses
from heedful.nn.layout import Layout, Tokens

FIRST_CAPACITY = 64
"""Initial capacity in positions; it is doubled when it is used up."""


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
            Room(self.engine.own_caches, n, FIRST_CAPACITY),
            memory,
            np.zeros(n, np.int32),
            _numbers(n),
            np.repeat(_numbers(n)[:, None], FIRST_CAPACITY, 1),
            _numbers(n),
            np.array(lengths, np.int32),
        )

    def _encode(self, source: Tokens) -> Room:
        """Encode the sources; return keys and values for every cross-attention layer, a line per source."""
        program, layout = self.engine.encoder, source.layout
        assert program is not None
        memory = Room(self.engine.source_caches, layout.n_sequences, layout.max_length)
        groups = list(_sentences(layout.lengths))
        starts = [0, *accumulate(layout.lengths)]
        n_rows = max((starts[g.stop] - starts[g.start] for g in groups), default=0)
        if self._reader is None or self._reader.n_rows < n_rows:
            self._reader = Runner(self.engine, program, max(ROWS, n_rows))
        lines = max((g.stop - g.start for g in groups), default=0)
        own = Room([c for c in program.caches if not c.of_source], lines, layout.max_length)
        for group in groups:
            part = layout if len(groups) == 1 else layout.select(range(group.start, group.stop))
            ids = source.ids[starts[group.start] : starts[group.stop]]
            self._reader.attach(own, memory.part(group), layout.max_length)
            self._reader.use(_whole(ids, part, own.capacity), linked=True)
            self._reader.run()
        return memory

    @torch.inference_mode()
    def extend(self, tokens: Tokens, state: Hypotheses) -> tuple[Float[Tensor, "T d"], Hypotheses]:
        """Append tokens to every hypothesis; ``tokens.layout`` must come from `Hypotheses.next_layout`."""
        layout, longest = tokens.layout, tokens.layout.through.max_length
        state.make_room(longest)
        sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.positions))
        state.ancestors[sequences, positions] = state.places[sequences]
        rows = Rows(
            np.ascontiguousarray(tokens.ids.numpy()),
            positions,
            state.places[sequences],
            sequences,
            positions + 1,
            state.ancestors,
            state.sources[sequences],
            state.source_lengths[sequences],
        )
        self._runner.attach(state.own, state.source, longest)
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
        state.make_room(longest)
        rows = _single(ids, state)
        state.ancestors[rows.sequences, state.positions] = state.places
        self._runner.attach(state.own, state.source, longest)
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
            state.places,
            _numbers(state.n),
            state.positions + 1,
            state.ancestors,
            state.sources,
            state.source_lengths,
        )
    else:
        state.rows.ids[:] = ids.numpy()
        np.add(state.positions, 1, out=state.rows.seen)
    return state.rows


def _whole(ids: Tensor, layout: Layout, capacity: int) -> Rows:
    """Return the rows of whole sequences, whose tokens attend to all tokens of their own sequence."""
    sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.within))
    ancestors = np.repeat(_numbers(layout.n_sequences)[:, None], capacity, 1)
    seen = np.array(layout.lengths, np.int32)[sequences]
    return Rows(np.ascontiguousarray(ids.numpy()), positions, sequences, sequences, seen, ancestors)


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

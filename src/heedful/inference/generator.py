"""Steps of decoding on the native engine: the contract of the plain `heedful.tasks.generation.Generator`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.decoding.protocol import StepOutput
from heedful.inference.engine import Engine
from heedful.inference.running import ROWS, Room, Rows, Runner
from heedful.inference.state import Hypotheses
from heedful.nn.layout import Layout, Tokens

FIRST_CAPACITY = 64
"""Positions for which there is room at first; it is doubled when it runs out."""


class EngineGenerator:
    """The step function of a compiled model. It serves one decoding at a time.

    Args:
        engine: the compiled model; many generators may share it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._runner = Runner(engine, engine.decoder)

    def prefill(self, source: Tokens | None, prefixes: Tokens) -> StepOutput:
        """Read the sources and the prefixes; logits of the first new token, ``[B, V]``."""
        layout = prefixes.layout
        memory = None if source is None else encode(self.engine, source)
        lengths = [0] * layout.n_sequences if source is None else source.layout.lengths
        capacity = max(FIRST_CAPACITY, 2 * layout.max_length)
        each = np.arange(layout.n_sequences, dtype=np.int32)
        state = Hypotheses(
            Room(self.engine.own_caches, layout.n_sequences, capacity),
            memory,
            np.zeros_like(each),
            each.copy(),
            np.repeat(each[:, None], capacity, 1),
            each.copy(),
            np.array(lengths, np.int32),
        )
        return self._write(prefixes, state)

    def step(self, ids: Int[Tensor, " N"], state: Any, parents: Int[Tensor, " N"] | None) -> StepOutput:
        """Write one token for every hypothesis: row n continues row ``parents[n]``.

        The logits lie in memory that the next step uses again.
        """
        if parents is not None:
            state = state.select(parents)
        if state.n > ROWS:
            return self._write(Tokens(ids, Layout.of((1,) * state.n, state.positions.tolist())), state)
        longest = state.longest + 1
        state.make_room(longest)
        state.ancestors[_numbers(state.n), state.positions] = state.places
        self._runner.attach(state.own, state.source, longest)
        self._runner.use(_single(ids, state))
        self._runner.run()
        state.positions += 1
        return StepOutput(self._runner.buffer("logits")[: state.n], state)

    def _write(self, tokens: Tokens, state: Hypotheses) -> StepOutput:
        """Write any number of tokens, at least one for each hypothesis."""
        layout, after = tokens.layout, tokens.layout.through
        state.make_room(after.max_length)
        sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.positions))
        state.ancestors[sequences, positions] = state.places[sequences]
        rows = Rows(
            tokens.ids.numpy(),
            positions,
            state.places[sequences],
            sequences,
            positions + 1,
            state.ancestors,
            state.sources[sequences],
            state.source_lengths[sequences],
        )
        self._runner.attach(state.own, state.source, after.max_length)
        x = self._runner.buffer("x")
        hidden = x.new_empty(layout.n_tokens, x.shape[1])
        for span in _spans(layout.n_tokens):
            self._runner.use(rows.part(span))
            self._runner.run(head=False)
            hidden[span] = x[: span.stop - span.start]
        state.positions += np.array(layout.lengths, np.int32)
        return StepOutput(self._logits(hidden[layout.last]), state)

    def _logits(self, hidden: Float[Tensor, "N d"]) -> Float[Tensor, "N V"]:
        x, logits = self._runner.buffer("x"), self._runner.buffer("logits")
        out = logits.new_empty(len(hidden), logits.shape[1])
        for span in _spans(len(hidden)):
            n = span.stop - span.start
            x[:n] = hidden[span]
            self._runner.run_head(n)
            out[span] = logits[:n]
        return out


def _single(ids: Tensor, state: Hypotheses) -> Rows:
    """One token for each hypothesis; the arrays are used again while the hypotheses stay the same."""
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


def encode(engine: Engine, source: Tokens) -> Room:
    """Read the sources: keys and values of every layer that looks at them, one line for each."""
    assert engine.encoder is not None
    layout = source.layout
    memory = Room(engine.source_caches, layout.n_sequences, layout.max_length)
    groups = list(_sentences(layout.lengths))
    starts = layout.offsets.tolist()
    most = max((starts[g.stop] - starts[g.start] for g in groups), default=0)
    runner = Runner(engine, engine.encoder, most)
    lines = max((g.stop - g.start for g in groups), default=0)
    scratch = [shape for shape in engine.encoder.caches if not shape.of_source]
    own = Room(scratch, lines, layout.max_length)
    for group in groups:
        part = layout.select(range(group.start, group.stop))
        ids = source.ids[starts[group.start] : starts[group.stop]]
        runner.attach(own, memory.part(group), layout.max_length)
        runner.use(_whole(ids, part, own.capacity))
        runner.run()
    return memory


def _whole(ids: Tensor, layout: Layout, capacity: int) -> Rows:
    """The tokens of whole sequences, each of which sees all of its own."""
    sequences, positions = (x.numpy().astype(np.int32) for x in (layout.sequence, layout.within))
    ancestors = np.repeat(_numbers(layout.n_sequences)[:, None], capacity, 1)
    seen = np.array(layout.lengths, np.int32)[sequences]
    return Rows(ids.numpy(), positions, sequences, sequences, seen, ancestors)


def _sentences(lengths: tuple[int, ...]) -> Iterator[slice]:
    """Groups of neighbouring sentences with at most `ROWS` tokens, or of a single one."""
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

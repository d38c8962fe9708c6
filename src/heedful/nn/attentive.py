"""Decoders that write a sequence while reading another: with attention, or from one fixed vector.

    p(y_t | y_<t, x) = softmax(W_o t_t)

| lectures (S0, S3, S4) | here |
|---|---|
| h_i, all of them: the annotations | `heedful.nn.attention.recurrent.Annotations` |
| s_t | the decoder cell's output |
| e_ti = score(s_{t-1}, h_i), alpha_ti | weights over the source, tap ``weights`` |
| c_t = sum_i alpha_ti h_i | ``context`` |
| t_t | a readout, what the decoder returns |

Who attends with what differs between two papers, and is a part here:

    `AttendThenUpdate`   c_t from s_{t-1};  s_t = cell([E y_{t-1}; c_t], s_{t-1})     Bahdanau et al. 2014
    `UpdateThenAttend`   s_t = cell(E y_{t-1}, s_{t-1});  c_t from s_t                Luong et al. 2015

A decoder continues sequences: ``begin`` makes the source half and the hypothesis half of a decoding
state, and ``forward`` writes any number of tokens to each hypothesis.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.attention.recurrent import (
    Attended,
    Encoded,
    FixedContext,
    RecurrentAttention,
    SourceMemory,
)
from heedful.nn.attention.recurrent_heads import MultiHeadAdditiveAttention
from heedful.nn.cells import AnyCell
from heedful.nn.layout import Layout
from heedful.nn.readouts import MaxoutReadout, TanhReadout
from heedful.nn.recurrent import RecurrentCache, RecurrentStack, States
from heedful.nn.scan import Carry, TimeMajor, scan
from heedful.nn.taps import Tap

AnyAttention = RecurrentAttention | MultiHeadAdditiveAttention | FixedContext


class Stepped(NamedTuple):
    """What one step of a decoder gives: what the readout reads, and what is carried on."""

    query: Float[Tensor, "N d_hidden"]
    attended: Attended
    state: States


class AttendThenUpdate(nn.Module):
    """``c_t = attend(s_{t-1})``, ``s_t = cell(W E y_{t-1} + C c_t, s_{t-1})`` (Bahdanau et al. 2014, A.1.2).

    C is one matrix over all gates (the paper's C, C_z, C_r).
    """

    def __init__(self, cell: AnyCell, attention: AnyAttention) -> None:
        super().__init__()
        self.cell, self.attention = cell, attention
        self.context = _gate_input(attention.d_context, cell)

    def forward(
        self,
        projected: Float[Tensor, "N d_projected"],
        state: States,
        memory: SourceMemory,
        history: Tensor | None,
    ) -> Stepped:
        """One step."""
        query = self.cell.output(state)
        attended = self.attention(query, memory, history)
        return Stepped(query, attended, self.cell(projected + self.context(attended.context), state))


class UpdateThenAttend(nn.Module):
    """``s_t = cell(W E y_{t-1}, s_{t-1})``, ``c_t = attend(s_t)`` (Luong et al. 2015, section 3)."""

    def __init__(self, cell: AnyCell, attention: AnyAttention) -> None:
        super().__init__()
        self.cell, self.attention = cell, attention

    def forward(
        self,
        projected: Float[Tensor, "N d_projected"],
        state: States,
        memory: SourceMemory,
        history: Tensor | None,
    ) -> Stepped:
        """One step."""
        state = self.cell(projected, state)
        query = self.cell.output(state)
        return Stepped(query, self.attention(query, memory, history), state)


def _gate_input(d_in: int, cell: AnyCell) -> nn.Linear:
    """A further input of a cell, beside its token: one matrix for each gate, the bias is the cell's."""
    linear = nn.Linear(d_in, cell.d_projected, bias=False)
    for part in linear.weight.data.split(cell.d_gate):
        nn.init.xavier_uniform_(part)
    return linear


@dataclass
class AttentiveCache:
    """What `AttentiveDecoder` remembers of each hypothesis.

    Args:
        state: of the cell.
        fed: the last readout, where it is fed back.
        history: of the attention, where it has one.
    """

    state: Float[Tensor, "n_states N d_hidden"]
    fed: Float[Tensor, "N d_out"] | None = None
    history: Tensor | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "AttentiveCache":
        """The hypotheses ``rows``."""
        pick = lambda part: None if part is None else part.index_select(0, rows)  # noqa: E731
        return AttentiveCache(self.state.index_select(1, rows), pick(self.fed), pick(self.history))


class AttentiveDecoder(nn.Module):
    """A cell that attends to the source at every step, and a readout of state, token and context.

    Args:
        step: `AttendThenUpdate` or `UpdateThenAttend`.
        readout: see `heedful.nn.readouts`.
        bridge: makes s_0 (`heedful.nn.bridges`).
        input_feeding: whether the readout of step t - 1 is also an input of the cell at step t, so
            that past choices of alignment are known to it (Luong et al. 2015, section 3.3). Readouts
            are then computed step by step, otherwise all at once.

    The loop over time is the same in training, for prefixes and for single steps.

    | tap | sees | |
    |---|---|---|
    | ``weights`` | ``[N, H, Q, S]``, H = 1 where the attention has no heads | to be read, not replaced |
    | ``output`` | ``[T, d_out]`` | what replaces a readout is not fed back |

    Both stand after the loop; with a `FixedContext` there are no weights to see.
    """

    def __init__(
        self,
        step: AttendThenUpdate | UpdateThenAttend,
        readout: MaxoutReadout | TanhReadout,
        bridge: nn.Module,
        *,
        input_feeding: bool = False,
    ) -> None:
        super().__init__()
        self.step, self.readout, self.bridge = step, readout, bridge
        self.feed = _gate_input(readout.d_out, step.cell) if input_feeding else None
        self.weights = Tap("the attention weights over the source", read_only=True)
        self.output = Tap("the readouts, as the output layer reads them before dropout")
        self.d_out = readout.d_out

    def begin(self, encoded: Encoded) -> tuple[list[SourceMemory], list[AttentiveCache]]:
        """The source half, and the hypothesis half of one hypothesis for each sentence."""
        attention = self.step.attention
        memory = attention.remember(encoded)
        state = torch.stack(self.bridge(encoded))
        fed = None if self.feed is None else state.new_zeros(state.shape[1], self.d_out)
        return [memory], [AttentiveCache(state, fed, attention.begin(memory))]

    def forward(
        self,
        x: Float[Tensor, "T d_embedding"],
        layout: Layout,
        memories: list[SourceMemory],
        caches: list[AttentiveCache],
    ) -> Float[Tensor, "T d_out"]:
        """Continue the hypotheses in the cache with the embedded tokens x; the cache is updated."""
        (memory,), (cache,) = memories, caches
        if layout.n_tokens == 0:
            return x.new_zeros(0, self.d_out)
        order = TimeMajor.of(layout)
        if not order.rows_stay:
            width = layout.n_sequences // len(memory.vectors)
            memory = memory.select(order.rows // width)
        x = order.enter(x)
        outputs, carry = self._run(x, order, memory, cache)
        self._store(cache, carry)
        readout, query, context, weights = outputs
        if readout is None:
            readout = self.readout(cast(Tensor, query), x, cast(Tensor, context))
        if self.weights.attached and weights is not None:
            self._listen(order.leave(weights), layout)
        return self.output(order.leave(readout))

    def _run(
        self, x: Tensor, order: TimeMajor, memory: SourceMemory, cache: AttentiveCache
    ) -> tuple[Carry, Carry]:
        """All steps: (readout, query, context, weights) of each, and (fed, history, *state)."""
        per_sentence = len(order.rows) // len(memory.vectors)

        def step(now: tuple[Tensor, ...], carry: Carry) -> tuple[Carry, Carry]:
            projected, y = now
            return self._step(projected, y, carry, memory.first(len(y) // per_sentence))

        start = (cache.fed, cache.history, *cache.state.unbind())
        return scan(step, order, (self.step.cell.project(x), x), start)

    def _step(self, projected: Tensor, y: Tensor, carry: Carry, memory: SourceMemory) -> tuple[Carry, Carry]:
        fed, history, *state = carry
        if self.feed is not None:
            projected = projected + self.feed(fed)
        query, (context, weights, history), after = self.step(projected, tuple(state), memory, history)
        kept = weights if self.weights.attached else None
        if self.feed is None:
            return (None, query, context, kept), (None, history, *after)
        fed = self.readout(query, y, context)
        return (fed, None, None, kept), (fed, history, *after)

    def _store(self, cache: AttentiveCache, carry: Carry) -> None:
        cache.fed, cache.history, *state = carry
        cache.state = torch.stack(cast(list[Tensor], state))

    def _listen(self, weights: Float[Tensor, "T *H S"], layout: Layout) -> None:
        """Let the tap see the weights as ``[N, H, Q, S]``; after the fact, so it cannot replace them."""
        heads = weights[:, None] if weights.dim() == 2 else weights
        self.weights(layout.pad(heads).transpose(1, 2))


class FixedContextDecoder(nn.Module):
    """``s_0`` from the encoder's final state, and nothing else of the source (Sutskever et al. 2014).

    All that a sentence says must pass through one vector, whatever the sentence's length. For Cho's
    decoder, which sees the vector at every step, give `FixedContext` to an `AttentiveDecoder`.
    """

    def __init__(self, stack: RecurrentStack, bridge: nn.Module) -> None:
        super().__init__()
        self.stack, self.bridge = stack, bridge
        self.d_out = stack.d_out

    def begin(self, encoded: Encoded) -> tuple[list[SourceMemory], list[RecurrentCache]]:
        """No source half; the states of every layer."""
        states, caches = list(self.bridge(encoded)), []
        for n in self.stack.n_states:
            caches.append(RecurrentCache(torch.stack(states[:n])))
            del states[:n]
        return [], caches

    def forward(
        self,
        x: Float[Tensor, "T d_embedding"],
        layout: Layout,
        memories: list[SourceMemory],
        caches: list[RecurrentCache],
    ) -> Float[Tensor, "T d_out"]:
        """Continue the hypotheses in the caches with the embedded tokens x."""
        return self.stack(x, layout, caches)


AnyDecoder = AttentiveDecoder | FixedContextDecoder

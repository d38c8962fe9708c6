"""Recurrent decoders conditioned on a source, by attention or by one fixed vector.

    p(y_t | y_<t, x) = softmax(W_o t_t)

| lectures (S0, S3, S4) | here |
|---|---|
| h_i, all of them: the annotations | `heedful.nn.attention.recurrent.Annotations` |
| s_t | the decoder cell's output |
| e_ti = score(s_{t-1}, h_i), alpha_ti | weights over the source, tap ``weights`` |
| c_t = sum_i alpha_ti h_i | ``context`` |
| t_t | a readout, the output of the decoder |

The order of attention and state update differs between two papers, and is a separate module here:

    `AttendThenUpdate`   c_t from s_{t-1};  s_t = cell([E y_{t-1}; c_t], s_{t-1})     Bahdanau et al. 2015
    `UpdateThenAttend`   s_t = cell(E y_{t-1}, s_{t-1});  c_t from s_t                Luong et al. 2015

``begin`` returns the source part and the hypothesis part of a decoder state; ``forward`` appends any number
of tokens to each hypothesis.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.attention.recurrent import (
    AttentionResult,
    EncoderOutput,
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


class StepResult(NamedTuple):
    """Result of one decoder step: the inputs of the readout, and the new state."""

    query: Float[Tensor, "N d_hidden"]
    attended: AttentionResult
    state: States


class AttendThenUpdate(nn.Module):
    """``c_t = attend(s_{t-1})``, ``s_t = cell(W E y_{t-1} + C c_t, s_{t-1})`` (Bahdanau et al. 2015, A.1.2).

    C is one matrix over all gates (the paper's C, C_z, C_r).
    """

    def __init__(self, cell: AnyCell, attention: AnyAttention) -> None:
        super().__init__()
        attention.check_query(cell.d_hidden)
        self.cell, self.attention = cell, attention
        self.context = _gate_input(attention.d_context, cell)

    def forward(
        self,
        projected: Float[Tensor, "N d_projected"],
        state: States,
        memory: SourceMemory,
        history: Tensor | None,
    ) -> StepResult:
        """Run one step."""
        query = self.cell.output(state)
        attended = self.attention(query, memory, history)
        return StepResult(query, attended, self.cell(projected + self.context(attended.context), state))


class UpdateThenAttend(nn.Module):
    """``s_t = cell(W E y_{t-1}, s_{t-1})``, ``c_t = attend(s_t)`` (Luong et al. 2015, section 3)."""

    def __init__(self, cell: AnyCell, attention: AnyAttention) -> None:
        super().__init__()
        attention.check_query(cell.d_hidden)
        self.cell, self.attention = cell, attention

    def forward(
        self,
        projected: Float[Tensor, "N d_projected"],
        state: States,
        memory: SourceMemory,
        history: Tensor | None,
    ) -> StepResult:
        """Run one step."""
        state = self.cell(projected, state)
        query = self.cell.output(state)
        return StepResult(query, self.attention(query, memory, history), state)


def _gate_input(d_in: int, cell: AnyCell) -> nn.Linear:
    """Build the projection of an additional cell input: one matrix per gate, without bias."""
    linear = nn.Linear(d_in, cell.d_projected, bias=False)
    for part in linear.weight.data.split(cell.d_gate):
        nn.init.xavier_uniform_(part)
    return linear


@dataclass
class AttentiveCache:
    """Cache of an `AttentiveDecoder`.

    Args:
        state: state of the cell.
        previous_output: last readout, with input feeding.
        history: history of the attention, if it has one.
    """

    state: Float[Tensor, "n_states N d_hidden"]
    previous_output: Float[Tensor, "N d_out"] | None = None
    history: Tensor | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "AttentiveCache":
        """Return the cache of the hypotheses ``rows``."""
        select_rows = lambda part: None if part is None else part.index_select(0, rows)  # noqa: E731
        return AttentiveCache(
            self.state.index_select(1, rows), select_rows(self.previous_output), select_rows(self.history)
        )


class AttentiveDecoder(nn.Module):
    """Recurrent decoder that attends to the source at every step, with a readout of state, token and context.

    Args:
        step: `AttendThenUpdate` or `UpdateThenAttend`.
        readout: see `heedful.nn.readouts`.
        bridge: computes s_0 (`heedful.nn.bridges`).
        input_feeding: use the readout of step t - 1 as an additional cell input at step t, so that the cell
            knows past alignments (Luong et al. 2015, section 3.3). Readouts are then computed step by step,
            otherwise all at once.

    Training, prefixes and single steps use the same loop over time.

    | tap | shape | |
    |---|---|---|
    | ``weights`` | ``[N, H, Q, S]``, H = 1 for single-head attention | read-only |
    | ``output`` | ``[T, d_out]`` | a replaced readout is not fed back |

    Both taps are after the loop; a `FixedContext` has no weights.
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
        self.weights = Tap("attention weights over the source", read_only=True)
        self.output = Tap("readouts, the input of the output layer before dropout")
        self.d_out = readout.d_out

    def initial_state(self, encoded: EncoderOutput) -> tuple[list[SourceMemory], list[AttentiveCache]]:
        """Return the source part, and the hypothesis part for one hypothesis per sentence."""
        attention = self.step.attention
        memory = attention.make_memory(encoded)
        state = torch.stack(self.bridge(encoded))
        previous_output = None if self.feed is None else state.new_zeros(state.shape[1], self.d_out)
        return [memory], [AttentiveCache(state, previous_output, attention.initial_history(memory))]

    def forward(
        self,
        x: Float[Tensor, "T d_embedding"],
        layout: Layout,
        memories: list[SourceMemory],
        caches: list[AttentiveCache],
    ) -> Float[Tensor, "T d_out"]:
        """Append the embedded tokens x to the hypotheses in the cache, and update it."""
        (memory,), (cache,) = memories, caches
        if layout.n_tokens == 0:
            return x.new_zeros(0, self.d_out)
        order = TimeMajor.of(layout)
        if not order.equal_lengths:
            width = layout.n_sequences // len(memory.vectors)
            memory = memory.select(order.rows // width)
        x = order.to_time_major(x)
        outputs, carry = self._run(x, order, memory, cache)
        cache.previous_output, cache.history, *state = carry
        cache.state = torch.stack(cast(list[Tensor], state))
        readout, query, context, weights = outputs
        if readout is None:
            readout = self.readout(cast(Tensor, query), x, cast(Tensor, context))
        if self.weights.attached and weights is not None:
            self._pass_to_tap(order.to_packed(weights), layout)
        return self.output(order.to_packed(readout))

    def _run(
        self, x: Tensor, order: TimeMajor, memory: SourceMemory, cache: AttentiveCache
    ) -> tuple[Carry, Carry]:
        """Run all steps.

        Returns:
            Of all steps (readout, query, context, weights); and (previous_output, history, *state).
        """
        per_sentence = len(order.rows) // len(memory.vectors)

        def step(inputs: tuple[Tensor, ...], carry: Carry) -> tuple[Carry, Carry]:
            projected, y = inputs
            return self._step(projected, y, carry, memory.first(len(y) // per_sentence))

        initial = (cache.previous_output, cache.history, *cache.state.unbind())
        return scan(step, order, (self.step.cell.project(x), x), initial)

    def _step(self, projected: Tensor, y: Tensor, carry: Carry, memory: SourceMemory) -> tuple[Carry, Carry]:
        previous_output, history, *state = carry
        if self.feed is not None:
            projected = projected + self.feed(previous_output)
        query, (context, weights, history), new_state = self.step(projected, tuple(state), memory, history)
        weights_for_tap = weights if self.weights.attached else None
        if self.feed is None:
            return (None, query, context, weights_for_tap), (None, history, *new_state)
        previous_output = self.readout(query, y, context)
        return (previous_output, None, None, weights_for_tap), (previous_output, history, *new_state)

    def _pass_to_tap(self, weights: Float[Tensor, "T *H S"], layout: Layout) -> None:
        """Pass the weights to the read-only tap as ``[N, H, Q, S]``."""
        heads = weights[:, None] if weights.dim() == 2 else weights
        self.weights(layout.pad(heads).transpose(1, 2))


class FixedContextDecoder(nn.Module):
    """Decoder that reads only the final encoder state, as ``s_0`` (Sutskever et al. 2014).

    All information about the source passes through one vector of fixed size. For Cho's decoder, which reads
    the vector at every step, use an `AttentiveDecoder` with `FixedContext`.
    """

    def __init__(self, stack: RecurrentStack, bridge: nn.Module) -> None:
        super().__init__()
        self.stack, self.bridge = stack, bridge
        self.d_out = stack.d_out

    def initial_state(self, encoded: EncoderOutput) -> tuple[list[SourceMemory], list[RecurrentCache]]:
        """Return an empty source part, and the states of every layer."""
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
        """Append the embedded tokens x to the hypotheses in the caches."""
        return self.stack(x, layout, caches)


AnyDecoder = AttentiveDecoder | FixedContextDecoder

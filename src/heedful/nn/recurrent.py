"""Recurrent layers: position mixers that carry a state from token to token.

S0's question whether h_i can be computed for all i at once has the answer no: every step waits for
the one before. What can be done at once, the input half of the cell, is (`heedful.nn.cells`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from heedful.nn.cells import AnyCell
from heedful.nn.dropout import Dropout
from heedful.nn.layout import Layout
from heedful.nn.scan import Carry, TimeMajor, scan
from heedful.nn.taps import Tap

States = tuple[Tensor, ...]


@dataclass
class RecurrentCache:
    """The state of one layer after each hypothesis' last token; None before the first."""

    state: Float[Tensor, "n_states N d_hidden"] | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "RecurrentCache":
        """The states of the hypotheses ``rows``."""
        return RecurrentCache(None if self.state is None else self.state.index_select(1, rows))


class RecurrentLayer(nn.Module):
    """What a stack is made of: widths, the number of states, and how it runs.

    A new layer defines ``run`` and ``output``.
    """

    d_in: int
    d_out: int
    n_states: int
    reads_ahead: bool = False
    """Whether an output depends on later tokens (`heedful.nn.declarations`)."""
    eager: bool = True
    """It counts lengths and runs step by step: compiled, every batch would be a graph of its own."""
    carries_state: bool = True
    """In training in bf16, its states stay in fp32 (`heedful.nn.declarations`)."""

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Outputs at all tokens, and the state after each sequence's last one."""
        raise NotImplementedError

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """What the final state ``state`` says of a whole sequence."""
        raise NotImplementedError

    def new_cache(self) -> RecurrentCache:
        """What it remembers of sequences of which nothing is written yet."""
        return RecurrentCache()

    def forward(
        self, x: Float[Tensor, "T d_in"], layout: Layout, cache: RecurrentCache | None = None
    ) -> Float[Tensor, "T d_out"]:
        """Outputs at all tokens; with a cache, its sequences are continued and it is updated."""
        before = None if cache is None or cache.state is None else cache.state.unbind()
        outputs, after = self.run(x, layout, before)
        if cache is not None:
            cache.state = torch.stack(after)
        return outputs


class Recurrence(RecurrentLayer):
    """One cell along every sequence: ``h_t = cell(x_t, h_{t-1})``, ``h_0 = 0``.

    The tap ``states`` sees h_t at every token. It stands after the loop over time: what replaces h_t goes to
    other parts, and not to the next step.

    Args:
        cell: the step.
        reverse: read every sequence from its last token to its first. The outputs stay with their
            tokens. Such a layer cannot continue a sequence: what comes later is what it reads first.
    """

    def __init__(self, cell: AnyCell, *, reverse: bool = False) -> None:
        super().__init__()
        self.cell, self.reverse, self.reads_ahead = cell, reverse, reverse
        self.states = Tap("the cell's output after every token")
        self.d_in, self.d_out, self.n_states = cell.d_in, cell.d_hidden, cell.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """The cell's output after the last token read."""
        return self.cell.output(state)

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Outputs at all tokens, and the state after the last token read (of none: ``state``)."""
        if self.reverse and (state is not None or any(layout.starts)):
            raise ValueError("a recurrence that reads backwards cannot continue a sequence")
        if state is None:
            state = self.cell.initial(layout.n_sequences, x)
        if layout.n_tokens == 0:
            return x.new_zeros(0, self.d_out), state
        order = TimeMajor.of(layout, reverse=self.reverse)
        (outputs,), final = scan(self._step, order, (self.cell.project(order.enter(x)),), state)
        assert outputs is not None
        return self.states(order.leave(outputs)), cast(States, final)

    def _step(self, now: tuple[Tensor, ...], state: Carry) -> tuple[Carry, Carry]:
        after = self.cell(*now, state)
        return (self.cell.output(after),), after


class Bidirectional(RecurrentLayer):
    """Two recurrences, one from each end; their outputs are concatenated at every token.

        h_i = [h_i from the left; h_i from the right]       (Schuster and Paliwal 1997)

    S4's "final weight matrix" over both is whatever reads the output. The final state is the states
    of the first layer, after the last token, then those of the second, after the first token.
    """

    reads_ahead = True

    def __init__(self, left_to_right: Recurrence, right_to_left: Recurrence) -> None:
        super().__init__()
        if left_to_right.reverse or not right_to_left.reverse:
            raise ValueError("give one recurrence that reads forwards and one with reverse=True")
        self.left_to_right, self.right_to_left = left_to_right, right_to_left
        self.d_in, self.d_out = left_to_right.d_in, left_to_right.d_out + right_to_left.d_out
        self.n_states = left_to_right.n_states + right_to_left.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """The right-to-left output at the first token, as Bahdanau et al. 2014 (A.2.2) use it."""
        return self.right_to_left.output(state[self.left_to_right.n_states :])

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Outputs at all tokens, and both final states."""
        if state is not None:
            raise ValueError("a bidirectional recurrence cannot continue a sequence")
        onward, last = self.left_to_right.run(x, layout)
        back, first = self.right_to_left.run(x, layout)
        return torch.cat([onward, back], dim=-1), last + first


class ResidualRecurrence(RecurrentLayer):
    """``x + layer(x)`` for a layer that keeps the width (Wu et al. 2016, section 3.1)."""

    def __init__(self, layer: RecurrentLayer) -> None:
        super().__init__()
        if layer.d_in != layer.d_out:
            raise ValueError(
                f"a residual layer keeps its width, but this one maps {layer.d_in} to {layer.d_out}"
            )
        self.layer = layer
        self.d_in, self.d_out, self.n_states = layer.d_in, layer.d_out, layer.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """The layer's own output, without the residual."""
        return self.layer.output(state)

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """The layer's outputs plus its inputs, and its final state."""
        outputs, final = self.layer.run(x, layout, state)
        return x + outputs, final


class RecurrentStack(nn.Module):
    """Layers one on top of the other, with dropout between them (Zaremba et al. 2014)."""

    def __init__(self, layers: Sequence[RecurrentLayer], dropout: float = 0.0) -> None:
        super().__init__()
        if not layers:
            raise ValueError("a stack needs at least one layer")
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    @property
    def d_out(self) -> int:
        """Width of the outputs."""
        return self._layers[-1].d_out

    @property
    def n_states(self) -> list[int]:
        """How many states each layer carries."""
        return [layer.n_states for layer in self._layers]

    def summary(self, finals: Sequence[States]) -> Float[Tensor, "B d_hidden"]:
        """The final output of the last layer, from the final states that ``run`` returned."""
        return self._layers[-1].output(finals[-1])

    @property
    def _layers(self) -> list[RecurrentLayer]:
        return cast(list[RecurrentLayer], list(self.layers))

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout
    ) -> tuple[Float[Tensor, "T d_out"], list[States]]:
        """The last layer's outputs, and the final states of every layer."""
        finals = []
        for i, layer in enumerate(self._layers):
            x, final = layer.run(self.dropout(x) if i else x, layout)
            finals.append(final)
        return x, finals

    def forward(
        self, x: Float[Tensor, "T d_in"], layout: Layout, caches: Sequence[RecurrentCache] | None = None
    ) -> Float[Tensor, "T d_out"]:
        """The last layer's outputs; with one cache for each layer, sequences are continued."""
        for i, layer in enumerate(self._layers):
            x = layer(self.dropout(x) if i else x, layout, None if caches is None else caches[i])
        return x

"""Recurrent layers: position mixers that carry a state from token to token.

S0 asks whether h_i can be computed for all i at once: no, every step depends on the previous one. Only the
input projection of the cell is computed for all steps at once (`heedful.nn.cells`).
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
    """State of one layer after the last token of each hypothesis; None before the first token."""

    state: Float[Tensor, "n_states N d_hidden"] | None = None

    def select(self, rows: Int[Tensor, " M"]) -> "RecurrentCache":
        """Return the cache of the hypotheses ``rows``."""
        return RecurrentCache(None if self.state is None else self.state.index_select(1, rows))


class RecurrentLayer(nn.Module):
    """Base class of recurrent layers; subclasses define ``run`` and ``output``."""

    d_in: int
    d_out: int
    n_states: int
    non_causal: bool = False
    """Whether an output depends on later tokens (`heedful.nn.declarations`)."""
    not_compilable: bool = True
    """Steps depend on the sequence lengths: compiling would trace a new graph for every batch
    (`heedful.nn.declarations`)."""
    carries_state: bool = True
    """In bf16 training, states stay in fp32 (`heedful.nn.declarations`)."""

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Return the outputs of all tokens, and the state after the last token of each sequence."""
        raise NotImplementedError

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """Return the summary of a sequence from its final state ``state``."""
        raise NotImplementedError

    def new_cache(self) -> RecurrentCache:
        """Return an empty cache."""
        return RecurrentCache()

    def forward(
        self, x: Float[Tensor, "T d_in"], layout: Layout, cache: RecurrentCache | None = None
    ) -> Float[Tensor, "T d_out"]:
        """Return the outputs of all tokens; with a cache, continue its sequences and update it."""
        initial_state = None if cache is None or cache.state is None else cache.state.unbind()
        outputs, final_state = self.run(x, layout, initial_state)
        if cache is not None:
            cache.state = torch.stack(final_state)
        return outputs


class Recurrence(RecurrentLayer):
    """Run one cell along every sequence: ``h_t = cell(x_t, h_{t-1})``, ``h_0 = 0``.

    The tap ``states`` sees h_t of every token, after the loop over time: a replaced h_t is used by other
    layers, but not by the next step.

    Args:
        cell: the recurrent cell.
        reverse: read every sequence from its last token to its first; outputs stay in token order. A
            reversed layer cannot continue a sequence, because it reads later tokens first.
    """

    def __init__(self, cell: AnyCell, *, reverse: bool = False) -> None:
        super().__init__()
        self.cell, self.reverse, self.non_causal = cell, reverse, reverse
        self.states = Tap("output of the cell after every token")
        self.d_in, self.d_out, self.n_states = cell.d_in, cell.d_hidden, cell.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """Return the output of the cell after the last token read."""
        return self.cell.output(state)

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Return the outputs of all tokens, and the state after the last token read (if any)."""
        if self.reverse and (state is not None or any(layout.starts)):
            raise ValueError("a reversed recurrence cannot continue a sequence")
        if state is None:
            state = self.cell.initial(layout.n_sequences, x)
        if layout.n_tokens == 0:
            return x.new_zeros(0, self.d_out), state
        order = TimeMajor.of(layout, reverse=self.reverse)
        (outputs,), final = scan(self._step, order, (self.cell.project(order.to_time_major(x)),), state)
        assert outputs is not None
        return self.states(order.to_packed(outputs)), cast(States, final)

    def _step(self, inputs: tuple[Tensor, ...], state: Carry) -> tuple[Carry, Carry]:
        new_state = self.cell(*inputs, state)
        return (self.cell.output(new_state),), new_state


class Bidirectional(RecurrentLayer):
    """Two recurrences, one in each direction; their outputs are concatenated at every token.

        h_i = [h_i from the left; h_i from the right]       (Schuster and Paliwal 1997)

    S4's "final weight matrix" over both is the layer that reads the output. The final state consists of the
    states of the first layer after the last token, then those of the second after the first token.
    """

    non_causal = True  # see `heedful.nn.declarations`

    def __init__(self, left_to_right: Recurrence, right_to_left: Recurrence) -> None:
        super().__init__()
        if left_to_right.reverse or not right_to_left.reverse:
            raise ValueError("left_to_right must have reverse=False and right_to_left reverse=True")
        self.left_to_right, self.right_to_left = left_to_right, right_to_left
        self.d_in, self.d_out = left_to_right.d_in, left_to_right.d_out + right_to_left.d_out
        self.n_states = left_to_right.n_states + right_to_left.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """Return the right-to-left output at the first token, as in Bahdanau et al. 2015 (A.2.2)."""
        return self.right_to_left.output(state[self.left_to_right.n_states :])

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Return the outputs of all tokens, and both final states."""
        if state is not None:
            raise ValueError("a bidirectional recurrence cannot continue a sequence")
        forward, forward_state = self.left_to_right.run(x, layout)
        backward, backward_state = self.right_to_left.run(x, layout)
        return torch.cat([forward, backward], dim=-1), forward_state + backward_state


class ResidualRecurrence(RecurrentLayer):
    """``x + layer(x)`` for a layer that keeps the width (Wu et al. 2016, section 3.1)."""

    def __init__(self, layer: RecurrentLayer) -> None:
        super().__init__()
        if layer.d_in != layer.d_out:
            raise ValueError(
                f"d_in and d_out of a residual layer must be equal, got {layer.d_in} and {layer.d_out}"
            )
        self.layer = layer
        self.d_in, self.d_out, self.n_states = layer.d_in, layer.d_out, layer.n_states

    def output(self, state: States) -> Float[Tensor, "B d_hidden"]:
        """Return the output of the layer, without the residual."""
        return self.layer.output(state)

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout, state: States | None = None
    ) -> tuple[Float[Tensor, "T d_out"], States]:
        """Return the outputs plus the inputs, and the final state."""
        outputs, final = self.layer.run(x, layout, state)
        return x + outputs, final


class RecurrentStack(nn.Module):
    """Stack of layers, with dropout between them (Zaremba et al. 2014)."""

    def __init__(self, layers: Sequence[RecurrentLayer], dropout: float = 0.0) -> None:
        super().__init__()
        if not layers:
            raise ValueError("a stack needs at least one layer")
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    @property
    def d_out(self) -> int:
        """Width of the output."""
        return self._layers[-1].d_out

    @property
    def n_states(self) -> list[int]:
        """Number of states of each layer."""
        return [layer.n_states for layer in self._layers]

    def summary(self, finals: Sequence[States]) -> Float[Tensor, "B d_hidden"]:
        """Return the final output of the last layer from the final states returned by ``run``."""
        return self._layers[-1].output(finals[-1])

    @property
    def _layers(self) -> list[RecurrentLayer]:
        return cast(list[RecurrentLayer], list(self.layers))

    def run(
        self, x: Float[Tensor, "T d_in"], layout: Layout
    ) -> tuple[Float[Tensor, "T d_out"], list[States]]:
        """Return the outputs of the last layer, and the final states of every layer."""
        finals = []
        for i, layer in enumerate(self._layers):
            x, final = layer.run(self.dropout(x) if i else x, layout)
            finals.append(final)
        return x, finals

    def forward(
        self, x: Float[Tensor, "T d_in"], layout: Layout, caches: Sequence[RecurrentCache] | None = None
    ) -> Float[Tensor, "T d_out"]:
        """Return the outputs of the last layer; with one cache per layer, continue the sequences."""
        for i, layer in enumerate(self._layers):
            x = layer(self.dropout(x) if i else x, layout, None if caches is None else caches[i])
        return x

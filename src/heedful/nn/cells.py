"""Recurrent cells: one step of a recurrence.

All steps share the same weights (S3: fewer parameters, and one set for all of history). A cell has two
parts, so that everything that does not depend on the past is one product over all tokens:

    projected = cell.project(x)                 # [T, d_x] -> [T, d_projected], all steps at once
    state = cell(projected[step], state)        # one step; a state is a tuple of [N, d_hidden]
    h = cell.output(state)                      # [N, d_hidden]

| lectures | here |
|---|---|
| W_hx, W_xh | ``input.weight`` |
| W_hh | ``recurrent.weight`` |
| b_h | ``input.bias`` |

There is one bias vector per gate, as in the papers. torch's layers have two (one per product), of which
only the sum matters: ``input.bias = bias_ih + bias_hh``, ``input.weight = weight_ih``,
``recurrent.weight = weight_hh``.

Gradients through time are products of the Jacobians dh_t/dh_{t-1}: they vanish or explode with their
singular values (Pascanu et al. 2013). The recurrent matrix of each gate is therefore initialised orthogonal;
input matrices are initialised Xavier-uniform, biases to zero. Clipping only prevents exploding gradients.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heedful.nn.dropout import Dropout

CellState = tuple[Float[Tensor, "N d_hidden"], ...]


def _init_gates(weight: Tensor, n_gates: int, *, orthogonal: bool) -> None:
    """Initialise each gate of a fused matrix as a separate matrix."""
    for part in weight.data.chunk(n_gates):
        if orthogonal:
            nn.init.orthogonal_(part)
        else:
            nn.init.xavier_uniform_(part)


class Cell(nn.Module):
    """Base class of cells; subclasses define ``forward``.

    Args:
        d_in: width of x_t, d_x.
        d_hidden: width of h_t, d_h.
        n_gates: pre-activations per hidden unit; ``d_projected = n_gates * d_hidden``.
    """

    n_states = 1

    def __init__(self, d_in: int, d_hidden: int, n_gates: int) -> None:
        super().__init__()
        self.d_in, self.d_hidden, self.d_projected = d_in, d_hidden, n_gates * d_hidden
        self.d_gate = d_hidden
        self.input = nn.Linear(d_in, self.d_projected)
        _init_gates(self.input.weight, n_gates, orthogonal=False)
        nn.init.zeros_(self.input.bias)

    def project(self, x: Float[Tensor, "*T d_in"]) -> Float[Tensor, "*T d_projected"]:
        """Compute ``W_x x + b``, which does not depend on the past."""
        return self.input(x)

    def initial(self, n: int, like: Tensor) -> CellState:
        """Return zero states for ``n`` sequences, with the dtype and device of ``like``."""
        return tuple(like.new_zeros(n, self.d_hidden) for _ in range(self.n_states))

    def output(self, state: CellState) -> Float[Tensor, "N d_hidden"]:
        """Return h_t, the part of the state that other layers read."""
        return state[0]

    def _recurrent(self, n_gates: int) -> nn.Linear:
        linear = nn.Linear(self.d_hidden, n_gates * self.d_hidden, bias=False)
        _init_gates(linear.weight, n_gates, orthogonal=True)
        return linear


def _plus(projected: Tensor, hidden: Tensor, linear: nn.Linear) -> Tensor:
    """Compute ``projected + W hidden`` in one call."""
    return torch.addmm(projected, hidden, linear.weight.t())


class ElmanCell(Cell):
    """``h_t = tanh(W_hh h_{t-1} + W_hx x_t + b)`` (Elman 1990).

    Parameters: d_h^2 + d_h d_x + d_h.
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, 1)
        self.recurrent = self._recurrent(1)

    def forward(self, projected: Float[Tensor, "N d_projected"], state: CellState) -> CellState:
        """Run one step."""
        return (torch.tanh(_plus(projected, state[0], self.recurrent)),)


class LSTMCell(Cell):
    """The LSTM (Hochreiter and Schmidhuber 1997), with a forget gate (Gers et al. 2000) or without.

        i, f, o = sigmoid(W_{i,f,o} x_t + U_{i,f,o} h_{t-1} + b_{i,f,o})
        g = tanh(W_g x_t + U_g h_{t-1} + b_g)
        c_t = f * c_{t-1} + i * g,    h_t = o * tanh(c_t)

    Gates are stored in the order i, f, g, o (torch's); the state is (h, c). Without a forget gate, f is 1.
    Parameters: 4 (d_h^2 + d_h d_x + d_h), or 3 (d_h^2 + d_h d_x + d_h) without a forget gate.

    Errors in the lectures. S4 calls the forget gate the key addition of the LSTM: the cell of 1997 had none
    (c_t = c_{t-1} + i * g, the constant error carousel); Gers et al. added it in 2000. S4 also says that
    LSTMs brought catastrophic forgetting. In continual learning that term means losing an old task while
    learning a new one; S4 means the loss of distant context.

    Args:
        d_in: width of x_t.
        d_hidden: width of h_t and c_t.
        forget_gate: whether it has a forget gate.
        forget_bias: initial value of b_f; 1 keeps the gates open, so that gradients do not vanish early in
            training (Gers et al. 2000; Jozefowicz et al. 2015).
    """

    n_states = 2

    def __init__(
        self, d_in: int, d_hidden: int, *, forget_gate: bool = True, forget_bias: float = 1.0
    ) -> None:
        n_gates = 4 if forget_gate else 3
        super().__init__(d_in, d_hidden, n_gates)
        self.n_gates, self.recurrent = n_gates, self._recurrent(n_gates)
        if forget_gate:
            self.input.bias.data[d_hidden : 2 * d_hidden] = forget_bias

    def forward(self, projected: Float[Tensor, "N d_projected"], state: CellState) -> CellState:
        """Run one step."""
        hidden, memory = state
        i, *f, g, o = _plus(projected, hidden, self.recurrent).chunk(self.n_gates, dim=-1)
        kept = torch.sigmoid(f[0]) * memory if f else memory
        memory = kept + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory


class GRUCell(Cell):
    """The gated recurrent unit of Cho et al. 2014 (equations 5 to 8), used by Bahdanau et al. 2015.

        r, z = sigmoid(W_{r,z} x_t + U_{r,z} h_{t-1} + b_{r,z})
        n = tanh(W_n x_t + U_n (r * h_{t-1}) + b_n)
        h_t = z * h_{t-1} + (1 - z) * n

    The reset gate is applied before the product with U_n; `ResetAfterGRUCell` applies it after. As in Cho's
    paper and torch, z is the weight of the old state. Bahdanau et al. (appendix A.1.1) write 1 - z for it,
    the same cell with the signs of W_z, U_z and b_z reversed. Gates are stored in the order r, z, n.
    Parameters: 3 (d_h^2 + d_h d_x + d_h).
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, 3)
        self.recurrent = self._recurrent(2)
        self.candidate = self._recurrent(1)

    def forward(self, projected: Float[Tensor, "N d_projected"], state: CellState) -> CellState:
        """Run one step."""
        (hidden,) = state
        gates, x_n = projected.split([2 * self.d_hidden, self.d_hidden], dim=-1)
        r, z = torch.sigmoid(_plus(gates, hidden, self.recurrent)).chunk(2, dim=-1)
        n = torch.tanh(_plus(x_n, r * hidden, self.candidate))
        return (n + z * (hidden - n),)


class ResetAfterGRUCell(Cell):
    """The GRU of cuDNN and torch: the reset gate is applied after the recurrent product.

        n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + b_u)),   the rest as in `GRUCell`

    All recurrent products are computed as one, which is why libraries prefer it. b_u is a separate parameter,
    because r multiplies it: the mapping from torch is ``input.bias = bias_ih + (bias_hh with its last third
    zeroed)`` and ``candidate_bias`` = that last third.
    Parameters: 3 (d_h^2 + d_h d_x + d_h) + d_h.
    """

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__(d_in, d_hidden, 3)
        self.recurrent = self._recurrent(3)
        self.candidate_bias = nn.Parameter(torch.zeros(d_hidden))

    def forward(self, projected: Float[Tensor, "N d_projected"], state: CellState) -> CellState:
        """Run one step."""
        (hidden,) = state
        sizes = [2 * self.d_hidden, self.d_hidden]
        gates, x_n = projected.split(sizes, dim=-1)
        recurrent_gates, h_n = self.recurrent(hidden).split(sizes, dim=-1)
        r, z = torch.sigmoid(gates + recurrent_gates).chunk(2, dim=-1)
        n = torch.tanh(x_n + r * (h_n + self.candidate_bias))
        return (n + z * (hidden - n),)


class StackedCell(nn.Module):
    """Several cells as one deep cell: the output of each is the input of the next at the same step.

    It can replace a single cell. Its state consists of the states of all layers, first layer first; its
    output is that of the last layer. Dropout is applied between layers (Zaremba et al. 2014), not between
    time steps.
    """

    def __init__(self, cells: Sequence[Cell], dropout: float = 0.0) -> None:
        super().__init__()
        if not cells:
            raise ValueError("a stack needs at least one cell")
        self.cells = nn.ModuleList(cells)
        self.dropout = Dropout(dropout)
        self.d_in, self.d_projected, self.d_gate = cells[0].d_in, cells[0].d_projected, cells[0].d_gate
        self.d_hidden = cells[-1].d_hidden
        self.n_states = sum(cell.n_states for cell in cells)

    def project(self, x: Float[Tensor, "*T d_in"]) -> Float[Tensor, "*T d_projected"]:
        """Project the input of the first cell."""
        return self._cell(0).project(x)

    def initial(self, n: int, like: Tensor) -> tuple[Tensor, ...]:
        """Return zero states for every layer."""
        return tuple(s for i in range(len(self.cells)) for s in self._cell(i).initial(n, like))

    def output(self, state: tuple[Tensor, ...]) -> Float[Tensor, "N d_hidden"]:
        """Return h_t of the last layer."""
        last_cell = self._cell(len(self.cells) - 1)
        return last_cell.output(state[-last_cell.n_states :])

    def forward(
        self, projected: Float[Tensor, "N d_projected"], state: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Run one step of every layer."""
        new_state: tuple[Tensor, ...] = ()
        for i in range(len(self.cells)):
            cell = self._cell(i)
            cell_state = cell(projected, state[len(new_state) : len(new_state) + cell.n_states])
            new_state += cell_state
            if i + 1 < len(self.cells):
                projected = self._cell(i + 1).project(self.dropout(cell.output(cell_state)))
        return new_state

    def _cell(self, i: int) -> Cell:
        cell = self.cells[i]
        assert isinstance(cell, Cell)
        return cell


AnyCell = Cell | StackedCell

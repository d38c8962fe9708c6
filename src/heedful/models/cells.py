"""Recurrent cells: the section ``cell``, and its table."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from heedful.config import CustomSection, Section, by_kind
from heedful.nn.cells import Cell, ElmanCell, GRUCell, LSTMCell, ResetAfterGRUCell


class CellSection(Section):
    """Base class of cells."""

    def build(self, d_in: int, d_hidden: int) -> Cell:
        """Build the cell for inputs of width ``d_in`` and states of width ``d_hidden``."""
        raise NotImplementedError


class LSTMConfig(CellSection):
    """LSTM (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    Args:
        forget_gate: whether it has a forget gate; the LSTM of 1997 has none.
        forget_bias: initial bias of the forget gate; null: 1, with which it is open at first.
    """

    kind: Literal["lstm"] = "lstm"
    forget_gate: bool = True
    forget_bias: float | None = None

    @model_validator(mode="after")
    def _has_a_gate(self) -> "LSTMConfig":
        if not self.forget_gate and self.forget_bias is not None:
            raise ValueError("forget_bias requires forget_gate=true; remove it")
        return self

    def build(self, d_in: int, d_hidden: int) -> LSTMCell:
        """Build the cell."""
        bias = 1.0 if self.forget_bias is None else self.forget_bias
        return LSTMCell(d_in, d_hidden, forget_gate=self.forget_gate, forget_bias=bias)


class GRUConfig(CellSection):
    """Gated recurrent unit (Cho et al. 2014).

    Args:
        reset: whether the reset gate multiplies the state before the recurrent product, as in the paper, or
            the product after it, as in cuDNN and torch.
    """

    kind: Literal["gru"] = "gru"
    reset: Literal["before", "after"] = "before"

    def build(self, d_in: int, d_hidden: int) -> Cell:
        """Build the cell."""
        return (GRUCell if self.reset == "before" else ResetAfterGRUCell)(d_in, d_hidden)


class RNNConfig(CellSection):
    """Simple recurrent network with tanh (Elman 1990)."""

    kind: Literal["rnn"] = "rnn"

    def build(self, d_in: int, d_hidden: int) -> ElmanCell:
        """Build the cell."""
        return ElmanCell(d_in, d_hidden)


class CustomCell(CellSection, CustomSection):
    """A custom cell: a subclass of `heedful.nn.cells.Cell`."""

    sizes: ClassVar[tuple[str, ...]] = ("d_in", "d_hidden")
    contract: ClassVar[type] = Cell

    def build(self, d_in: int, d_hidden: int) -> Cell:
        """Build the cell."""
        cell: Cell = self.instance(d_in=d_in, d_hidden=d_hidden)
        return cell


CELLS: tuple[type[CellSection], ...] = (LSTMConfig, GRUConfig, RNNConfig)
"""Recurrent cells; a cell added here is available in every recurrent model and mixer."""

if TYPE_CHECKING:
    CellConfig = CellSection
else:
    CellConfig = by_kind(*CELLS, custom=CustomCell)

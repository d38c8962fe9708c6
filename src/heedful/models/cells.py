"""Recurrent cells by their words in recipes: one line here offers a cell to every family that recurs."""

from collections.abc import Callable
from typing import Literal

from heedful.nn.cells import Cell, ElmanCell, GRUCell, LSTMCell

CellName = Literal["rnn", "lstm", "gru"]
"""A key of `CELLS`."""

CELLS: dict[str, Callable[[int, int], Cell]] = {"rnn": ElmanCell, "lstm": LSTMCell, "gru": GRUCell}
"""Each cell of widths d_in and d_hidden."""

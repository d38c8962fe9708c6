"""Registry of recurrent cells by their names in recipes, shared by all recurrent model families."""

from collections.abc import Callable
from typing import Literal

from heedful.nn.cells import Cell, ElmanCell, GRUCell, LSTMCell

CellName = Literal["rnn", "lstm", "gru"]
"""A key of `CELLS`."""

CELLS: dict[str, Callable[[int, int], Cell]] = {"rnn": ElmanCell, "lstm": LSTMCell, "gru": GRUCell}
"""Builders of cells with input width d_in and hidden width d_hidden."""

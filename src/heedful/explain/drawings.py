"""What a view shows: drawings of five kinds, which the page, the terminal and image files draw.

A view returns drawings as plain values (`heedful.explain.views.ViewModule.drawings`), and knows nothing about
how they are drawn: `heedful.explain.drawing.on_terminal` and `on_figure` draw each kind once, as does the
script of the page (`page/script/further.js`).
"""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from heedful.explain.drawing.matrix import Numbers, marked
from heedful.explain.page.packing import pack_signed
from heedful.tasks.model_input import Axis
from heedful.typing import JsonObject

Medium = Literal["page", "terminal", "image"]
"""Where a drawing can be drawn."""

EVERYWHERE: frozenset[Medium] = frozenset(("page", "terminal", "image"))


@dataclass(frozen=True, eq=False)
class Drawing:
    """A drawing with a title.

    Args:
        title: above the drawing.
        note: below the drawing, in small type.
        media: where it is drawn.
    """

    kind: ClassVar[str]
    title: str
    note: str = field(default="", kw_only=True)
    media: AbstractSet[Medium] = field(default=EVERYWHERE, kw_only=True)

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        return {"title": self.title, "kind": self.kind, **({"note": self.note} if self.note else {})}


class TokenRow(NamedTuple):
    """A token that has a number, its further numbers, and whether it is muted."""

    label: str
    value: float
    others: Sequence[float]
    is_muted: bool


@dataclass(frozen=True, eq=False)
class TokenValues(Drawing):
    """A number for each token of an axis, or for each of other words; None for those without one.

    Args:
        axis: the name of the axis.
        values: the numbers, which may be infinite.
        labels: the words that the numbers belong to, instead of the tokens of the axis.
        name: what the numbers are, in a word.
        others: further numbers of each token, by name; shown in the terminal.
        muted: for each number, whether it matters less: grey in images, in parentheses in the terminal.
        unknown: the indices of the words that the model reads as ``<unk>``.
        unit: what the numbers are measured in, for `share_scales`.
        scale: the number at the end of the colours and bars; None: the largest.
    """

    kind: ClassVar[str] = "tokens"
    axis: str
    values: Sequence[float | None]
    labels: Sequence[str] | None = None
    name: str = field(default="", kw_only=True)
    others: Mapping[str, Sequence[float]] = field(default_factory=dict, kw_only=True)
    muted: Sequence[bool] = field(default=(), kw_only=True)
    unknown: Sequence[int] = field(default=(), kw_only=True)
    unit: str = field(default="", kw_only=True)
    scale: float | None = field(default=None, kw_only=True)

    @property
    def most(self) -> float:
        """The largest magnitude of a finite number, at least 0."""
        finite = (abs(value) for value in self.values if value is not None and math.isfinite(value))
        return max(finite, default=0.0)

    def rows(self, axes: Mapping[str, Axis]) -> list[TokenRow]:
        """Return a row for each token that has a number."""
        labels = axes[self.axis].tokens if self.labels is None else self.labels
        muted = self.muted or [False] * len(self.values)
        rows = enumerate(zip(labels, self.values, muted, strict=True))
        return [
            TokenRow(
                marked(label) if i in self.unknown else label,
                value,
                [numbers[i] for numbers in self.others.values()],
                is_muted,
            )
            for i, (label, value, is_muted) in rows
            if value is not None
        ]

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        values = [None if value is None or not math.isfinite(value) else value for value in self.values]
        labels = {} if self.labels is None else {"labels": [*self.labels]}
        unknown = {"unknown": [*self.unknown]} if self.unknown else {}
        scale = {} if self.scale is None else {"scale": self.scale, "unit": self.unit}
        return {**super().to_dict(), "side": self.axis, "values": values, **labels, **unknown, **scale}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        text: its text.
        share: the darkness of its background, from 0 to 1.
        probability: shown beside the text, and as its background.
        colour: of its background, ``#rrggbb``.
        is_emphasised: whether the text is bold.
        tap: with ``head``, the head that a click opens.
        head: its index, from 0.
    """

    text: str
    share: float | None = None
    probability: float | None = None
    colour: str | None = None
    is_emphasised: bool = False
    tap: str | None = None
    head: int | None = None

    def to_json(self) -> object:
        """Return the form that the page draws, JSON-ready."""
        if self.probability is not None and not self.is_emphasised:
            return [self.text, self.probability]
        keys = ("text", "share", "probability", "colour", "tap", "head")
        cell = {key: value for key in keys if (value := getattr(self, key)) is not None}
        return {**cell, "bold": True} if self.is_emphasised else cell


CellLike: TypeAlias = Cell | str | float | None
"""A cell; a text or number alone, without colour or link; or nothing."""


def cell_text(cell: CellLike) -> str:
    """Return the text of a cell, with its probability; numbers have four decimal places."""
    if isinstance(cell, Cell):
        return cell.text if cell.probability is None else f"{cell.text} {cell.probability:.2f}"
    if cell is None:
        return ""
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


@dataclass(frozen=True, eq=False)
class Table(Drawing):
    """A table of texts and numbers.

    Args:
        columns: names of the columns; the first names the rows.
        rows: the cells of each row.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[CellLike]]

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        rows = [[cell.to_json() if isinstance(cell, Cell) else cell for cell in row] for row in self.rows]
        return {**super().to_dict(), "columns": [*self.columns], "rows": rows}


@dataclass(frozen=True, eq=False)
class PatchPanel:
    """Numbers over an image.

    Args:
        label: what they are.
        values: one for each patch of the image, or for each cell of a grid of its own, ``[rows, columns]``.
        is_of_patches: whether the grid is that of the image's patches.
    """

    label: str
    values: Numbers
    is_of_patches: bool = True

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        grid = {} if self.is_of_patches else {"grid": [*self.values.shape]}
        return {"label": self.label, "values": self.values.ravel().tolist(), **grid}


@dataclass(frozen=True, eq=False)
class PatchValues(Drawing):
    """Numbers over an image, in one or several panels beside it.

    Args:
        axis: the name of the axis, an image.
        panels: the panels, on one scale, or each on its own if ``apart``.
        apart: see there.
        among: for attention, the number of tokens that each row sums over.
    """

    kind: ClassVar[str] = "patches"
    axis: str
    panels: Sequence[PatchPanel]
    apart: bool = False
    among: int | None = None

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        drawing = {**super().to_dict(), "side": self.axis, "images": [p.to_dict() for p in self.panels]}
        apart = {"apart": True} if self.apart else {}
        return {**drawing, **apart, **({} if self.among is None else {"among": self.among})}


@dataclass(frozen=True, eq=False)
class Heat(Drawing):
    """A matrix of numbers from -1 (red) to 1 (blue); NaN is empty.

    Args:
        values: the matrix.
        rows: names of the rows. Each of fewer names than rows is that of an equal part of them.
        columns: names of the columns, likewise.
        power: the colour in images is that of ``value ** power``.
        largest: the number that the value 1 stands for, and -1 with a minus.
        unit: as of `TokenValues`.
        scale: as of `TokenValues`; None: ``largest``.
    """

    kind: ClassVar[str] = "heat"
    values: Numbers
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    power: float = 1.0
    largest: float = 1.0
    unit: str = field(default="", kw_only=True)
    scale: float | None = field(default=None, kw_only=True)

    @property
    def most(self) -> float:
        """The largest magnitude."""
        return self.largest * float(np.nanmax(np.abs(self.values), initial=0.0))

    @property
    def has_named_cells(self) -> bool:
        """Whether each row and each column has a name."""
        return self.values.shape == (len(self.rows), len(self.columns))

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        names = {"rows": [*self.rows], "columns": [*self.columns]} if self.has_named_cells else {}
        largest = {} if self.largest == 1.0 else {"largest": self.largest}
        scale = {} if self.scale is None else {"scale": self.scale, "unit": self.unit}
        return {**super().to_dict(), **pack_signed(self.values), **names, **largest, **scale}


@dataclass(frozen=True, eq=False)
class Picture(Drawing):
    """An image.

    Args:
        png: the image as a PNG.
        text: its description.
        width: in pixels, as it is shown.
    """

    kind: ClassVar[str] = "image"
    png: bytes
    text: str
    width: int

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        image = f"data:image/png;base64,{b64encode(self.png).decode('ascii')}"
        return {**super().to_dict(), "image": image, "text": self.text, "width": self.width}


T = TypeVar("T")

SMALLEST_SCALES = {"log-odds": 1.0, "log-probability": 1.0}
"""The least number at the end of a scale, by unit: an effect far smaller than this decides nothing, and must
not look as if it did. One log-odds is between probabilities of 0.5 and 0.73, for example."""


def share_scales(drawings: Sequence[T]) -> list[T]:
    """Return drawings of which those of one unit have one scale, so that equal numbers look alike.

    What has no numbers with a unit stays as it is.
    """
    ends = dict(SMALLEST_SCALES)
    for drawing in drawings:
        if isinstance(drawing, TokenValues | Heat) and drawing.unit:
            ends[drawing.unit] = max(ends.get(drawing.unit, 0.0), drawing.most)
    return [
        replace(drawing, scale=ends[drawing.unit])
        if isinstance(drawing, TokenValues | Heat) and drawing.unit
        else drawing
        for drawing in drawings
    ]

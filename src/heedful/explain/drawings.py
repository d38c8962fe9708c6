"""What a view shows: drawings of five kinds, which the page, the terminal and image files draw.

A view returns drawings as plain values (`heedful.explain.views.ViewModule.drawings`), and knows nothing about
how they are drawn.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from heedful.explain.drawing.matrix import Numbers
from heedful.explain.page.packing import pack_signed
from heedful.typing import JsonObject


@dataclass(frozen=True, eq=False)
class Drawing:
    """A drawing with a title."""

    kind: ClassVar[str]
    title: str

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        return {"title": self.title, "kind": self.kind}


@dataclass(frozen=True, eq=False)
class TokenValues(Drawing):
    """A number for each token of an axis; None for tokens without one.

    Args:
        axis: the name of the axis.
        values: the numbers.
    """

    kind: ClassVar[str] = "tokens"
    axis: str
    values: Sequence[float | None]

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        return {**super().to_dict(), "side": self.axis, "values": [*self.values]}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Args:
        text: its text.
        share: the darkness of its background, from 0 to 1.
        probability: shown beside the text, and as its background.
        tap: with ``head``, the head that a click opens.
        head: its index, from 0.
    """

    text: str
    share: float | None = None
    probability: float | None = None
    tap: str | None = None
    head: int | None = None

    def to_json(self) -> object:
        """Return the form that the page draws, JSON-ready."""
        if self.probability is not None:
            return [self.text, self.probability]
        keys = ("text", "share", "tap", "head")
        return {key: value for key in keys if (value := getattr(self, key)) is not None}


CellLike: TypeAlias = Cell | str | float | None
"""A cell; a text or number alone, without colour or link; or nothing."""


@dataclass(frozen=True, eq=False)
class Table(Drawing):
    """A table of texts and numbers.

    Args:
        columns: names of the columns.
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
    """A matrix of numbers from -1 (red) to 1 (blue); NaN is empty."""

    kind: ClassVar[str] = "heat"
    values: Numbers

    def to_dict(self) -> JsonObject:
        """Return the form that the page draws, JSON-ready."""
        return {**super().to_dict(), **pack_signed(self.values)}


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

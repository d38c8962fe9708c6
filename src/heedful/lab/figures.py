"""Image files of the gallery: the panels of each outcome, in a version for light and one for dark pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.explain.heat_map import save
from heedful.lab.drawing import ONE_SIGN, TWO_SIGNS, Panel, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Text and card colours of dark pages; keep in step with gallery.css.
INK, CARD = "#e8e6e1", "#1d2024"
# Heat maps on dark pages: zero has the colour of the background, as on light pages.
COLOURS = {
    ONE_SIGN: (CARD, "#2f5f9e", "#cfe3ff"),
    TWO_SIGNS: ("#ffb3ad", "#b5504a", CARD, "#4670b8", "#b5cdff"),
}


@dataclass(frozen=True)
class SavedFigure:
    """An image in the gallery folder: ``NAME.png``, ``NAME.dark.png``, ``NAME.svg``.

    Args:
        name: file name without suffix.
        width, height: size of both PNG files, in pixels.
        first: share of the width taken by the first panel.
    """

    name: str
    width: int
    height: int
    first: float


def make(panels: Sequence[Panel], folder: Path, name: str) -> SavedFigure:
    """Draw one or more panels and write the files.

    Raises:
        WorkError: a file cannot be written.
    """
    figure = draw(*panels)
    for suffix in (".svg", ".png"):
        save(figure, folder / f"{name}{suffix}")
    first = _share_of_first(figure)
    darken(figure)
    save(figure, folder / f"{name}.dark.png")
    return SavedFigure(name, *figure.canvas.get_width_height(), first)


def _share_of_first(figure: "Figure") -> float:
    """Return the left edge of the second panel, labels included, as a share of the width; 1 for one panel."""
    panels = [axes for axes in figure.get_axes() if axes.get_label() != "<colorbar>"]
    if len(panels) < 2:
        return 1.0
    second = panels[1].get_tightbbox()
    assert second is not None
    return second.x0 / figure.bbox.width


def darken(figure: "Figure") -> None:
    """Recolour a figure for dark pages: white becomes `CARD`, black becomes `INK`, greys are interpolated.

    Colours that distinguish curves stay, since they are visible on both backgrounds. Zero in heat maps gets
    the colour `CARD`.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    for axes in figure.get_axes():
        axes.tick_params(which="both", colors=INK)  # those that are made later, too
    for each in figure.findobj():
        if isinstance(each, AxesImage):
            each.set_cmap(LinearSegmentedColormap.from_list("dark", COLOURS[each.get_cmap().name]))
        elif isinstance(each, Text | Line2D):
            each.set_color(_on_dark(each.get_color()))
        elif isinstance(each, Patch):
            each.set_facecolor(_on_dark(each.get_facecolor()))
            each.set_edgecolor(_on_dark(each.get_edgecolor()))


def _on_dark(colour: Any) -> Any:
    """Return the colour for dark pages: greys are mapped to the range from `CARD` to `INK`; others stay."""
    from matplotlib.colors import to_rgb, to_rgba

    *own, opacity = to_rgba(colour)
    if max(own) - min(own) > 0.02:
        return colour
    ink, card = to_rgb(INK), to_rgb(CARD)
    return (*(dark + own[0] * (light - dark) for dark, light in zip(ink, card, strict=True)), opacity)

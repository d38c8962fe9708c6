"""What every picture begins with: a white figure, fonts that have its signs, titles that fit, quiet axes."""

import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font

from heedful.explain.matrix import printable

DPI = 144
SIGNED = "RdBu"
"""The colours of numbers below zero (red) and above (blue)."""
PAGE = ("#ffffff", "#e3ecf5", "#bcd3e8", "#8cb4d8", "#5990c2", "#2f6ca6", "#144a82", "#072a54")
"""The page's colours of weights on a light ground, from none to the greatest (``--plus`` of its style)."""
MISSING = "#cdd3da"
"""The colour where there is nothing to draw."""
_LIGHT = (0.2126, 0.7152, 0.0722)


def blank(width: float, height: float) -> Figure:
    """A white figure of so many inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def titled(figure: Figure, title: str, note: str) -> None:
    """A title above, a small note below, both as wide as the figure at most."""
    width = figure.get_size_inches()[0]
    if title:
        figure.suptitle(wrapped(title, int(11 * width)), fontsize=11, parse_math=False)
    if note:
        figure.supxlabel(wrapped(note, int(14 * width)), fontsize=9, color="0.35", parse_math=False)


def quiet(axes: Any) -> None:
    """No marks at the labels, and a light frame."""
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color("0.6")


def page_colours() -> Colormap:
    """256 colours, straight lines between those of `PAGE`, as the page makes them."""
    return LinearSegmentedColormap.from_list("heedful", PAGE, N=256, bad=MISSING)


def legible(colour: Sequence[float]) -> str:
    """Black or white, whichever can be read on a colour (red, green, blue from 0 to 1)."""
    return "white" if sum(a * b for a, b in zip(_LIGHT, colour, strict=False)) < 0.5 else "black"


def shortened(text: str, signs: int) -> str:
    """So many signs at most, the last an ellipsis where some are left out; signs that print."""
    shown = printable(text)
    return shown if len(shown) <= signs else f"{shown[: signs - 1]}\N{HORIZONTAL ELLIPSIS}"


def wrapped(text: str, width: int) -> str:
    """Lines of so many signs at most, but never below 30; signs that do not print are replaced."""
    return "\n".join("\n".join(textwrap.wrap(printable(line), max(width, 30))) for line in text.splitlines())


def fonts_of(text: str) -> Any:
    """A context with fonts that have the signs of a text."""
    return matplotlib.rc_context({"font.family": families(text)})


def families(text: str) -> list[str]:
    """The default font, and where it lacks signs of the text, others of this machine that have them."""
    default = fontManager.defaultFamily["ttf"]
    missing = _lacking(default, frozenset(map(ord, text)) - {10})
    families = [default]
    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)) if missing else ():
        if missing - (rest := missing - _signs(entry.fname)):
            families.append(entry.name)
            missing = rest
        if not missing:
            break
    return families


def _lacking(family: str, signs: Iterable[int]) -> frozenset[int]:
    return frozenset(signs) - _signs(fontManager.findfont(family))


@cache
def _signs(path: str) -> frozenset[int]:
    """The signs that a font file has, as code points."""
    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()

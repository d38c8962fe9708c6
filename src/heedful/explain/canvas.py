"""What every image begins with: a white figure, fonts that have its signs, titles that fit, quiet axes."""

import textwrap
import unicodedata
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, findSystemFonts, fontManager, get_font
from matplotlib.text import Text

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


def finished(figure: Figure) -> Figure:
    """Give every text of the figure fonts that have its characters; nothing outside the figure changes.

    Warns of scripts for which this machine has no font, and which are drawn as boxes.
    """
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    names = families("".join(text.get_text() for text in texts))
    for text in texts:
        text.set_fontfamily(names)
        text.set_usetex(False)
    return figure


def families(text: str) -> list[str]:
    """Return the default font, and if it lacks characters of the text, others of this machine that have them.

    Warns if none has some of them.
    """
    default = fontManager.defaultFamily["ttf"]
    missing = frozenset(map(ord, text)) - {10} - _characters(fontManager.findfont(default))
    names = [default]
    for fonts in (_known_fonts, _new_fonts):
        while missing and (best := max(fonts(), key=lambda font: _rank(font, missing), default=None)):
            if not missing & _characters(best.fname):
                break
            names.append(best.name)
            missing -= _characters(best.fname)
    if scripts := sorted({_script(chr(character)) for character in missing} - {""}):
        warnings.warn(_no_font(scripts), stacklevel=2)
    return names


def _known_fonts() -> list[FontEntry]:
    """Fonts that matplotlib knows, without its own that has a box for every character."""
    return [font for font in fontManager.ttflist if not font.name.lower().startswith(("last", ".last"))]


@cache
def _new_fonts() -> list[FontEntry]:
    """Fonts that were installed after matplotlib made its list."""
    known = {font.fname for font in fontManager.ttflist}
    for path in sorted({*findSystemFonts()} - known):
        with suppress(OSError, RuntimeError):  # no font that it can read
            fontManager.addfont(path)
    return [font for font in _known_fonts() if font.fname not in known]


def _rank(font: FontEntry, missing: frozenset[int]) -> tuple[int, bool, bool, str, str]:
    """How well a font serves: most characters first, then plain and regular ones."""
    regular = font.style == "normal" and font.weight in (400, "normal", "regular")
    return len(missing & _characters(font.fname)), "Sans" in font.name, regular, font.name, font.fname


def _script(character: str) -> str:
    """The script of a letter, mark or digit (first word of its Unicode name), or `_SYMBOLS`, or nothing."""
    kind = unicodedata.category(character)[0]
    if kind not in "LMN":
        return _SYMBOLS if kind == "S" else ""
    return unicodedata.name(character, "").split(" ")[0].title().replace("Cjk", "CJK")


def _no_font(scripts: Sequence[str]) -> str:
    packages = [
        "fonts-noto-cjk" if {*scripts} & _EAST_ASIAN else "",
        "fonts-noto-core" if {*scripts} - _EAST_ASIAN - {_SYMBOLS} else "",
        "fonts-symbola" if _SYMBOLS in scripts else "",
    ]
    return (
        f"no font of this machine has characters of: {', '.join(scripts)}; they are drawn as boxes. Install "
        f"fonts that have them (Debian, Ubuntu: {' '.join(filter(None, packages))})"
    )


_SYMBOLS = "emoji and symbols"
_EAST_ASIAN = {"CJK", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Ideographic"}


@cache
def _characters(path: str) -> frozenset[int]:
    """The characters that a font file has, as code points."""
    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()

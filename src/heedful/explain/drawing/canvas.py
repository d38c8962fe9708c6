"""Basics of all figures: size, colours, labels, titles, and fonts for all characters."""

import textwrap
import unicodedata
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties, findSystemFonts, fontManager, get_font
from matplotlib.image import imread
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.textpath import TextToPath
from rich.cells import cell_len

from heedful.errors import RequestError
from heedful.explain.drawing.matrix import printable

DPI = 144
ROW_HEIGHT = 0.24
"""Inches per row of a drawing with one row per token."""
MAX_CELLS = 120
"""Maximum rows or columns of a readable figure."""
SIGNED = "RdBu"
"""Colour map of negative (red) and positive (blue) values."""
PAGE_COLOURS = ("#ffffff", "#e3ecf5", "#bcd3e8", "#8cb4d8", "#5990c2", "#2f6ca6", "#144a82", "#072a54")
"""Colours of weights and probabilities, from zero to the largest, as on the page (``--plus`` in its CSS)."""
MISSING = "#cdd3da"
"""Colour of missing values."""
UNIFORM_COLOUR = "#c2410c"
"""Colour of the line at uniform attention, as on the page."""
_LIGHT = (0.2126, 0.7152, 0.0722)


def check_size(rows: int, columns: int) -> None:
    """Check that a heat map is readable.

    Raises:
        RequestError: it has more than `MAX_CELLS` rows or columns.
    """
    if max(rows, columns) > MAX_CELLS:
        raise RequestError(
            f"an image must have at most {MAX_CELLS} rows and columns, got {rows} x {columns}; write .html "
            "or .json, or shorten the input"
        )


def check_rows(n: int) -> None:
    """Check that a drawing with one row per token is readable.

    Raises:
        RequestError: there are more than `MAX_CELLS` tokens.
    """
    if n > MAX_CELLS:
        raise RequestError(
            f"an image must show at most {MAX_CELLS} tokens, got {n}; write .html or .json, or shorten the "
            "input"
        )


def new_figure(width: float, height: float) -> Figure:
    """Return a white figure of a size in inches."""
    layout = ConstrainedLayoutEngine(h_pad=0.06)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def style_frame(axes: Axes) -> None:
    """Remove tick marks, and draw the frame in light grey."""
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_color("0.6")


def set_title_without_ticks(axes: Axes, title: str) -> None:
    """Set a title, and remove ticks and their labels."""
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.set_xticks([])
    axes.set_yticks([])
    style_frame(axes)


def draw_photo(axes: Axes, image: bytes, rows: int, columns: int) -> None:
    """Draw a PNG at the size of a grid of patches."""
    pixels = imread(BytesIO(image), format="png")
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=1, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5))
    set_title_without_ticks(axes, "the image")


def label_rows(axes: Axes, tokens: Sequence[str]) -> None:
    """Label rows with tokens."""
    axes.set_yticks(range(len(tokens)), [printable(token) for token in tokens], fontsize=9)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="x", labelsize=8)
    style_frame(axes)


def label_cells(
    axes: Axes, shape: tuple[int, ...], columns: Sequence[str], rows: Sequence[str], *, is_slanted: bool
) -> None:
    """Label rows and columns of a matrix, those of columns above.

    Each of fewer labels than rows, or columns, is in the middle of an equal part of them.
    """
    down, across = (
        [(i + 0.5) * n / len(names) - 0.5 for i in range(len(names))]
        for n, names in zip(shape, (rows, columns), strict=True)
    )
    axes.xaxis.tick_top()
    axes.set_xticks(across, columns)
    if is_slanted:
        for text in axes.get_xticklabels():
            text.set(rotation=45, horizontalalignment="left", rotation_mode="anchor")
    axes.set_yticks(down, rows)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        text.set_parse_math(False)
        text.set_fontsize(11)
    style_frame(axes)


@cache
def colours() -> Colormap:
    """Return the colour map of weights, from 0 to 1: 256 colours, interpolated between `PAGE_COLOURS`."""
    return LinearSegmentedColormap.from_list("heedful", PAGE_COLOURS, N=256, bad=MISSING)


def text_colour(colour: Sequence[float]) -> str:
    """Return black or white, whichever is readable on a colour (RGB from 0 to 1)."""
    return "white" if sum(a * b for a, b in zip(_LIGHT, colour, strict=False)) < 0.5 else "black"


def text_width(text: str, size: float) -> float:
    """Return the width in inches of a text of a size in points; estimated if the default font lacks it."""
    known = _font_characters(fontManager.findfont(fontManager.defaultFamily["ttf"]))
    own = "".join(character for character in text if ord(character) in known)
    points, _, _ = TextToPath().get_text_width_height_descent(own, FontProperties(size=size), ismath=False)
    others = "".join(character for character in text if ord(character) not in known)
    return float(points + 0.6 * size * cell_len(others)) / 72


def shorten(text: str, limit: int) -> str:
    """Truncate a text to a number of characters, with an ellipsis; unprintable characters are replaced."""
    printed = printable(text)
    return printed if len(printed) <= limit else f"{printed[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def wrap_lines(text: str, width: int) -> str:
    """Wrap lines to a width of at least 30 characters; unprintable characters are replaced."""
    return "\n".join("\n".join(textwrap.wrap(printable(line), max(width, 30))) for line in text.splitlines())


def finish_figure(figure: Figure, title: str = "", note: str = "") -> Figure:
    """Add a title above and a small note below, and set fonts that have all characters of the figure.

    Long lines are wrapped to the width of the figure. No global settings are changed. Warns about scripts
    without a font on this machine; their characters are drawn as boxes.
    """
    width = figure.get_size_inches()[0]
    if title:
        figure.suptitle(wrap_lines(title, int(11 * width)), fontsize=11, parse_math=False)
    if note:
        figure.supxlabel(wrap_lines(note, int(14 * width)), fontsize=9, color="0.35", parse_math=False)
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    names = font_families("".join(text.get_text() for text in texts))
    for text in texts:
        text.set_fontfamily(names)
        text.set_usetex(False)
    return figure


def font_families(text: str) -> list[str]:
    """Return the default font and, if it lacks characters of the text, other installed fonts that have them.

    Warns about characters that no font has.
    """
    default = fontManager.defaultFamily["ttf"]
    missing = frozenset(map(ord, text)) - {10} - _font_characters(fontManager.findfont(default))
    names = [default]
    for fonts in (_known_fonts, _new_fonts):
        while missing and (best := max(fonts(), key=lambda font: _font_rank(font, missing), default=None)):
            if not missing & _font_characters(best.fname):
                break
            names.append(best.name)
            missing -= _font_characters(best.fname)
    if scripts := sorted({_script(chr(character)) for character in missing} - {""}):
        warnings.warn(_no_font_message(scripts), stacklevel=2)
    return names


def _known_fonts() -> list[FontEntry]:
    """Return the fonts that matplotlib knows, without its fallback font of boxes."""
    return [font for font in fontManager.ttflist if not font.name.lower().startswith(("last", ".last"))]


@cache
def _new_fonts() -> list[FontEntry]:
    """Return the fonts that were installed after matplotlib made its list."""
    known_paths = {font.fname for font in fontManager.ttflist}
    for path in sorted({*findSystemFonts()} - known_paths):
        with suppress(OSError, RuntimeError):  # not a font that matplotlib can read
            fontManager.addfont(path)
    return [font for font in _known_fonts() if font.fname not in known_paths]


def _font_rank(font: FontEntry, missing: frozenset[int]) -> tuple[int, bool, bool, str, str]:
    """Return a sort key of a font: number of missing characters it has, then sans-serif and regular fonts."""
    regular = font.style == "normal" and font.weight in (400, "normal", "regular")
    return len(missing & _font_characters(font.fname)), "Sans" in font.name, regular, font.name, font.fname


def _script(character: str) -> str:
    """Return the script of a letter, mark or digit, `_SYMBOLS` for symbols, or an empty text.

    The script is the first word of the Unicode name.
    """
    category = unicodedata.category(character)[0]
    if category not in "LMN":
        return _SYMBOLS if category == "S" else ""
    return unicodedata.name(character, "").split(" ")[0].title().replace("Cjk", "CJK")


def _no_font_message(scripts: Sequence[str]) -> str:
    packages = [
        "fonts-noto-cjk" if {*scripts} & _EAST_ASIAN else "",
        "fonts-noto-core" if {*scripts} - _EAST_ASIAN - {_SYMBOLS} else "",
        "fonts-symbola" if _SYMBOLS in scripts else "",
    ]
    return (
        f"no installed font has characters of: {', '.join(scripts)}; they are drawn as boxes; install "
        f"fonts that have them (Debian, Ubuntu: {' '.join(filter(None, packages))})"
    )


_SYMBOLS = "emoji and symbols"
_EAST_ASIAN = {"CJK", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Ideographic"}


@cache
def _font_characters(path: str) -> frozenset[int]:
    """Return the code points of the characters in a font file."""
    try:
        return frozenset(get_font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()

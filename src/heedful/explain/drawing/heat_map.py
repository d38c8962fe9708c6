"""Draw explanations, attention as heat maps of words or over an image, and write figures as PNG or SVG.

Between words, rows are target words and columns are source words, as in Bahdanau et al. 2015, figure 3; each
row sums to 1. The figure in the paper is white on black; here large weights are dark on white.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from heedful.errors import RequestError
from heedful.explain.drawing import on_figure
from heedful.explain.drawing.canvas import check_size, shorten
from heedful.explain.drawing.matrix import check_weights
from heedful.explain.drawings import Drawing, Heat, PatchPanel, PatchValues, share_scales
from heedful.explain.summary import facts_of, patch_attention, summary_matrix
from heedful.explain.views import VIEWS, check_image, view_module
from heedful.files import write_bytes

if TYPE_CHECKING:
    from heedful.explain.explanation import Explanation

SUFFIXES = (".png", ".svg")
LONGEST_INPUT = 300
"""Maximum characters of the input below a figure."""
# Without a fixed salt, ids in SVG files are random, and equal figures give different files.
SETTINGS: Any = {"svg.hashsalt": "heedful", "svg.fonttype": "path"}


def heat_map(
    source: Sequence[str], target: Sequence[str], weights: ArrayLike, *, title: str = "", note: str = ""
) -> Figure:
    """Draw ``weights [target words, source words]`` from 0 (white) to dark blue.

    Args:
        source: a word per column.
        target: a word per row.
        weights: a matrix, or anything that numpy converts to one.
        title: above the map, one paragraph per line; long lines are wrapped.
        note: below the map, in small type.

    Raises:
        ValueError: the shape does not match the words, or a weight is not between 0 and 1.
        RequestError: there are too many words to be readable.
    """
    matrix = check_weights(source, target, weights)
    return on_figure.figure([Heat("", matrix, target, source, note=note)], {}, title=title)


def figure_of(explanation: "Explanation", *, tokens: bool = False) -> Figure:
    """Draw the requested view; without a view, the mean attention or the head with the best known alignment.

    Args:
        explanation: the explanation.
        tokens: draw attention between tokens instead of words.

    Raises:
        RequestError: there are several views, or neither a view nor attention, or the figure would be too
            large to read.
    """
    names = [name for name in explanation.views if name in VIEWS]
    check_image(names)
    drawings: list[Drawing] = [_drawing_of_attention(explanation, tokens)] if not names else []
    for name in names:
        drawings += view_module(name).drawings(explanation, explanation.views[name])
    facts = [f"input: {text}"] if (text := _input_text(explanation)) else []
    note = "\n".join([*facts, facts_of(explanation)])
    return on_figure.figure(share_scales(drawings), explanation.axes, title=explanation.text, note=note)


def _input_text(explanation: "Explanation") -> str:
    """Return the input as one line of at most `LONGEST_INPUT` characters; empty of an image."""
    given = explanation.input
    texts: list[Any] = [*given] if isinstance(given, list | tuple) else [given]
    if any(axis.grid for axis in explanation.axes.values()) or not all(
        isinstance(each, str) for each in texts
    ):
        return ""
    return shorten(" | ".join(" ".join(text.split()) for text in texts), LONGEST_INPUT)


def _drawing_of_attention(explanation: "Explanation", tokens: bool) -> Drawing:
    """Return a heat map of the mean attention; over an image, or a panel for each word that attends to one.

    Raises:
        RequestError: there is no attention, or there are too many words.
    """
    matrix = summary_matrix(explanation)
    matrix = matrix if tokens else matrix.to_words()
    if matrix.keys.grid is None:
        return Heat(matrix.title, matrix.weights, matrix.queries.tokens, matrix.keys.tokens)
    if matrix.queries.grid is not None:
        name = "class token" if matrix.queries.before else "mean of all patches"
        panels = [PatchPanel(name, patch_attention(matrix))]
    else:
        check_size(len(matrix.queries.tokens), 1)
        panels = [
            PatchPanel(word, patch_attention(matrix, i)) for i, word in enumerate(matrix.queries.tokens)
        ]
    name = next(name for name, axis in explanation.axes.items() if axis is matrix.keys)
    return PatchValues(matrix.title, name, panels, among=len(matrix.keys.tokens))


def save(figure: Figure, path: Path | str, *, description: str = "") -> None:
    """Write a figure as PNG or SVG, depending on the suffix. Equal figures give equal bytes.

    Args:
        figure: the figure.
        path: the file.
        description: stored in the metadata of the file.

    Raises:
        RequestError: the suffix is different.
        WorkError: the file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"{path}: the suffix of an image must be {' or '.join(SUFFIXES)}")
    metadata: dict[str, str | None] = {"Date": None} if suffix == ".svg" else {"Software": None}
    if description:
        metadata["Description"] = description
    buffer = BytesIO()
    with _file_settings():
        figure.savefig(buffer, format=suffix[1:], metadata=metadata, facecolor="auto")
    write_bytes(path, buffer.getvalue())


_LOCK = threading.Lock()


@contextmanager
def _file_settings() -> Iterator[None]:
    """Apply `SETTINGS` while matplotlib writes a file.

    These settings are global to all threads, so only one thread writes at a time. Other settings that change
    meanwhile are kept.
    """
    with _LOCK, warnings.catch_warnings():
        # `finish_figure` has warned about characters without a font.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        previous = {name: matplotlib.rcParams[name] for name in SETTINGS}
        matplotlib.rcParams.update(SETTINGS)
        try:
            yield
        finally:
            matplotlib.rcParams.update(previous)

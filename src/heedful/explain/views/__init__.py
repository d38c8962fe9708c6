"""Views of an input besides attention: the one table of them, from which command, schema and page read.

Nothing heavy is imported here. What a view needs is imported when it is asked for: each is a module of this
package by the view's name, with the functions of a `Maker`.

Their values are ready for JSON, and stand in `heedful.explain.view.Explanation.more` under the view's name.
The models are read as they are, without dropout, through the same forward pass that answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from heedful.errors import RequestError, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.explain.reading import ModelInput
    from heedful.explain.view import Explanation
    from heedful.runs.run import Run


@dataclass(frozen=True)
class View:
    """A view.

    Args:
        description: what it shows, for the command's help.
        needs: what a run must have for it, for refusals: "the view lens needs …".
        is_over_inputs: whether several inputs are looked at together.
        by: how a run comes to have what it needs, where a setting decides it.
    """

    description: str
    needs: str
    is_over_inputs: bool = False
    by: str = ""


VIEWS: dict[str, View] = {
    "lens": View(
        "what the run would answer if it ended after each of its blocks",
        "a stack of blocks, and an answer that has a probability",
    ),
    "losses": View(
        "how probable each token is that was written, or given", "an answer that has a probability"
    ),
    "gradients": View(
        "how much the answer hangs on each token, or pixel, that was read",
        "an embedding, or pixels",
    ),
    "rollout": View(
        "how much of each token arrives at each other one through all layers",
        "a stack in which every layer looks at its own tokens",
    ),
    "heads": View("all heads as small images, and how sharply each looks", "attention"),
    "census": View(
        "what each head does, by class (below), of all inputs together",
        "attention between tokens",
        is_over_inputs=True,
    ),
    "distances": View(
        "how far each head looks, layer by layer, of all inputs together",
        "tokens that look at each other",
        is_over_inputs=True,
    ),
    "class-token": View(
        "what the class token of an image looks at, layer by layer",
        "attention in an image with a class token",
        by="train a model of images with model.pooling=first for it, or ",
    ),
    "positions": View("how alike the vectors of positions are", "vectors of positions"),
    "filters": View("what a model of images makes of patches first", "patches of pixels"),
}
"""By name."""

ALL = "all"
"""For the name of a view: all that the run and the input have."""


@runtime_checkable
class Maker(Protocol):
    """The module of a view."""

    def has(self, run: "Run") -> bool:
        """Whether a run has what the view needs."""

    def compute(self, run: "Run", reading: "ModelInput", seen: Sequence["Explanation"]) -> dict[str, Any]:
        """The values, ready for JSON.

        Args:
            run: whose model is looked into.
            reading: of the input.
            seen: the explanation of the input without views; those of further inputs behind it.
        """

    def lines(self, seen: "Explanation", values: Mapping[str, Any]) -> list[str]:
        """What the terminal shows of the values, a line each."""

    def drawings(self, seen: "Explanation", values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What the page draws of them (`heedful.explain.page.further`)."""

    def figure(self, seen: "Explanation", values: Mapping[str, Any]) -> "Figure":
        """The image (SVG, PNG).

        Raises:
            RequestError: there is nothing to draw, or too much to be read.
        """


def check_names(names: Sequence[str]) -> None:
    """Refuse views that are not there.

    Raises:
        RequestError: it names the nearest one.
    """
    for name in names:
        if name not in (*VIEWS, ALL):
            known = f"there are {', '.join(VIEWS)}, and {ALL} of them"
            raise RequestError(f"unknown view {name!r}{nearest(name, [*VIEWS, ALL])}; {known}")


def check_image(names: Sequence[str]) -> None:
    """Refuse several views where an image is to be made.

    Raises:
        RequestError: there are several, or all are asked for.
    """
    if len(several := list(dict.fromkeys(names))) > 1 or ALL in several:
        raise RequestError(
            f"an image is of one view, not of {' and '.join(several)}: take .html, or ask for one of them"
        )


def maker(name: str) -> Maker:
    """The module of a view, with what it imports."""
    return cast(Maker, import_module(f"{__name__}.{name.replace('-', '_')}"))


def views_of(run: "Run") -> list[str]:
    """The names of the views that a run has."""
    return [name for name in VIEWS if maker(name).has(run)]


def refuse_absent(run: "Run", names: Sequence[str]) -> None:
    """Refuse views that a run has not.

    Raises:
        RequestError: it says what the view needs, and which ones the run has.
    """
    for name in names:
        if not maker(name).has(run):
            others = ", ".join(views_of(run)) or "none"
            view = VIEWS[name]
            raise RequestError(
                f"the view {name} needs {view.needs}, which this run has not: {view.by}take another view "
                f"(it has: {others})"
            )

"""Views of an input besides attention maps. `VIEWS` is the only list; command, schema and page use it.

Nothing heavy is imported here. Each view is a module of this package with the functions of `ViewModule`,
which is imported when it is used.

The values of a view are JSON-ready and stored in `Explanation.views` under its name. They
are computed in evaluation mode (without dropout), with the same forward pass as predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from heedful.errors import RequestError, nearest
from heedful.files import IMAGES
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.explain.drawings import Drawing
    from heedful.explain.explanation import Explanation
    from heedful.runs.loading import LoadedRun
    from heedful.tasks.model_input import ModelInput


REPLACEMENT, LEAVING_OUT = "replacement", "leaving out"
"""Ways to remove words from an input."""


@dataclass(frozen=True)
class View:
    """Description of a view.

    Args:
        description: what it shows, for the help of the command.
        requirement: what it requires of a run, for messages: "the view lens needs ...".
        is_over_inputs: whether it uses several inputs together.
        judges: ways to remove words, other than its own, that judge its scores, the best first; empty: it has
            no signed score for each word.
        remedy: how to get a run that meets the requirement, if a setting decides it.
    """

    description: str
    requirement: str
    is_over_inputs: bool = False
    judges: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def has_word_scores(self) -> bool:
        """Whether it has a signed score for each word (`Explanation.word_scores`)."""
        return bool(self.judges)


VIEWS: dict[str, View] = {
    "lens": View(
        "logit lens: the answer read out after each block",
        "a stack of blocks and an answer with a probability",
    ),
    "losses": View(
        "loss and probability of each predicted or given token", "an answer that has a probability"
    ),
    "occlusion": View(
        "fall of log-odds (of written words: log-probability) if a word or patch is left out",
        "words or patches",
        judges=(REPLACEMENT,),
    ),
    "replacement": View(
        "the same if a word or patch is replaced by those of the training data",
        "words or patches",
        judges=(LEAVING_OUT,),
    ),
    "integrated-gradients": View(
        "gradient of the answer along a path from a baseline, by word",
        "an embedding, or pixels",
        judges=(REPLACEMENT, LEAVING_OUT),
    ),
    "gradients": View(
        "gradient x input of the answer, for each input token or pixel", "an embedding, or pixels"
    ),
    "patching": View(
        "activation patching: what carries the difference of two inputs",
        "a stack of blocks that reads the input",
        is_over_inputs=True,
    ),
    "residual": View("norm of the residual stream of each token, by depth", "a stack of blocks"),
    "rollout": View(
        "attention rollout: shares of input tokens in output tokens",
        "a stack with self-attention in every layer",
    ),
    "heads": View("thumbnails of all heads, and how sharp each head is", "attention"),
    "census": View(
        "class of each head (below), over all inputs", "attention between tokens", is_over_inputs=True
    ),
    "distances": View(
        "mean attention distance of each head, over all inputs", "self-attention", is_over_inputs=True
    ),
    "class-token": View(
        "attention of the class token of an image, by layer",
        "an image model with attention and a class token",
        remedy="train an image model with model.pooling=first, or ",
    ),
    "mask": View("pixels of each class in the predicted mask of an image", "masks as predictions"),
    "positions": View("cosine similarity of position vectors", "position vectors"),
    "filters": View("principal components of the patch projection", "image patches"),
}
"""All views by name."""

OVER_INPUTS = [name for name, view in VIEWS.items() if view.is_over_inputs]
"""Names of the views over several inputs."""

PAGE = ".html"
SUFFIXES = (PAGE, *IMAGES, ".json")
"""Suffixes of the files that an explanation can be saved to."""

ALL = "all"
"""In place of the name of a view: all views that the run and the input support."""


@runtime_checkable
class ViewModule(Protocol):
    """Interface of the module of a view."""

    def supports(self, run: "LoadedRun") -> bool:
        """Whether a run meets the requirement of the view."""

    def compute(
        self, run: "LoadedRun", prepared: "ModelInput", explanations: Sequence["Explanation"]
    ) -> JsonObject:
        """Return the values of the view, JSON-ready.

        Args:
            run: the run.
            prepared: the input in the form the model reads.
            explanations: the explanation of the input without views, followed by those of further inputs.
        """

    def drawings(self, explanation: "Explanation", values: JsonMapping) -> list["Drawing"]:
        """Return what is drawn of the values, on the page, in the terminal, and in image files."""


def check_names(names: Sequence[str]) -> None:
    """Check that all views exist.

    Raises:
        RequestError: a view does not exist; the message suggests the nearest name.
    """
    for name in names:
        if name not in (*VIEWS, ALL):
            expected = f"expected one of {', '.join(VIEWS)}, {ALL}"
            raise RequestError(f"unknown view {name!r}{nearest(name, [*VIEWS, ALL])}; {expected}")


def check_image(names: Sequence[str]) -> None:
    """Check that an image file shows a single view.

    Raises:
        RequestError: several views, or all views, are requested.
    """
    if len(several := list(dict.fromkeys(names))) > 1 or ALL in several:
        raise RequestError(
            f"an image must show one view, got {' and '.join(several)}; select one of them, or write .html"
        )


def view_module(name: str) -> ViewModule:
    """Import and return the module of a view."""
    return cast(ViewModule, import_module(f"{__name__}.{name.replace('-', '_')}"))


def views_of(run: "LoadedRun") -> list[str]:
    """Return the names of the views that a run supports."""
    return [name for name in VIEWS if view_module(name).supports(run)]


def check_available(run: "LoadedRun", names: Sequence[str], n_inputs: int = 1) -> None:
    """Check that a run supports the views, and one of the views the number of inputs.

    Raises:
        RequestError: it does not; the message reports what the view needs, and which views are supported.
    """
    for name in names:
        if not view_module(name).supports(run):
            available = ", ".join(views_of(run)) or "none"
            view = VIEWS[name]
            raise RequestError(
                f"view {name} needs {view.requirement}, which this run does not have; "
                f"{view.remedy}use another view (available: {available})"
            )
    if n_inputs > 1 and not any(VIEWS[name].is_over_inputs for name in names):
        *names_before, last = OVER_INPUTS
        by_word = next((name for name in names if VIEWS[name].has_word_scores), "integrated-gradients")
        raise RequestError(
            f"only the views {', '.join(names_before)} and {last} support several inputs, got {n_inputs} "
            "inputs; add one of these (--view NAME; in Python, views=[NAME]), or give one input (put a text "
            "with spaces in quotes); for a page of each input: --out FOLDER; for the scores of its words: "
            f"--view {by_word} --out words.csv"
        )

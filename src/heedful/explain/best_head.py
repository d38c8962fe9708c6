"""The head that aligns best, as far as it is known: kept in a run's folder, and shown first.

Two things tell it. Where a run's attention was held against gold alignments (`heedful evaluate --alignments`,
`heedful.explain.error_rates`), the head that was chosen there is kept in ``alignment.json``, with the hash of
the weights that it is a head of: with other weights (the training went on) it counts no more. Until then, one
that fewer pairs chose does not take its place. Else it is the head that was taught alignments
(``objective.guided``). Of other runs no head is known to align better than another: a confident head need not
align, and neither must one that agrees with the others.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.errors import DamagedError, HeedfulError
from heedful.explain.alignment import STEPS, Choice
from heedful.explain.one_text import points_of
from heedful.explain.view import TARGET
from heedful.objectives.guided import DecoderStep
from heedful.runs.folder import RunFolder, read_json, write_json

if TYPE_CHECKING:
    from heedful.runs.run import Run

FILE = "alignment.json"
VERSION = 1


@dataclass(frozen=True)
class Kept:
    """The head that was chosen by gold alignments.

    Args:
        choice: the layer, or head.
        pairs: how many pairs it was chosen by.
    """

    choice: Choice
    pairs: int


def keep(run: "Run", choice: Choice, *, rate: float, pairs: int) -> Kept | None:
    """Keep the head that was chosen by gold alignments in the run's folder, unless more pairs chose another.

    Args:
        run: whose head it is.
        choice: the layer, or head.
        rate: its alignment error rate on the pairs that it was chosen by.
        pairs: how many these are.

    Returns:
        What is kept now: this one, or the one that more pairs of before chose. None: a folder that cannot be
        written, or a run without a card (training has not ended), keeps nothing.
    """
    weights = _weights(run.folder)
    if weights is None:
        return None
    with suppress(DamagedError):  # then it is written anew
        before = _kept(run.folder)
        if before is not None and before.pairs > pairs:
            return before
    value = {
        "version": VERSION,
        "layer": choice.layer + 1,
        "head": None if choice.head is None else choice.head + 1,
        "step": choice.step,
        "rate": rate,
        "pairs": pairs,
        "weights": weights,
    }
    try:
        write_json(run.folder.path / FILE, value)
    except (OSError, HeedfulError):
        return None
    return Kept(choice, pairs)


def best_head(run: "Run") -> Choice | None:
    """The head that is known to align best, or None.

    Raises:
        DamagedError: ``alignment.json`` is no such file.
    """
    over_source = [point for point in points_of(run) if (point.kind, point.queries) == ("cross", TARGET)]
    if not over_source:
        return None
    kept = _kept(run.folder)
    if kept is not None:
        return kept.choice
    guided = getattr(getattr(run.recipe, "objective", None), "guided", None)
    return None if guided is None else Choice(guided.place(len(over_source)), guided.head - 1, guided.step)


def _kept(folder: RunFolder) -> Kept | None:
    """What ``alignment.json`` says, where it is of these weights."""
    path = folder.path / FILE
    if not path.is_file():
        return None
    value = read_json(path)
    try:
        if value["weights"] != _weights(folder):
            return None
        head = None if value["head"] is None else value["head"] - 1
        choice = Choice(value["layer"] - 1, head, _step(value.get("step", "output")))
        return Kept(choice, int(value["pairs"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: damaged ({error!r}); delete it") from None


def _step(name: Any) -> DecoderStep:
    """One of `STEPS`.

    Raises:
        ValueError: it is none.
    """
    return STEPS[STEPS.index(name)]


def _weights(folder: RunFolder) -> str | None:
    """The hash of the run's weights, as its card has it."""
    if not folder.card.is_file():
        return None
    entry: Any = folder.require()["files"].get(folder.weights.name)
    return None if entry is None else entry["sha256"]

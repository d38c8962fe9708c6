"""The head that aligns best, as far as it is known: kept in a run's folder, and shown first.

Two things tell it: teaching (``objective.guided``), and gold alignments. Where a run's attention was held
against these (`heedful evaluate --alignments`, `heedful.explain.error_rates`), the head with the lowest error
rate is kept in ``alignment.json``, with the hash of the weights that it is a head of; with other weights (the
training went on) it counts no more. It takes the place

- of one that was kept before, unless more pairs chose that;
- of one that was taught, if its rate is lower, on `ENOUGH` pairs.

Of other runs no head is known to align better than another: a confident head need not align, and neither must
one that agrees with the others.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.artifacts.run_folder import RunFolder, read_json, write_json
from heedful.errors import DamagedError, HeedfulError
from heedful.explain.alignment import STEPS, Choice
from heedful.explain.error_rates import Rated, most_accurate
from heedful.explain.one_text import points_of
from heedful.explain.view import TARGET
from heedful.objectives.guided import DecoderStep

if TYPE_CHECKING:
    from heedful.runs.run import Run

FILE = "alignment.json"
VERSION = 1
ENOUGH = 20
"""Pairs with gold links that can tell that another head aligns better than the one that was taught."""


@dataclass(frozen=True)
class Kept:
    """The head that was chosen by gold alignments.

    Args:
        choice: the layer, or head.
        pairs: how many pairs with gold links it was chosen by.
    """

    choice: Choice
    pairs: int


@dataclass(frozen=True)
class Shown:
    """The head that is shown first, and why, for people."""

    choice: Choice
    why: str


def keep(run: "Run", table: Sequence[Rated], pairs: int) -> Shown | None:
    """Keep the head with the lowest rate in the run's folder, unless another goes before it.

    Args:
        run: whose heads they are.
        table: all that were measured.
        pairs: how many pairs with gold links they are chosen by.

    Returns:
        What is shown first now. None: a folder that cannot be written, or a run without a card (training has
        not ended), keeps nothing.
    """
    weights = _weights(run.folder)
    if weights is None:
        return None
    best = most_accurate(table)
    if stays := _going_before(run, best, table, pairs):
        return stays
    choice = best.choice
    value = {
        "version": VERSION,
        "layer": choice.layer + 1,
        "head": None if choice.head is None else choice.head + 1,
        "step": choice.step,
        "rate": best.rate,
        "pairs": pairs,
        "weights": weights,
    }
    try:
        write_json(run.folder.path / FILE, value)
    except (OSError, HeedfulError):
        return None
    return Shown(choice, f"{_pairs(pairs)} chose it")


def _going_before(run: "Run", best: Rated, table: Sequence[Rated], pairs: int) -> Shown | None:
    """The head that stays the first, if one does."""
    before, taught = None, _taught(run)
    with suppress(DamagedError):  # then it is written anew
        before = _kept(run.folder, taught)
    if before is not None and before.pairs > pairs:
        return Shown(
            before.choice, f"{_pairs(before.pairs)} chose it, and {_pairs(pairs)} chose {best.choice}"
        )
    if taught is None or taught == best.choice or (before is not None and before.choice != taught):
        return None
    rate = next((each.rate for each in table if each.choice == taught), None)
    if rate is None:
        return Shown(taught, "it was taught, and not measured beside the others")
    if pairs < ENOUGH:
        found = f"{_pairs(pairs)} with gold links chose {best.choice}"
        return Shown(taught, f"it was taught, and {found}; at least {ENOUGH} are needed to say so")
    # A rate that is undefined is no higher one either.
    return None if best.rate < rate else Shown(taught, f"it was taught, and {best.choice} is no better")


def best_head(run: "Run") -> Choice | None:
    """The head that is known to align best, or None.

    Raises:
        DamagedError: ``alignment.json`` is no such file.
    """
    if not _over_source(run):
        return None
    taught = _taught(run)
    kept = _kept(run.folder, taught)
    return taught if kept is None else kept.choice


def _over_source(run: "Run") -> int:
    """How many layers look from the target at the source."""
    return sum((point.kind, point.queries) == ("cross", TARGET) for point in points_of(run))


def _taught(run: "Run") -> Choice | None:
    """The head that was taught alignments, if one was."""
    guided = getattr(getattr(run.recipe, "objective", None), "guided", None)
    if guided is None:
        return None
    return Choice(guided.place(_over_source(run)), guided.head - 1, guided.step)


def _kept(folder: RunFolder, taught: Choice | None) -> Kept | None:
    """What ``alignment.json`` says, where it is of these weights, and enough if another head was taught."""
    path = folder.path / FILE
    if not path.is_file():
        return None
    value = read_json(path)
    try:
        if value["weights"] != _weights(folder):
            return None
        head = None if value["head"] is None else value["head"] - 1
        choice = Choice(value["layer"] - 1, head, _step(value.get("step", "output")))
        kept = Kept(choice, int(value["pairs"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path}: damaged ({error!r}); delete it") from None
    return None if taught not in (None, choice) and kept.pairs < ENOUGH else kept


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


def _pairs(n: int) -> str:
    return "1 pair" if n == 1 else f"{n:,} pairs"

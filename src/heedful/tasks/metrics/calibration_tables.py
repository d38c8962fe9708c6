"""Tables of ``heedful evaluate`` about probabilities: how often they are right, and thresholds of them."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.tables import columns
from heedful.tasks.metrics.intervals import wilson_interval
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.tasks.metrics.accuracy_thresholds import AccuracyThreshold, Kept

SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25)
"""Shares of answers, the most probable ones, whose accuracy is shown."""

WIDTH = 76

TOO_HIGH, TOO_LOW, FEW = "too high", "too low", "few answers"

WIDEST = 0.2
"""Width of the interval of an accuracy from which a bin has too few answers to judge."""


def calibration_tables(error: float, details: JsonMapping, curve: JsonMapping) -> Iterator[str]:
    """Yield the lines of the bins of a calibration error, and the accuracy of the most probable answers.

    Args:
        error: the calibration error.
        details: of the score ``calibration error``.
        curve: of the score ``AURC``.
    """
    temperature = details["temperature"]
    scaled = "not calibrated" if temperature is None else f"calibrated by temperature {temperature:.3g}"
    bins = [Bin.of(entry) for entry in details["bins"]]
    is_chance = error <= details["perfect"]
    yield ""
    yield from textwrap.wrap(
        f"The probabilities are {scaled}. {_verdict(bins, details['perfect'], is_chance=is_chance)}", WIDTH
    )
    yield ""
    rows = [["probability", "answers", "mean", "accuracy", "95 % interval", ""]]
    for each in bins:
        interval = f"{each.interval[0]:.3f}-{each.interval[1]:.3f}"
        # Of many bins, some are outside of their intervals by chance.
        judgement = "" if is_chance and not each.is_small else each.judgement
        numbers = (f"{each.count:,}", f"{each.mean:.3f}", f"{each.accuracy:.3f}")
        rows.append([each.name, *numbers, interval, judgement])
    yield from columns(rows, range(1, 5))
    yield ""
    yield from columns([["most probable", "threshold", "accuracy"], *_points(curve["coverage"])], range(3))


@dataclass(frozen=True)
class Bin:
    """A bin of probabilities.

    Args:
        low: its lower end.
        high: its upper end.
        count: number of answers in it.
        mean: of their probabilities.
        accuracy: how many of them are right.
    """

    low: float
    high: float
    count: int
    mean: float
    accuracy: float

    @classmethod
    def of(cls, entry: JsonMapping) -> "Bin":
        """Return an entry of ``bins`` of the score."""
        return cls(entry["low"], entry["high"], entry["count"], entry["confidence"], entry["accuracy"])

    @property
    def name(self) -> str:
        """Its ends."""
        return f"{self.low:.2f}-{self.high:.2f}"

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the accuracy."""
        return wilson_interval(self.accuracy, self.count)

    @property
    def is_small(self) -> bool:
        """Whether it has too few answers to judge: the interval is wider than `WIDEST`."""
        low, high = self.interval
        return high - low > WIDEST

    @property
    def judgement(self) -> str:
        """How the mean probability compares with the interval; empty if it is inside.

        Of few answers, nothing is said: of many bins, some are outside of wide intervals by chance.
        """
        low, high = self.interval
        if self.is_small:
            return FEW
        return TOO_HIGH if self.mean > high else TOO_LOW if self.mean < low else ""


def _verdict(bins: Sequence[Bin], limit: float, *, is_chance: bool) -> str:
    """Return what the calibration error says about the probabilities.

    Args:
        bins: of the probabilities.
        limit: the error that chance allows.
        is_chance: whether the error is not greater.
    """
    chance = f"what chance allows ({limit:.4f} in 95 % of samples of this size)"
    if is_chance:
        few = ", but there are few answers" if all(each.is_small for each in bins) else ""
        return f"The calibration error is within {chance}: they may be taken as shares of right answers{few}."
    found = [
        f"{judgement} in {', '.join(names)}"
        for judgement in (TOO_HIGH, TOO_LOW)
        if (names := [each.name for each in bins if each.judgement == judgement])
    ]
    where = f" They are {' and '.join(found)}." if found else ""
    return (
        f"The calibration error is above {chance}: they are not to be taken as shares of right "
        f"answers.{where}"
    )


def _points(curve: Sequence[JsonObject]) -> list[list[str]]:
    """Return the rows of the points nearest to `SHARES`, each once."""
    nearest = [min(curve, key=lambda point: abs(point["coverage"] - share)) for share in SHARES]
    chosen = [point for i, point in enumerate(nearest) if point not in nearest[:i]]
    return [
        [f"{point['coverage']:.1%}", f"{point['threshold']:.3f}", f"{point['accuracy']:.3f}"]
        for point in chosen
    ]


def threshold_lines(found: "AccuracyThreshold") -> Iterator[str]:
    """Yield lines about the thresholds for an accuracy."""
    wanted, holds, here = f"accuracy {found.wanted:g}", found.holds, found.on_these_rows
    if not found.is_tested:
        answer = (
            "no threshold has it on these rows" if here is None else f"{_kept(here)}; {FITS}, and {DEPENDENT}"
        )
        yield from textwrap.wrap(f"{wanted}: {answer}", WIDTH)
        return
    if holds is None:
        answer = f"no threshold is known to keep it on other rows; {found.advice}"
    else:
        answer = f"{_kept(holds)}; on other rows of the same kind, it is at least {found.wanted:g}, {SURE}"
    yield from textwrap.wrap(f"{wanted}: {answer}", WIDTH)
    if here is not None and (holds is None or here.answers > holds.answers):
        yield from textwrap.wrap(f"on these rows alone: {_kept(here)}; {FITS}, and {LOWER}", WIDTH)


SURE = "with a confidence of 95 %"

FITS = "it is chosen on these rows"

LOWER = "on others the accuracy is lower about every second time"

DEPENDENT = "words of a sentence, or labels of a text, depend on each other, so nothing is known about others"


def _kept(kept: "Kept") -> str:
    """Return the answers from a threshold on, in words."""
    low, high = kept.interval
    right = (
        f"{kept.right:,} of {kept.answers:,} right: {kept.accuracy:.3f}, 95 % interval {low:.3f}-{high:.3f}"
    )
    if kept.answers == kept.total:
        return f"no threshold is needed; {right}"
    return f"threshold {kept.threshold:.15g}, {kept.coverage:.1%} of the answers, {right}"

"""Metric scores with signatures: print and store them."""

import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, SupportsFloat

from heedful.errors import RequestError, type_name
from heedful.tasks.metrics.statistics import RowStatistics
from heedful.typing import JsonMapping, JsonObject

if TYPE_CHECKING:
    from heedful.tasks.metrics.accuracy_thresholds import AccuracyThreshold


@dataclass(frozen=True)
class Score:
    """The value of a metric and how it was computed.

    It is used like its value: ``float(score)``, ``score > 0.9``, ``f"{score:.2f}"``. Two scores are equal if
    all their parts are; a score equals no number.

    Args:
        name: the usual name of the metric: ``BLEU``, ``tokenised BLEU``, ``perplexity``.
        value: on the usual scale of the metric (BLEU, chrF and TER up to 100; accuracy up to 1).
        signature: all settings that change the value, as ``key:value|key:value``. Two scores are comparable
            only if their signatures are equal.
        details: parts of the score: precisions, scores of each class.
        counts: the amount of scored data: sentences, tokens.
        statistics: returns the statistics of the rows that the score is computed from, for tests of
            significance; None: there is no test for it.
        threshold_for: returns the thresholds of the probability for an accuracy (`Evaluation.threshold_for`);
            None: the score has none.
    """

    name: str
    value: float
    signature: str
    details: JsonMapping = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    statistics: Callable[[], RowStatistics] | None = field(default=None, compare=False, repr=False)
    threshold_for: "Callable[[float], AccuracyThreshold] | None" = field(
        default=None, compare=False, repr=False
    )

    def __float__(self) -> float:
        """Return the value."""
        return float(self.value)

    def __lt__(self, other: "SupportsFloat") -> bool:
        return self.value < _comparable(other)

    def __le__(self, other: "SupportsFloat") -> bool:
        return self.value <= _comparable(other)

    def __gt__(self, other: "SupportsFloat") -> bool:
        return self.value > _comparable(other)

    def __ge__(self, other: "SupportsFloat") -> bool:
        return self.value >= _comparable(other)

    def __format__(self, spec: str) -> str:
        """Format the value, or without a format the score as text."""
        return format(self.value, spec) if spec else str(self)

    @property
    def metric(self) -> str:
        """The name as ``training.metric`` has it: "macro F1" is ``macro-f1``."""
        return self.name.lower().replace(" ", "-")

    def to_dict(self) -> JsonObject:
        """Return JSON values (``docs/schemas/evaluation.schema.json``); a non-finite value is null."""
        return {
            "name": self.name,
            "value": self.value if math.isfinite(self.value) else None,
            "signature": self.signature,
            "details": dict(self.details),
            "counts": dict(self.counts),
        }

    def lines(self) -> list[str]:
        """Return lines to print: the score, then signature, counts and details, indented.

        Tables in the details (a confusion matrix) are omitted; see `to_dict`.
        """
        counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.counts.items())
        parts = {key.replace("_", " "): _formatted(part) for key, part in self.details.items()}
        details = [f"{key}: {part}" for key, part in parts.items() if part]
        lines = [f"signature: {self.signature}", *([f"counts: {counts}"] if counts else []), *details]
        return [f"{self.name} {_number(self.value)}", *(f"  {line}" for line in lines)]


def _comparable(other: object) -> float:
    if not isinstance(other, SupportsFloat):
        raise TypeError(f"expected a number or a score, got {type_name(other)}")
    return float(other)


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


def _formatted(value: object) -> str:
    """Format a value, or a list of values separated by slashes; return "" for nested values."""
    if isinstance(value, list):
        parts = [_formatted(item) for item in value]
        return "" if any(isinstance(item, list | dict) for item in value) else "/".join(parts)
    if isinstance(value, dict):
        return ""
    return _number(value) if isinstance(value, float) else "undefined" if value is None else str(value)


def check_lengths(outputs: Sized, references: Sized, outputs_name: str, references_name: str) -> None:
    """Check that there are outputs to score, and as many references.

    Raises:
        RequestError: there are none, or the numbers differ; the message contains both.
    """
    if len(outputs) != len(references):
        raise RequestError(
            f"{len(outputs)} {outputs_name} but {len(references)} {references_name}: each needs its own"
        )
    if not len(references):
        raise RequestError(f"there is nothing to score: no {outputs_name} and no {references_name}")

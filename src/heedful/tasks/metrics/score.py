"""A score with what is needed to print it, store it and compare it."""

import math
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from heedful.errors import RequestError


@dataclass(frozen=True)
class Score:
    """One number and how it was come by.

    Args:
        name: what the field calls it: ``BLEU``, ``tokenised BLEU``, ``perplexity``.
        value: on the scale that is usual for it (BLEU, chrF and TER up to 100; accuracy up to 1).
        signature: everything that changes the number besides the texts, as ``key:value|key:value``.
            Two scores may be compared only if their signatures are equal.
        details: parts of the score: precisions, scores of each class.
        counts: how much was scored: sentences, tokens.
    """

    name: str
    value: float
    signature: str
    details: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, as ``docs/schemas/evaluation.schema.json`` describes it; null if not finite."""
        return {
            "name": self.name,
            "value": self.value if math.isfinite(self.value) else None,
            "signature": self.signature,
            "details": dict(self.details),
            "counts": dict(self.counts),
        }

    def lines(self) -> list[str]:
        """For reading: the score first, then signature, counts and details, indented.

        Tables among the details (a confusion matrix) are left to `to_dict`.
        """
        counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.counts.items())
        parts = {key.replace("_", " "): _show(part) for key, part in self.details.items()}
        shown = [f"{key}: {part}" for key, part in parts.items() if part]
        rest = [f"signature: {self.signature}", *([f"counts: {counts}"] if counts else []), *shown]
        return [f"{self.name} {_number(self.value)}", *(f"  {line}" for line in rest)]


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


def _show(value: Any) -> str:
    """A number or text, or several of them with slashes between; nothing for what is nested deeper."""
    if isinstance(value, list):
        parts = [_show(item) for item in value]
        return "" if any(isinstance(item, list | dict) for item in value) else "/".join(parts)
    if isinstance(value, dict):
        return ""
    return _number(value) if isinstance(value, float) else "undefined" if value is None else str(value)


def differences(first: Score, second: Score) -> list[str]:
    """What keeps two scores from being compared, for reading; empty if nothing does."""
    if first.name != second.name:
        return [f"one is {first.name}, the other {second.name}"]
    if first.signature == second.signature:
        return []
    a, b = _fields(first.signature), _fields(second.signature)
    keys = [key for key in dict.fromkeys((*a, *b)) if a.get(key) != b.get(key)]
    found = [
        f"{key} is {a.get(key, 'not set')} in one and {b.get(key, 'not set')} in the other" for key in keys
    ]
    return found or ["their signatures have another order"]


def comparable(first: Score, second: Score) -> bool:
    """Whether both are the same measure taken in the same way: equal names and equal signatures."""
    return not differences(first, second)


def check_comparable(first: Score, second: Score) -> None:
    """Refuse to compare what cannot be compared.

    Raises:
        RequestError: naming what differs.
    """
    if found := differences(first, second):
        raise RequestError(f"these {first.name} scores cannot be compared: {'; '.join(found)}")


def _fields(signature: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in signature.split("|"))
    return {key: value for key, _, value in pairs}


def check_lengths(outputs: Sized, references: Sequence[Any], outputs_are: str, references_are: str) -> None:
    """Refuse to score nothing, or outputs and references that do not correspond.

    Raises:
        RequestError: with both numbers.
    """
    if len(outputs) != len(references):
        raise RequestError(
            f"{len(outputs)} {outputs_are} but {len(references)} {references_are}: each needs its own"
        )
    if not references:
        raise RequestError(f"there is nothing to score: no {outputs_are} and no {references_are}")

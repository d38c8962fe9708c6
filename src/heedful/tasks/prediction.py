"""Predictions, and the interface of what predicts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from heedful.typing import JsonObject

_INTERNAL = {"ids", "cut"}
"""Fields that are not part of JSON."""

TaskInput = Any
"""An input of a task: a text, a tuple of texts that are read together, a list of words, or an image."""

Progress = Callable[[int], None]
"""Called with the number of inputs just done."""


@dataclass(frozen=True)
class Prediction:
    """One answer, with what is needed to recompute its score.

    Args:
        text: the answer.
        score: what hypotheses were ranked by: the sum of ``log_probs`` after length and coverage
            penalties (see `heedful.decoding.scoring`).
        tokens: the pieces that were generated, the end token not among them.
        log_probs: natural log-probabilities, one for each generated token; one more than ``tokens``
            when the model ended by itself, for the end token.
        alternatives: the next best answers, best first.
        source_tokens: the pieces that the model read, where an alignment is given.
        alignment: attention over the source, ``[layer][head][target token][source token]``; the last
            target row belongs to the end token.
        note: what is unusual, such as an input that was truncated or has unknown words.
        error: why there is no answer (the input could not be read); ``text`` is then empty.
        grid: rows and columns of patches, where an alignment with an image is given: its tokens are the
            patches, row by row.
        follows: how probable it is that the second text of a pair follows the first, of a masked language
            model that learned it.
        ids: the numbers of ``tokens`` in the vocabulary; equal pieces may have several. Not part of JSON.
        cut: how many tokens of the input were truncated. JSON has it in the note.
    """

    text: str
    score: float = 0.0
    tokens: list[str] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    alternatives: list["Prediction"] = field(default_factory=list)
    source_tokens: list[str] | None = None
    alignment: list[Any] | None = None
    note: str | None = None
    error: str | None = None
    grid: tuple[int, int] | None = None
    follows: float | None = None
    ids: tuple[int, ...] = field(default=(), repr=False, compare=False)
    cut: int = 0

    @classmethod
    def keys(cls) -> frozenset[str]:
        """What `to_dict` has, or may have."""
        return frozenset(each.name for each in fields(cls)) - _INTERNAL

    def to_dict(self) -> JsonObject:
        """JSON-ready; what was not asked for is left out."""
        keys = self.keys()
        plain = {key: value for key, value in asdict(self).items() if value is not None and key in keys}
        return {**plain, "alternatives": [a.to_dict() for a in self.alternatives]}


class Predictor(Protocol):
    """Maps inputs to predictions: one for each, in the same order."""

    def predict(
        self,
        texts: Sequence[TaskInput],
        *,
        alignment: bool = False,
        first: int = 0,
        progress: Progress = lambda n: None,
    ) -> list[Prediction]:
        """Predict; see `heedful.runs.run.Run.predict`.

        Args:
            texts: the inputs: texts, tuples of texts, or images.
            alignment: also return the attention over the source.
            first: index of the first input, so that samples do not depend on how inputs are split over calls.
            progress: called with the number of inputs just done.
        """
        ...

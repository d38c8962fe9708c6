"""What the evaluation of a task takes and returns, and the rows of a data set that can be scored."""

import html
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self

from heedful.data.batch import Batch
from heedful.data.plan import Lengths
from heedful.data.report import Tally
from heedful.data.sources import LocatedRow, Row
from heedful.decoding.config import DecodingConfig
from heedful.errors import DataError, RequestError, nearest, type_name
from heedful.recipes.schema import EvaluationConfig, Recipe
from heedful.tables import html_table, terminal_width
from heedful.tasks.metrics.accuracy_thresholds import AccuracyThreshold
from heedful.tasks.metrics.evaluation_text import evaluation_lines
from heedful.tasks.metrics.pictures import pictures
from heedful.tasks.metrics.score import Score
from heedful.tasks.prediction import VERSION, Prediction, PredictionT, TaskInput
from heedful.training import distribution
from heedful.training.model_with_loss import ModelWithLoss
from heedful.typing import JsonMapping, JsonObject

Predict = Callable[[list[TaskInput]], list[Prediction]]
"""Inputs to predictions: as many, in the same order."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of one data set.

    Args:
        split: its name.
        scores: with their signatures and counts.
        notes: what is unusual in the data: inputs that were cut, unknown words.
        records: yields a record for each row, with its own scores.
        locations: of the rows that were scored; empty if they are not known one by one.
        unit: plural noun for what the data set contains, as counts of scores have it.
    """

    split: str
    scores: list[Score]
    notes: Sequence[str] = field(default=(), kw_only=True)
    records: Callable[[], Iterator[JsonMapping]] = field(default=lambda: iter(()), kw_only=True)
    locations: Sequence[str] = field(default=(), kw_only=True, repr=False)
    unit: str = field(default="", kw_only=True, repr=False)

    def __getitem__(self, name: str) -> Score:
        """Return a score by its name (``macro F1``), or as ``training.metric`` has it (``macro-f1``).

        Raises:
            KeyError: there is no such score; the message names all.
        """
        for score in self.scores:
            if name in (score.name, score.metric):
                return score
        names = self.keys()
        raise KeyError(f"no score {name!r}{nearest(name, names)}; expected one of {', '.join(names)}")

    def keys(self) -> list[str]:
        """Return the names of the scores."""
        return [score.name for score in self.scores]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, name: object) -> bool:
        return any(name in (score.name, score.metric) for score in self.scores)

    def __str__(self) -> str:
        """Return the text that ``heedful evaluate`` prints, and the notes."""
        return "\n".join(
            [*evaluation_lines(self.split, self.unit, self.scores, terminal_width()), *self.notes]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the scores in a notebook: tables, the confusion matrix, and curves of probabilities."""
        rows = [(score.name, f"{score.value:.4g}", score.signature) for score in self.scores]
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        table = html_table([(self.split, "score", "signature"), *rows])
        return "".join([table, *pictures(self.scores), notes])

    def threshold_for(self, accuracy: float) -> AccuracyThreshold:
        """Find how probable answers must be to be right this often.

        The result can be given to `heedful.Run.predict` (``threshold=…``). Its ``holds`` has the threshold
        whose answers are right this often on other rows of the same kind too, with a confidence of 95 %; its
        ``on_these_rows`` the lowest one that has the accuracy on this data set. Both have ``threshold``,
        ``coverage`` (the share of the answers from it on), ``answers``, ``right``, ``accuracy`` and
        ``interval`` (95 %), or are None if there is no such threshold. Without one that holds,
        ``rows_needed`` says about how many rows may show one.

        Args:
            accuracy: from 0 to 1.

        Raises:
            RequestError: the answers have no probabilities, or the accuracy is not from 0 to 1.
        """
        threshold_for = next((score.threshold_for for score in self.scores if score.threshold_for), None)
        if threshold_for is None:
            raise RequestError(
                "accuracy: the answers of this task have no probability to compare with a threshold"
            )
        return threshold_for(accuracy)

    def to_dict(self) -> JsonObject:
        """One entry of ``splits`` in ``docs/schemas/evaluation.schema.json``."""
        notes = {"notes": list(self.notes)} if self.notes else {}
        return {"split": self.split, "scores": [score.to_dict() for score in self.scores], **notes}

    def rows(self) -> Iterator[JsonMapping]:
        """The records, each with the version of their format."""
        return ({"version": VERSION, **record} for record in self.records())


@dataclass(frozen=True)
class EvaluationOptions:
    """How to score a data set.

    Args:
        decoding: instead of the recipe's.
        limit: score only the first rows.
        stride: how far windows move on, for tasks that have windows.
        progress: called with the number of rows just done.
        precision: of the weights while decoding (`heedful.engine.choosing`).
    """

    decoding: DecodingConfig | None = None
    limit: int | None = None
    stride: int | None = None
    progress: Callable[[int], None] = lambda n: None
    precision: str = "auto"


@dataclass(frozen=True)
class PredictedRows(Generic[PredictionT]):
    """The rows of a data set whose inputs could be read, and their predictions.

    Args:
        rows: those that can be scored.
        predictions: of each.
        dropped: rows that were left out, by reason.
    """

    rows: list[LocatedRow[Row]]
    predictions: list[PredictionT]
    dropped: Mapping[str, Tally]

    @classmethod
    def readable(
        cls,
        split: str,
        rows: Sequence[LocatedRow[Row]],
        predictions: Sequence[PredictionT],
        dropped: Mapping[str, Tally],
        *,
        drop: bool,
    ) -> Self:
        """Return the rows whose inputs could be read, and count the others.

        Args:
            split: name of the data set in messages.
            rows: all rows that were to be scored.
            predictions: of each.
            dropped: rows that were left out before.
            drop: leave out what cannot be read, rather than stop.

        Raises:
            DataError: if an input cannot be read and is not to be left out, or if none can be read.
        """
        errors = [p.error for p in predictions if p.error]
        if errors and (not drop or len(errors) == len(rows)):
            raise DataError(f"{split}: {errors[0]}")
        unreadable = Tally()
        predicted = cls([], [], {**dropped, "unreadable": unreadable})
        for row, prediction in zip(rows, predictions, strict=True):
            if prediction.error:
                unreadable.add(row.location)
            else:
                predicted.rows.append(row)
                predicted.predictions.append(prediction)
        return predicted

    def __iter__(self) -> Iterator[tuple[LocatedRow[Row], PredictionT]]:
        return zip(self.rows, self.predictions, strict=True)

    @property
    def texts(self) -> list[str]:
        """The predicted texts."""
        return [prediction.text for prediction in self.predictions]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows were left out, for the counts of scores."""
        return {reason: tally.count for reason, tally in self.dropped.items() if tally.count}

    @property
    def notes(self) -> list[str]:
        """How many rows were left out, are empty, or have a cut input or output; the first of each."""
        empty, truncated, unfinished = Tally(), Tally(), Tally()
        for row, prediction in self:
            if prediction.is_empty:
                empty.add(row.location)
            if prediction.cut:
                truncated.add(row.location)
            if prediction.finished is False:
                unfinished.add(row.location)
        notes = [tally.line("dropped", reason) for reason, tally in self.dropped.items() if tally.count]
        if empty.count:
            notes.append(
                f"{empty.count:,} of {len(self.rows):,} inputs are empty and are scored too, the first in "
                f"{empty.examples[0]}"
            )
        if truncated.count:
            notes.append(truncated.line("truncated", "longer than the model reads"))
        if unfinished.count:
            notes.append(
                f"{unfinished.count:,} of {len(self.rows):,} outputs were cut at their maximum length "
                f"(decoding.max_length), the first for {unfinished.examples[0]}"
            )
        return notes


def custom_scores(config: EvaluationConfig, predicted: PredictedRows[Prediction]) -> list[Score]:
    """Compute custom metrics; a number becomes a score with the name of its class.

    Raises:
        RequestError: a metric returns neither a number nor a `Score`.
    """
    scores = []
    for metric in config.metrics:
        score = metric.instance()([row.row for row in predicted.rows], list(predicted.predictions))
        if not isinstance(score, Score):
            settings = "".join(f"|{key}:{setting}" for key, setting in (metric.model_extra or {}).items())
            name, counts = metric.kind.partition(":")[2], {"rows": len(predicted.rows)}
            score = Score(name, _number(score, metric.kind), metric.kind + settings, counts=counts)
        scores.append(score)
    return scores


def _number(value: Any, metric: str) -> float:
    with suppress(TypeError, ValueError, RuntimeError):  # torch: of tensors with several elements
        if not isinstance(value, str):
            return float(value)
    raise RequestError(
        f"{metric}: expected a number or a heedful.tasks.metrics.score.Score as its result, got "
        f"{type_name(value)}"
    )


def micro_batch_tokens(recipe: Recipe) -> int:
    """Return the number of tokens of a micro-batch of training, which fits in memory."""
    n_parts = distribution.world() * recipe.training.accumulate
    return max(1, recipe.training.tokens_per_update // n_parts)


class Batches(Protocol):
    """A data set of encoded rows, of which any samples can be collated to a batch."""

    @property
    def lengths(self) -> Lengths:
        """``[N]``: tokens of each sample."""
        ...

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """Return the batch of these samples; training augments them differently in every epoch."""
        ...


def mean_terms(module: ModelWithLoss, batches: Iterable[Batch]) -> dict[str, float]:
    """Return each term of the loss by its name: its sum over all batches, divided by its count."""
    device = next(module.parameters()).device
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for batch in batches:
        on_device = batch.to(device)
        for term in module(on_device, module.counts(on_device))[1]:
            sums[term.name] += term.sum.item()
            counts[term.name] += term.count
    if empty := [name for name in sums if not counts[name]]:
        raise DataError(f"validation: the loss term {empty[0]!r} has nothing to be computed from")
    return {name: total / counts[name] for name, total in sums.items()}


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood in nats, or e^700 if it is greater."""
    return math.exp(min(nll, 700.0))

"""What training and validation do for all tasks that write one text for one source."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from heedful.data.batch import Batch
from heedful.data.plan import in_order
from heedful.data.store import Ids, TokenStore
from heedful.decoding.config import DecodingConfig, GreedyConfig
from heedful.runs.kind import Predictor, Prepared
from heedful.runs.measuring import means, micro_batch
from heedful.runs.references import references_of
from heedful.tasks.linking import ALIGNMENT
from heedful.tasks.metrics.translation import References, check_language, quick_scores, reference_notes
from heedful.tasks.sequence_formats import SequenceFormat
from heedful.training.feed import PlannedData
from heedful.training.step import Step

Columns = tuple[str, str]
Vary = Callable[[str, Sequence[Ids], Sequence[int], int], list[Ids]]
"""Column, ids of some samples, their numbers, epoch -> other ids of the same texts, or of images alike."""


class Pairs:
    """Batches of a store.

    Args:
        pairing: how source and target are laid before the model.
        store: the ids.
        columns: that of the sources, that of the targets. Where there is a column ``alignment``, training
            batches have its links (`heedful.tasks.linking`).
        vary: what changes sources and targets of training batches anew in every epoch; None: nothing.
    """

    def __init__(
        self, pairing: SequenceFormat, store: TokenStore, columns: Columns, vary: Vary | None = None
    ) -> None:
        self.pairing, self.store, self.columns, self.vary = pairing, store, columns, vary
        self.lengths = pairing.lengths(*(store.lengths(column) for column in columns))

    def __call__(self, samples: Sequence[int], epoch: int) -> Batch:
        """A batch to train on."""
        rows = self.store.gather(samples)
        source, target = self.columns
        if self.vary is not None:
            for column in self.columns:
                rows[column] = self.vary(column, rows[column], samples, epoch)
        batch = self.pairing.collate(rows[source], rows[target], samples)
        return batch.linked(rows[ALIGNMENT]) if ALIGNMENT in rows else batch

    def scored(self, samples: Sequence[int]) -> Batch:
        """A batch that asks for the targets alone."""
        rows = self.store.gather(samples)
        source, target = self.columns
        return self.pairing.scored(rows[source], rows[target])


def planned(recipe: Any, prepared: Prepared, columns: Columns, vary: Vary | None = None) -> PlannedData:
    """Pairs of neighbours in length, as the recipe's training reads them."""
    pairs = Pairs(recipe.pairing, prepared.train, columns, vary)
    return PlannedData(
        lengths=pairs.lengths,
        make=pairs,
        tokens_per_update=recipe.training.tokens_per_update,
        seed=recipe.training.seed,
    )


def require_language(recipe: Any) -> None:
    """Check that validations can compute BLEU.

    Raises:
        RequestError: the tokeniser of ``evaluation.language`` is not installed.
    """
    if recipe.validation.decode != 0:
        check_language(recipe.evaluation.language)


def validation_notes(recipe: Any, prepared: Prepared, column: str) -> list[str]:
    """What makes BLEU at validations wrong or not comparable."""
    if recipe.validation.decode == 0:
        return []
    references = (text for row in prepared.valid_rows for text in references_of(row, column))
    return [f"data.valid: {note}" for note in reference_notes(references, recipe.evaluation.language)]


class Validator:
    """Loss and perplexity on the validation data, and, where asked for, BLEU and chrF of what is written.

    Args:
        recipe: with a ``pairing`` and a ``validation``.
        prepared: the data.
        step: runs the model and its objective.
        columns: that of the sources, that of the targets; the rows of ``prepared`` may have a list of those.
        predictor: answers sources with a model, decoding in a way.
        score: scores texts that were written, given their references.
    """

    def __init__(
        self,
        recipe: Any,
        prepared: Prepared,
        step: Step,
        columns: Columns,
        predictor: Callable[[nn.Module, DecodingConfig], Predictor],
        score: Callable[[Sequence[str], References], Mapping[str, float]] = quick_scores,
    ) -> None:
        self.settings, self.rows, self.step = recipe.validation, prepared.valid_rows, step
        self.columns, self.predictor, self.score = columns, predictor, score
        self.pairs = Pairs(recipe.pairing, prepared.valid, columns)
        self.batches = in_order(self.pairs.lengths, micro_batch(recipe))

    def __call__(self, model: nn.Module) -> Mapping[str, float]:
        """See `heedful.training.loop.Validate`."""
        return {**self._likelihood(), **self._written(model)}

    def _likelihood(self) -> dict[str, float]:
        found = means(self.step, (self.pairs.scored(samples.tolist()) for samples in self.batches))
        return {"loss": found["token"], "perplexity": math.exp(min(found["nll"], 700.0))}

    def _written(self, model: nn.Module) -> Mapping[str, float]:
        if self.settings.decode == 0:
            return {}
        rows = self.rows[: self.settings.decode]
        source, target = self.columns
        predictor = self.predictor(model, self.settings.decoding or GreedyConfig())
        predictions = predictor.predict([row[source] for row in rows])
        read = [(p.text, row[target]) for p, row in zip(predictions, rows, strict=True) if p.error is None]
        texts, references = [text for text, _ in read], [reference for _, reference in read]
        return self.score(texts, references)

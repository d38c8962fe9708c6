"""Scoring a tagger: the same answers as ``predict``, beside the right tags."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import cut_notes
from heedful.tasks.labels import Unseen
from heedful.tasks.metrics.tagging import tagging_scores
from heedful.tasks.tagging import Tagged, words_and_tags
from heedful.tasks.unknown import unknown_notes
from heedful.text.encoded import Encoded


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """Scores of words and spans, with every row.

    Args:
        tags: the right ones of each row.
        predictions: the run's, with the words.
    """

    tags: list[list[str]]
    predictions: list[Tagged]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a row: words, right tags, the prediction and how many of its tags are right."""
        for tags, prediction in zip(self.tags, self.predictions, strict=True):
            yield {
                "version": 1,
                "words": prediction.words,
                "tags": tags,
                "prediction": prediction.tags,
                "log_probs": prediction.log_probs,
                "correct": sum(a == b for a, b in zip(tags, prediction.tags, strict=True)),
            }


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Tag a data set and compare.

    Raises:
        DataError: there is nothing to score, words and tags of a row are not as many, or no tag is one of
            the run's.
    """
    kept = list(islice(rows, how.limit))
    pairs = [words_and_tags(row) for row in kept]
    if not any(words for words, _ in pairs):
        raise DataError(f"{split}: there is nothing to score")
    given = ((tag, row.where) for row, (_, tags) in zip(kept, pairs, strict=True) for tag in tags)
    unseen = Unseen.among(given, run.processor.tags, "tag")
    inputs = [words for words, _ in pairs]
    found: list[Any] = run.predict(inputs, progress=how.progress, precision=how.precision)
    right = [tags for _, tags in pairs]
    scores = tagging_scores([p.tags for p in found], right, run.processor.tags, unseen.labels)
    scores = [replace(score, counts={**score.counts, **unseen.counted}) for score in scores]
    unknown = unknown_notes("", Encoded.by(run.processor.tokenizer, [" ".join(words) for words in inputs]))
    notes = [*cut_notes(kept, found), *unseen.notes("tag"), *unknown]
    return Evaluation(split, scores, right, found, notes=notes)

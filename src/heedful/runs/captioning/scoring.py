"""Scoring a captioner: the same captions as ``predict``, beside those that people gave."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from heedful.data.images import IMAGE
from heedful.data.report import DataReport, Filter, keep
from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import answered
from heedful.runs.references import references_of, shown
from heedful.runs.translation.scoring import left_out_notes, likelihood_of
from heedful.tasks.captioning import CAPTION
from heedful.tasks.metrics.translation import (
    check_language,
    exact_match,
    reference_notes,
    sentence_scores,
    translation_scores,
)
from heedful.tasks.prediction import Prediction
from heedful.tasks.unknown import unknown_notes
from heedful.text.encoded import Encoded


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """BLEU, chrF, TER, the share of exact matches and perplexity, with all captions.

    Args:
        images: what messages call them.
        references, predictions: image by image; of each, one reference or several.
        lowercase: whether the scores are without regard to case.
        language: of the captions, for BLEU.
    """

    images: list[str]
    references: list[list[str]]
    predictions: list[Prediction]
    lowercase: bool = False
    language: str | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record an image, with its own scores."""
        texts = [p.text for p in self.predictions]
        own = sentence_scores(texts, self.references, language=self.language, lowercase=self.lowercase)
        for image, references, prediction, scores in zip(
            self.images, self.references, self.predictions, own, strict=True
        ):
            answer = prediction.to_dict()
            yield {"version": 1, IMAGE: image, **shown(references), **answer, "scores": scores}


def by_image(rows: Iterable[LocatedRow[Row]]) -> list[LocatedRow[Row]]:
    """A row for each image, where its first one is, with the list of all its captions but empty ones."""
    found: dict[Path | bytes, LocatedRow[Row]] = {}
    for row, where in rows:
        image = row[IMAGE]
        one = found.setdefault(image.identity, LocatedRow({IMAGE: image, CAPTION: []}, where))
        one.row[CAPTION].extend(caption for caption in references_of(row, CAPTION) if caption.strip())
    return [*found.values()]


def scored(run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> Evaluation:
    """Caption the images of a data set, once each, and score that against all captions given of them.

    Perplexity is of those, teacher forced. A run that writes lower case is scored without regard to
    case, as the signatures then say. Images without a caption, and those that cannot be read, are left out
    where the recipe drops such; the scores' counts say how many were.

    Raises:
        DataError: there is nothing to score; or an image has no caption, or cannot be read, and is not to be
            left out.
    """
    filter, language = run.recipe.data.filter, run.recipe.evaluation.language
    check_language(language)
    asked: list[Any] = list(islice(by_image(rows), how.limit))
    if not asked:
        raise DataError(f"{split}: there is nothing to score")
    report = DataReport()
    kept: list[Any] = list(keep(asked, Filter(empty=filter.empty), report, beside=(IMAGE,)))
    inputs = [run.kind.input_of(run.recipe, row.row) for row in kept]
    answers = run.predict(inputs, decoding=how.decoding, progress=how.progress, precision=how.precision)
    read = answered(split, kept, answers, drop=filter.unreadable == "drop")
    images = [row.row[IMAGE] for row in read.rows]
    references = [row.row[CAPTION] for row in read.rows]
    texts, lowercase = [p.text for p in read.predictions], run.recipe.tokenizer.text.lowercase
    scores = list(translation_scores(texts, references, language=language, lowercase=lowercase).values())
    scores.append(exact_match(texts, references, lowercase=lowercase))
    captions = Encoded.by(run.processor.tokenizer, [caption for each in references for caption in each])
    of = [image for image, own in zip(images, references, strict=True) for _ in own]
    predicted = _likelihood(run, of, captions)
    scores += predicted
    dropped = {reason: tally.count for reason, tally in report.dropped.items()}
    scores = [replace(score, counts={**score.counts, **dropped, **read.counted}) for score in scores]
    notes = [*(tally.line("dropped", reason) for reason, tally in report.dropped.items()), *read.notes]
    notes += left_out_notes(predicted, len(captions.texts))
    notes += unknown_notes(CAPTION, captions, predicted=True)
    notes += reference_notes(captions.texts, language)
    names = [str(image) for image in images]
    return Evaluation(split, scores, names, references, read.predictions, lowercase, language, notes=notes)


def _likelihood(run: Trained, images: Sequence[Any], captions: Encoded) -> list[Any]:
    """Of every caption, given its image."""
    pairing = run.recipe.pairing

    def read(part: Sequence[int]) -> list[Any]:
        return [pairing.reader.pixels(images[i]).reshape(-1) for i in part]

    return likelihood_of(run.model, pairing, read, captions)

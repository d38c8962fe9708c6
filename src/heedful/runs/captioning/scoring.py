"""Scoring a captioner: the same captions as ``predict``, beside those that people gave."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from heedful.data.pictures import PICTURE
from heedful.data.sources import Located, Row
from heedful.errors import DataError
from heedful.evaluation.translation import exact_match, sentence_scores, translation_scores
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import answered
from heedful.runs.translation.scoring import likelihood_of
from heedful.tasks.captioning import CAPTION
from heedful.tasks.prediction import Prediction


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """BLEU, chrF, TER, the share of exact matches and perplexity, with all captions.

    Args:
        pictures: what messages call them.
        references, predictions: picture by picture.
        lowercase: whether the scores are without regard to case.
    """

    pictures: list[str]
    references: list[str]
    predictions: list[Prediction]
    lowercase: bool = False

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a picture, with its own scores."""
        texts = [p.text for p in self.predictions]
        own = sentence_scores(texts, self.references, lowercase=self.lowercase)
        for picture, reference, prediction, scores in zip(
            self.pictures, self.references, self.predictions, own, strict=True
        ):
            answer = prediction.to_dict()
            yield {"version": 1, PICTURE: picture, "reference": reference, **answer, "scores": scores}


def scored(run: Trained, split: str, rows: Iterator[Located[Row]], how: Scoring) -> Evaluation:
    """Caption the pictures of a data set and score the captions.

    Perplexity is of the given ones, teacher forced. A run that writes lower case is scored without regard to
    case, as the signatures then say. Pictures that cannot be read are left out where the recipe drops such;
    the scores' counts say how many were.

    Raises:
        DataError: there is nothing to score, or a picture cannot be read and is not to be left out.
    """
    kept = list(islice(rows, how.limit))
    if not kept:
        raise DataError(f"{split}: there is nothing to score")
    inputs = [run.kind.input_of(run.recipe, row.row) for row in kept]
    answers = run.predict(inputs, decoding=how.decoding, progress=how.progress, precision=how.precision)
    drop = run.recipe.data.filter.unreadable == "drop"
    read = answered(split, kept, answers, drop=drop)
    pictures = [row.row[PICTURE] for row in read.rows]
    references = [row.row[CAPTION] for row in read.rows]
    texts, lowercase = [p.text for p in read.predictions], run.recipe.tokenizer.text.lowercase
    scores = list(translation_scores(texts, references, lowercase=lowercase).values())
    scores.append(exact_match(texts, references, lowercase=lowercase))
    scores += _likelihood(run, pictures, references)
    scores = [replace(score, counts={**score.counts, **read.counted}) for score in scores]
    names = [str(picture) for picture in pictures]
    return Evaluation(split, scores, names, references, read.predictions, lowercase, notes=read.notes)


def _likelihood(run: Trained, pictures: Sequence[Any], references: Sequence[str]) -> list[Any]:
    pairing = run.recipe.pairing

    def read(part: Sequence[int]) -> list[Any]:
        return [pairing.reader.pixels(pictures[i]).reshape(-1) for i in part]

    return likelihood_of(run.model, pairing, run.codec.tokenizer, read, references)

"""What runs of summarisers do in their own way: they are translators with other scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from heedful.data.sources import LocatedRow, Row
from heedful.errors import DataError
from heedful.recipes.schema import Recipe
from heedful.runs import kind
from heedful.runs.kind import Scoring, Trained
from heedful.runs.measuring import cut_notes
from heedful.runs.references import REFERENCES, references_of, shown
from heedful.runs.summarisation.recipe import SummarisationRecipe
from heedful.runs.translation.kind import Translation
from heedful.runs.translation.scoring import encoded, left_out_notes, likelihood, unknown_of
from heedful.tasks.metrics.summarisation import rouge_scores, sentence_rouge
from heedful.tasks.prediction import Prediction
from heedful.tasks.translation import SOURCE, TARGET


class Summarisation(Translation):
    """See `heedful.runs.kind.Kind`."""

    recipe: ClassVar[type[Recipe]] = SummarisationRecipe
    scoring = "summarising"
    listed = (REFERENCES,)

    def scored(self, run: Trained, split: str, rows: Iterator[LocatedRow[Row]], how: Scoring) -> "Evaluation":
        """ROUGE of its summaries, likelihood of the references.

        Where rows have a list of `REFERENCES`, ROUGE is to the nearest; the likelihood is of the target.

        Raises:
            DataError: there is nothing to score.
        """
        located = list(islice(rows, how.limit))
        kept = [row.row for row in located]
        if not kept:
            raise DataError(f"{split}: there is nothing to score")
        sources, targets = [r[SOURCE] for r in kept], [r[TARGET] for r in kept]
        references = [references_of(r, TARGET) for r in kept]
        predictions = run.predict(
            sources, decoding=how.decoding, progress=how.progress, precision=how.precision
        )
        settings = run.recipe.evaluation
        rouge = {"stem": settings.rouge == "stems", "tokenizer": settings.rouge_tokenizer}
        scores = [*rouge_scores([p.text for p in predictions], references, **rouge).values()]
        sides = encoded(run, sources, targets)
        predicted = likelihood(run, *sides)
        scores += predicted
        notes = [*cut_notes(located, predictions), *left_out_notes(predicted, len(kept)), *unknown_of(*sides)]
        return Evaluation(split, scores, sources, references, predictions, rouge, notes=notes)


@dataclass(frozen=True)
class Evaluation(kind.Evaluation):
    """ROUGE and perplexity, with all texts.

    Args:
        sources, references, predictions: text by text; of each, one reference or several.
        rouge: the options of `sentence_rouge`.
    """

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    predictions: Sequence[Prediction]
    rouge: dict[str, Any]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One record a text, with its own scores."""
        own = sentence_rouge([p.text for p in self.predictions], self.references, **self.rouge)
        for source, references, prediction, scores in zip(
            self.sources, self.references, self.predictions, own, strict=True
        ):
            yield {
                "version": 1,
                "source": source,
                **shown(references),
                **prediction.to_dict(),
                "scores": scores,
            }

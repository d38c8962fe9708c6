"""Summarisation: translation with other metrics."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from heedful.config import Config
from heedful.data.sources import LocatedRow, Row
from heedful.models.base import Model
from heedful.recipes import schema
from heedful.tasks.evaluation import PredictedRows
from heedful.tasks.inputs.processor import TARGET
from heedful.tasks.metrics.score import Score
from heedful.tasks.metrics.summarisation import RougeTokenizer, rouge_scores, sentence_rouge
from heedful.tasks.metrics.translation import References
from heedful.tasks.prediction import Prediction
from heedful.tasks.seq2seq import REFERENCES, LanguageConfig, references_of
from heedful.tasks.task_info import Columns
from heedful.tasks.translation import Translation, TranslationRecipe
from heedful.typing import JsonMapping, JsonObject


class SummarisationConfig(Config):
    """A short text for a long one; the data have the columns ``source`` and ``target``."""

    kind: Literal["summarisation"] = "summarisation"


class EvaluationConfig(LanguageConfig):
    """How ``evaluate`` counts; the language is for the BLEU of validations.

    Args:
        rouge: whether ROUGE compares ``stems`` or ``words`` as they are.
        rouge_tokenizer: how ROUGE splits texts into words: ``unicode`` (words of any script; characters in
            scripts without spaces) or ``rouge-score``, as in most papers, which reads a to z and 0 to 9.
    """

    rouge: Literal["stems", "words"] = "stems"
    rouge_tokenizer: RougeTokenizer = "unicode"


class SummarisationRecipe(TranslationRecipe):
    """A whole recipe."""

    task: SummarisationConfig  # type: ignore[assignment]
    evaluation: EvaluationConfig = EvaluationConfig()  # type: ignore[assignment]

    decoded_metrics: ClassVar[frozenset[str]] = frozenset({"bleu", "chrf", "rouge-1", "rouge-2", "rouge-l"})


class Summarisation(Translation):
    """Generate a short text for a long one.

    Rows may have a list of `REFERENCES`: ROUGE is to the nearest, the likelihood is of the target.
    """

    Recipe: ClassVar[type[schema.Recipe]] = SummarisationRecipe
    info = replace(Translation.info, evaluation_verb="summarising")

    recipe: SummarisationRecipe

    @property
    def columns(self) -> Columns:
        """Source and target, and further references."""
        return replace(super().columns, list_valued=(REFERENCES,))

    def references(self, rows: Sequence[LocatedRow[Row]]) -> list[list[str]]:
        """Return the references of each row, or its target."""
        return [references_of(row.row, TARGET) for row in rows]

    def quick_scores(self, texts: Sequence[str], references: References) -> dict[str, float]:
        """Return the scores of summaries in validations: BLEU, chrF and ROUGE."""
        scores = rouge_scores(texts, references, **self._rouge).values()
        rouge = {score.metric: score.value for score in scores}
        return {**super().quick_scores(texts, references), **rouge}

    def check_rows(self, rows: Sequence[LocatedRow[Row]]) -> None:
        """ROUGE needs no further package."""

    def metrics(self, model: Model, predicted: PredictedRows[Prediction]) -> tuple[list[Score], list[str]]:
        """Return ROUGE of the summaries, and the likelihood of the references."""
        scores = rouge_scores(predicted.texts, self.references(predicted.rows), **self._rouge)
        likelihoods, notes = self.likelihood(model, predicted.rows)
        return [*scores.values(), *likelihoods], notes

    def compared(self, predicted: PredictedRows[Prediction]) -> Iterator[JsonMapping]:
        """Yield the references of each row, and the scores of the summary."""
        references = self.references(predicted.rows)
        row_scores = sentence_rouge(predicted.texts, references, **self._rouge)
        for texts, scores in zip(references, row_scores, strict=True):
            yield {"target": texts, "scores": scores}

    @property
    def _rouge(self) -> JsonObject:
        settings = self.recipe.evaluation
        return {"stem": settings.rouge == "stems", "tokenizer": settings.rouge_tokenizer}

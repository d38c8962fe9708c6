"""The recipe of a summariser: that of a translator, scored in another way."""

from typing import Literal

from heedful.runs.translation.recipe import LanguageConfig, TranslationRecipe
from heedful.tasks.metrics.summarisation import RougeTokenizer
from heedful.tasks.registry import SummarisationTask


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

    task: SummarisationTask  # type: ignore[assignment]
    evaluation: EvaluationConfig = EvaluationConfig()  # type: ignore[assignment]

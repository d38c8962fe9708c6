"""Every kind of run by the name of its task: one line here makes a task known to all verbs."""

from heedful.recipes.schema import Recipe
from heedful.runs.captioning.kind import Captioning
from heedful.runs.classification.kind import Classification
from heedful.runs.image_classification.kind import ImageClassification
from heedful.runs.kind import Kind
from heedful.runs.language_modelling.kind import LanguageModelling
from heedful.runs.masked_language_modelling.kind import MaskedLanguageModelling
from heedful.runs.question_answering.kind import QuestionAnswering
from heedful.runs.regression.kind import Regression
from heedful.runs.summarisation.kind import Summarisation
from heedful.runs.tagging.kind import Tagging
from heedful.runs.translation.kind import Translation

KINDS: dict[str, Kind] = {
    "translation": Translation(),
    "summarisation": Summarisation(),
    "language-modelling": LanguageModelling(),
    "masked-language-modelling": MaskedLanguageModelling(),
    "classification": Classification(),
    "image-classification": ImageClassification(),
    "tagging": Tagging(),
    "question-answering": QuestionAnswering(),
    "regression": Regression(),
    "captioning": Captioning(),
}


def kind_of(recipe: Recipe) -> Kind:
    """What the runs of this recipe do in their own way."""
    return KINDS[recipe.task.kind]

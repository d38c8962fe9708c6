"""Every task by name: a line in `TASKS` adds a task to recipes and commands."""

from typing import Annotated, Any, Union

from pydantic import Field

from heedful.plugins import is_reference, load_reference
from heedful.recipes import schema
from heedful.tasks.base import Task
from heedful.tasks.captioning.task import Captioning
from heedful.tasks.classification import Classification
from heedful.tasks.image_classification import ImageClassification
from heedful.tasks.inputs.processor import TaskProcessor
from heedful.tasks.language_modelling.task import LanguageModelling
from heedful.tasks.masked_language_modelling.task import MaskedLanguageModelling
from heedful.tasks.multilabel_classification import MultilabelClassification
from heedful.tasks.question_answering.task import QuestionAnswering
from heedful.tasks.regression import Regression
from heedful.tasks.segmentation.task import ImageSegmentation
from heedful.tasks.sentence_embedding import SentenceEmbedding
from heedful.tasks.summarisation import Summarisation
from heedful.tasks.tagging import Tagging
from heedful.tasks.translation import Translation

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "summarisation": Summarisation,
    "language-modelling": LanguageModelling,
    "masked-language-modelling": MaskedLanguageModelling,
    "classification": Classification,
    "multilabel-classification": MultilabelClassification,
    "image-classification": ImageClassification,
    "tagging": Tagging,
    "question-answering": QuestionAnswering,
    "regression": Regression,
    "sentence-embedding": SentenceEmbedding,
    "segmentation": ImageSegmentation,
    "captioning": Captioning,
}

TaskConfig: Any = Annotated[
    Union[tuple(task.Recipe.model_fields["task"].annotation for task in TASKS.values())],  # type: ignore  # noqa: UP007
    Field(discriminator="kind"),
]
"""The section ``task`` of any recipe."""


def task_class(kind: str) -> type[Task]:
    """Return the class of a task: one of `TASKS`, or a custom one, by its import path.

    Raises:
        ValueError: if a custom class may not be imported, or is no task.
    """
    if not is_reference(kind):
        return TASKS[kind]
    custom = load_reference(kind)
    if not (isinstance(custom, type) and issubclass(custom, Task)):
        raise ValueError(f"{kind}: expected a subclass of heedful.tasks.base.Task")
    return custom


def task_for(recipe: schema.Recipe, processor: TaskProcessor | None = None) -> Task:
    """Make the task of a recipe."""
    return task_class(recipe.task.kind)(recipe, processor)

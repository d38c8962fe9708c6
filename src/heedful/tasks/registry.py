"""Every task by name: a line in `TASKS` adds a task to recipes and commands."""

from collections.abc import Iterator, Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Any

from heedful.parts import check_part, is_reference, load_reference
from heedful.recipes import schema
from heedful.tasks.base import Task
from heedful.tasks.inputs.processor import TaskProcessor


class _Tasks(Mapping[str, type[Task]]):
    """Classes of tasks by name, each imported when it is asked for: all of them take a third of a second."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> type[Task]:
        module, _, class_name = self.places[name].partition(":")
        found: type[Task] = getattr(import_module(f"heedful.tasks.{module}"), class_name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


TASKS = _Tasks(
    {
        "translation": "translation:Translation",
        "summarisation": "summarisation:Summarisation",
        "language-modelling": "language_modelling.task:LanguageModelling",
        "masked-language-modelling": "masked_language_modelling.task:MaskedLanguageModelling",
        "classification": "classification:Classification",
        "multilabel-classification": "multilabel_classification:MultilabelClassification",
        "image-classification": "image_classification:ImageClassification",
        "tagging": "tagging:Tagging",
        "question-answering": "question_answering.task:QuestionAnswering",
        "regression": "regression:Regression",
        "sentence-embedding": "sentence_embedding:SentenceEmbedding",
        "segmentation": "segmentation.task:ImageSegmentation",
        "captioning": "captioning.task:Captioning",
    }
)


def any_task() -> Any:
    """Return the type of the section ``task`` of any recipe, a union over ``kind``."""
    return reduce(or_, [task.Recipe.model_fields["task"].annotation for task in TASKS.values()])  # type: ignore


def task_class(kind: str) -> type[Task]:
    """Return the class of a task: one of `TASKS`, or a custom one, by its import path.

    Raises:
        ValueError: if a custom class may not be imported, or is no task.
    """
    if not is_reference(kind):
        return TASKS[kind]
    check_part(kind, Task, ())
    custom = load_reference(kind)
    if not isinstance(custom, type):
        raise ValueError(f"{kind}: expected a subclass of heedful.tasks.base.Task, got a function")
    return custom


def task_for(recipe: schema.Recipe, processor: TaskProcessor | None = None) -> Task:
    """Make the task of a recipe."""
    return task_class(recipe.task.kind)(recipe, processor)

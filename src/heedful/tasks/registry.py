"""Every task by name: one line here makes a task known to recipes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from heedful.config import Config


class TranslationTask(Config):
    """One text in, one text out; the data have the columns ``source`` and ``target``."""

    kind: Literal["translation"] = "translation"


class SummarisationTask(Config):
    """A short text for a long one; the data have the columns ``source`` and ``target``."""

    kind: Literal["summarisation"] = "summarisation"


class LanguageModellingTask(Config):
    """What comes next in running text; the data have the column ``text``."""

    kind: Literal["language-modelling"] = "language-modelling"


class MaskedLanguageModellingTask(Config):
    """Hidden tokens of running text are found again; the data have the column ``text``.

    Args:
        next_sentence: whether it is also learned to tell a text's continuation from text of another
            document.
    """

    kind: Literal["masked-language-modelling"] = "masked-language-modelling"
    next_sentence: bool = False


class _Labelling(Config):
    """A task that gives labels.

    Args:
        labels: all labels in their order; those of the training data, sorted, where none are given.
    """

    labels: list[str] | None = Field(default=None, min_length=2)

    @model_validator(mode="after")
    def _different(self) -> "_Labelling":
        if self.labels and len(set(self.labels)) < len(self.labels):
            raise ValueError("labels: one is given twice")
        return self


class ClassificationTask(_Labelling):
    """A label for a text; the data have the columns ``text`` and ``label``, and ``pair`` for a second text.

    Args:
        pairs: whether two texts have a label together.
        framed: whether special tokens stand around the texts; false, of language models and single texts:
            the text alone, as GPT-2's classifiers in other libraries read it.
    """

    kind: Literal["classification"] = "classification"
    pairs: bool = False
    framed: bool = True


class ImageClassificationTask(_Labelling):
    """A label for an image; the data have the columns ``image`` and ``label``."""

    kind: Literal["image-classification"] = "image-classification"


class TaggingTask(Config):
    """A tag for every word; the data have the columns ``words`` and ``tags``: lines with blanks, or lists."""

    kind: Literal["tagging"] = "tagging"


class QuestionAnsweringTask(Config):
    """An answer cut out of a passage; the data have the columns ``question``, ``passage`` and ``answer``.

    A column ``start``, where there is one, says at which character of the passage the answer begins;
    otherwise it is where it first occurs.

    Args:
        unanswerable: whether there may be no answer, which an empty one says.
    """

    kind: Literal["question-answering"] = "question-answering"
    unanswerable: bool = False


class RegressionTask(Config):
    """A number for a text; the data have the columns ``text`` and ``label``, and ``pair`` for a second text.

    Args:
        pairs: whether two texts have a number together.
        framed: whether special tokens stand around the texts; false, of language models and single texts:
            the text alone, as GPT-2's classifiers in other libraries read it.
    """

    kind: Literal["regression"] = "regression"
    pairs: bool = False
    framed: bool = True


class CaptioningTask(Config):
    """What an image shows, in words; the data have the columns ``image`` and ``caption``."""

    kind: Literal["captioning"] = "captioning"


TaskConfig = Annotated[
    TranslationTask
    | SummarisationTask
    | LanguageModellingTask
    | MaskedLanguageModellingTask
    | ClassificationTask
    | ImageClassificationTask
    | TaggingTask
    | QuestionAnsweringTask
    | RegressionTask
    | CaptioningTask,
    Field(discriminator="kind"),
]

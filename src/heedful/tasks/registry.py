"""Every task by name: one line here makes a task known to recipes."""

from typing import Annotated, Literal

from pydantic import Field

from heedful.config import Config


class TranslationTask(Config):
    """One text in, one text out; the data have the columns ``source`` and ``target``."""

    kind: Literal["translation"] = "translation"


class LanguageModellingTask(Config):
    """What comes next in running text; the data have the column ``text``."""

    kind: Literal["language-modelling"] = "language-modelling"


TaskConfig = Annotated[TranslationTask | LanguageModellingTask, Field(discriminator="kind")]

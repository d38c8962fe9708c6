"""Every task by name: one line here makes a task known to recipes."""

from typing import Literal

from heedful.config import Config


class TranslationTask(Config):
    """One text in, one text out; the data have the columns ``source`` and ``target``."""

    kind: Literal["translation"] = "translation"


TaskConfig = TranslationTask

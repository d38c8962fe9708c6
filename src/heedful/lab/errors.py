"""What the lectures have wrong: one list of corrections, which the page of the lectures and the gallery show.

The list is ``errors.yaml``, beside this file. A correction is a sentence; where a formula or a number is
wrong, it names the experiment that finds it.
"""

from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from heedful.config import Config
from heedful.lab.lectures import Code, Text
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml


class Correction(Config):
    """What a lecture has wrong.

    Args:
        row: the number of the row of `heedful.lab.lectures.Index` that it belongs to.
        lecture: which.
        printed: what it says.
        correct: what is true, with its source.
        experiment: of the lab, whose claim it is and which finds it wrong.
    """

    row: Annotated[int, Field(ge=1)]
    lecture: Code
    printed: Text
    correct: Text
    experiment: Text | None = None


class Corrections(Config):
    """All of them, by their rows."""

    errors: tuple[Correction, ...]


@cache
def corrections() -> tuple[Correction, ...]:
    """What is wrong in the five lectures, in the order of the rows."""
    path = Path(__file__).with_name("errors.yaml")
    return validate(read_yaml(path.read_text(encoding="utf-8"), path.name), Corrections).errors

"""Errors of the lectures and their corrections, which ``errors.yaml`` lists.

A correction is a sentence; for a wrong formula or number, it names the experiment that demonstrates the
error.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from heedful.config import Config
from heedful.lab.claims import Text
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml

Code = Literal["S0", "S1", "S2", "S3", "S4"]
"""Lectures, by the codes that claims give as their sources."""


class Correction(Config):
    """An error of a lecture and its correction.

    Args:
        row: number of the row of ``docs/teach/lectures.yaml`` it belongs to.
        lecture: code of the lecture.
        printed: what the lecture says.
        correct: what is true, with its source.
        experiment: name of the lab experiment that tests the claim and refutes it.
    """

    row: Annotated[int, Field(ge=1)]
    lecture: Code
    printed: Text
    correct: Text
    experiment: Text | None = None


class Corrections(Config):
    """All corrections, ordered by row."""

    errors: tuple[Correction, ...]


@cache
def corrections() -> tuple[Correction, ...]:
    """Load the corrections of the five lectures, ordered by row."""
    path = Path(__file__).with_name("errors.yaml")
    return validate(read_yaml(path.read_text(encoding="utf-8"), path.name), Corrections).errors

"""The index from the lectures to what implements, tests and shows them: its shape, and how it is read.

``docs/lectures.yaml`` is the index. It lists the formulas and figures of five lectures, S0 to S4, and rows: a
part, a formula, a claim or a question each, with the numbers that experiments of the lab call items. What can
be told of the file alone is checked when it is read; the tests hold that all exists which it names. What the
lectures have wrong is a list of its own (`heedful.lab.errors`), as the gallery shows it too.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml

Code = Literal["S0", "S1", "S2", "S3", "S4"]
Text = Annotated[str, Field(min_length=1)]
# Of words and single signs between them, so that every renderer makes the same anchor of it.
Title = Annotated[str, Field(pattern=r"^[A-Za-z]+((, | |-)\(?[A-Za-z0-9]+\)?)*$")]
Symbol = Annotated[str, Field(pattern=r"^heedful(\.[A-Za-z]\w*)+$")]
Test = Annotated[str, Field(pattern=r"^tests(/\w+)+\.py::test_\w+$")]


class Lecture(Config):
    """What a lecture is, and all its formulas and figures under their names.

    Args:
        title: as it stands above it.
        form: slides, a chapter, notes.
        by: who gave it, where the text says.
        equations: as it prints them, in rows of text; named after their slide where they have no number.
        figures: what each shows.
    """

    title: Text
    form: Text
    by: Text | None = None
    equations: dict[Text, Text]
    figures: dict[Text, Text]


class Place(Config):
    """What a lecture has of a row.

    Args:
        equations, figures: by their names in the `Lecture`.
        claims: what it says or asks, in other words.
    """

    equations: tuple[Text, ...] = ()
    figures: tuple[Text, ...] = ()
    claims: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> "Place":
        if not (self.equations or self.figures or self.claims):
            raise ValueError("name an equation, a figure or a claim, or leave the lecture out")
        return self


class Entry(Config):
    """A row.

    Args:
        row: its number.
        title: what it is about, in terms of the field.
        lectures: where it stands; nowhere, where all of them leave out what is needed.
        symbols: dotted names of what implements it.
        presets: models of it, by name.
        recipes: shipped recipes that train it.
        tests: that hold it, ``tests/path.py::test_name``.
        experiments: of the lab, that show it.
        no_experiment: why none does, where there is none.
        not_here: what of it heedful leaves out, and why.
    """

    row: Annotated[int, Field(ge=1)]
    title: Title
    lectures: dict[Code, Place]
    symbols: tuple[Symbol, ...] = ()
    presets: tuple[Text, ...] = ()
    recipes: tuple[Text, ...] = ()
    tests: tuple[Test, ...] = ()
    experiments: tuple[Text, ...] = ()
    no_experiment: Text | None = None
    not_here: Text | None = None

    @model_validator(mode="after")
    def _is_somewhere(self) -> "Entry":
        if not self.symbols and self.not_here is None:
            raise ValueError("a row without symbols needs a reason: not_here")
        if not self.experiments and self.no_experiment is None:
            raise ValueError("a row without experiments needs a reason: no_experiment")
        if self.experiments and self.no_experiment is not None:
            raise ValueError("no_experiment is for rows without, and this one has some")
        for names in (self.symbols, self.presets, self.recipes, self.tests, self.experiments):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{twice[0]} is named twice")
        return self


class Index(Config):
    """The lectures and the rows."""

    lectures: dict[Code, Lecture]
    rows: tuple[Entry, ...]

    @model_validator(mode="after")
    def _is_whole(self) -> "Index":
        for place, entry in enumerate(self.rows, 1):
            if entry.row != place:
                raise ValueError(f"row {place} is missing, or out of its place: {entry.row} stands there")
            if unknown := entry.lectures.keys() - self.lectures.keys():
                raise ValueError(f"row {place}: there is no lecture {min(unknown)}")
        for code, lecture in self.lectures.items():
            places = [entry.lectures[code] for entry in self.rows if code in entry.lectures]
            equations = (name for each in places for name in each.equations)
            figures = (name for each in places for name in each.figures)
            _check_names(f"equation of {code}", lecture.equations, equations)
            _check_names(f"figure of {code}", lecture.figures, figures)
        return self


def _check_names(what: str, known: Collection[str], named: Iterable[str]) -> None:
    """Refuse names that are not known, and known ones that no row has."""
    named = {*named}
    if unknown := sorted(named - {*known}):
        raise ValueError(f"there is no {what} called {unknown[0]!r}")
    if forgotten := [name for name in known if name not in named]:
        raise ValueError(f"no row has the {what} called {forgotten[0]!r}")


def read(path: Path) -> Index:
    """The index that a file holds.

    Raises:
        RequestError: it cannot be read, is not of this shape, or does not hold together; with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror})") from None
    return validate(read_yaml(text, str(path)), Index)

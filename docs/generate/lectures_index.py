"""Index of the lectures: their formulas and claims, and the code, tests and experiments for each.

The index is ``docs/teach/lectures.yaml``. It lists the formulas and figures of five lectures, S0 to S4, and
rows. A row is a component, a formula, a claim or a question; its number is the item number that lab
experiments refer to. Consistency within the file is checked on reading; the tests check that everything it
names exists. Errors of the lectures are listed separately (`heedful.lab.corrections`), because the gallery
of the lab shows them too.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from heedful.config import Config
from heedful.errors import RequestError
from heedful.lab.claims import Text
from heedful.lab.corrections import Code
from heedful.recipes.problems import validate
from heedful.recipes.yaml import read_yaml

# Words with single separators between them, so that every renderer derives the same anchor.
Title = Annotated[str, Field(pattern=r"^[A-Za-z]+((, | |-)\(?[A-Za-z0-9]+\)?)*$")]
Symbol = Annotated[str, Field(pattern=r"^heedful(\.[A-Za-z]\w*)+$")]
Test = Annotated[str, Field(pattern=r"^tests(/\w+)+\.py::test_\w+$")]


class Lecture(Config):
    """A lecture, with all its formulas and figures by name.

    Args:
        title: printed title.
        form: slides, a chapter or notes.
        by: lecturer, if stated.
        equations: formulas as printed, in plain text; unnumbered ones are named after their slide.
        figures: what each figure shows.
    """

    title: Text
    form: Text
    by: Text | None = None
    equations: dict[Text, Text]
    figures: dict[Text, Text]


class Place(Config):
    """What a lecture says about a row.

    Args:
        equations, figures: names in the `Lecture`.
        claims: claims and questions, paraphrased.
    """

    equations: tuple[Text, ...] = ()
    figures: tuple[Text, ...] = ()
    claims: tuple[Text, ...] = ()

    @model_validator(mode="after")
    def _is_not_empty(self) -> "Place":
        if not (self.equations or self.figures or self.claims):
            raise ValueError("must name an equation, a figure or a claim; otherwise remove the lecture")
        return self


class Entry(Config):
    """A row of the index.

    Args:
        row: its number.
        title: its topic, in the terms of the field.
        lectures: lectures that cover it; empty if all of them omit it.
        symbols: dotted names of the code that implements it.
        presets: names of presets that use it.
        recipes: shipped recipes that train it.
        tests: tests that verify it, as ``tests/path.py::test_name``.
        experiments: lab experiments that demonstrate it.
        no_experiment: why there is no experiment, if there is none.
        not_here: what heedful leaves out, and why.
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
    def _gives_reasons(self) -> "Entry":
        if not self.symbols and self.not_here is None:
            raise ValueError("not_here is required for a row without symbols")
        if not self.experiments and self.no_experiment is None:
            raise ValueError("no_experiment is required for a row without experiments")
        if self.experiments and self.no_experiment is not None:
            raise ValueError("no_experiment must be absent for a row with experiments")
        for names in (self.symbols, self.presets, self.recipes, self.tests, self.experiments):
            if duplicates := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{duplicates[0]} is listed twice")
        return self


class Index(Config):
    """The lectures and the rows."""

    lectures: dict[Code, Lecture]
    rows: tuple[Entry, ...]

    @model_validator(mode="after")
    def _is_consistent(self) -> "Index":
        for place, entry in enumerate(self.rows, 1):
            if entry.row != place:
                raise ValueError(f"rows must be numbered from 1 in order: expected {place}, got {entry.row}")
            if unknown := entry.lectures.keys() - self.lectures.keys():
                raise ValueError(f"row {place}: unknown lecture {min(unknown)}")
        for code, lecture in self.lectures.items():
            places = [entry.lectures[code] for entry in self.rows if code in entry.lectures]
            equations = (name for lecture_place in places for name in lecture_place.equations)
            figures = (name for lecture_place in places for name in lecture_place.figures)
            _check_names(f"equation of {code}", lecture.equations, equations)
            _check_names(f"figure of {code}", lecture.figures, figures)
        return self


def _check_names(kind: str, names: Collection[str], listed: Iterable[str]) -> None:
    """Raise ValueError for a listed name that is not in ``names``, and for a name that no row lists."""
    listed = {*listed}
    if unknown := sorted(listed - {*names}):
        raise ValueError(f"unknown {kind}: {unknown[0]!r}")
    if missing := [name for name in names if name not in listed]:
        raise ValueError(f"no row lists the {kind} named {missing[0]!r}")


def read(path: Path) -> Index:
    """Read the index from a file.

    Raises:
        RequestError: the file cannot be read, has the wrong structure or is inconsistent; the message gives
            the file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{path}: cannot be read ({error.strerror})") from None
    return validate(read_yaml(text, str(path)), Index)

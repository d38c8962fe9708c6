"""The page of the lectures, ``docs/lectures.md``: what each says, and where heedful has it.

It is made of the index (`heedful.lab.lectures`), of the corrections (`heedful.lab.errors`) and of the
experiments of the lab. It reads the same on a code host and on the site: files are named and not linked, as
the site has the documents alone, and anchors are made of letters, digits and hyphens.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from heedful.lab.errors import Correction, corrections
from heedful.lab.experiment import Experiment
from heedful.lab.lectures import Code, Entry, Index, Lecture, Place, read
from heedful.lab.registry import experiments

PACKAGE = Path(__file__).parents[1]

WORDS = """# The lectures

<!-- Made by: python -m heedful.lab.lectures_page docs/lectures.yaml > docs/lectures.md -->

Five lectures on Transformers describe what heedful is. This page follows them: every formula and figure,
and every part, claim and question, with the code that implements it, the tests that hold it, and the
experiments that show it. Where a lecture errs, heedful has the correct form, and the row says what is
printed. The numbers of the rows are what `heedful lab` calls items.

Symbols stand behind the file that they are in, and tests behind theirs. `heedful lab NAME` makes an
experiment. It judges a claim, which **holds**, **holds with conditions**, or **is wrong**; that verdict
is tested, and that another one comes out under a changed condition. `heedful describe NAME` describes a
preset, and `heedful train NAME` trains a recipe; what they scored stands among the [results](results.md).
"""


def page(index: Index, errors: Sequence[Correction], known: Mapping[str, Experiment]) -> str:
    """The whole page.

    Args:
        index: of the lectures.
        errors: of the lectures.
        known: the experiments of the lab, by name.
    """
    parts = [WORDS, _overview(index, errors)]
    parts += [_lecture(code, lecture, index.rows, errors) for code, lecture in index.lectures.items()]
    parts += ["## Rows\n", *(_row(entry, index, errors, known) for entry in index.rows)]
    return "\n".join(parts)


def _overview(index: Index, errors: Sequence[Correction]) -> str:
    lines = (
        (
            f"[{code}](#{_slug(_heading(code))})",
            plain(lecture.title),
            plain(lecture.by or ""),
            lecture.form,
            str(len(lecture.equations)),
            str(len(lecture.figures)),
            str(sum(code in entry.lectures for entry in index.rows)),
            str(sum(each.lecture == code for each in errors)),
        )
        for code, lecture in index.lectures.items()
    )
    return _table(("", "lecture", "by", "form", "formulas", "figures", "rows", "corrections"), lines)


def _heading(code: Code) -> str:
    """Of the section of a lecture, whose title stands below it."""
    return f"Lecture {code}"


def _lecture(code: Code, lecture: Lecture, rows: Sequence[Entry], errors: Sequence[Correction]) -> str:
    """What a lecture has: formulas, figures, and the rows in which it occurs."""
    places = [(entry, entry.lectures[code]) for entry in rows if code in entry.lectures]
    formulas = (
        (plain(name), f"`{text}`", _links(entry for entry, place in places if name in place.equations))
        for name, text in lecture.equations.items()
    )
    figures = (
        (plain(name), plain(text), _links(entry for entry, place in places if name in place.figures))
        for name, text in lecture.figures.items()
    )
    named = (
        link(entry, f"{entry.row}. {entry.title}")
        + _corrected(sum((each.row, each.lecture) == (entry.row, code) for each in errors))
        for entry, _ in places
    )
    by = f", by {lecture.by}" if lecture.by else ""
    sections = [
        f"## {_heading(code)}\n",
        f"{plain(f'{lecture.title}; {lecture.form}{by}')}.\n",
        "**Formulas**\n",
        _table(("formula", "as printed", "rows"), formulas),
        "**Figures**\n",
        _table(("figure", "shows", "rows"), figures),
        "**Rows**\n",
        _bullets(named),
    ]
    return "\n".join(sections)


def _corrected(number: int) -> str:
    return f" ({number} correction{'s' if number > 1 else ''})" if number else ""


def _row(entry: Entry, index: Index, errors: Sequence[Correction], known: Mapping[str, Experiment]) -> str:
    """All that is known of a row."""
    sections = [f"### {entry.row}. {entry.title}\n"]
    if entry.lectures:
        sections.append(_bullets(_places(entry.lectures, index.lectures)))
    else:
        sections.append("In none of the lectures.\n")
    own = (each for each in errors if each.row == entry.row)
    wrong = (f"{each.lecture}: {plain(each.printed)} → {plain(each.correct)}" for each in own)
    sections.append(_listed("Printed → correct", wrong))
    sections.append(_listed("Code", _by_file(map(place_of, entry.symbols))))
    sections.append(_listed("Presets", _names(entry.presets)))
    sections.append(_listed("Recipes", _names(entry.recipes)))
    tests = ((file, name) for file, _, name in (test.partition("::") for test in entry.tests))
    sections.append(_listed("Tests", _by_file(tests)))
    shown = (known[name] for name in entry.experiments)
    sections.append(
        _listed("Experiments", (f"`{e.name}`: {plain(e.stated)} **{e.expected[0]}**" for e in shown))
    )
    if entry.no_experiment is not None:
        sections.append(f"**No experiment:** {plain(entry.no_experiment)}\n")
    if entry.not_here is not None:
        sections.append(f"**Not here:** {plain(entry.not_here)}\n")
    return "\n".join(section for section in sections if section)


def _places(places: Mapping[Code, Place], lectures: Mapping[Code, Lecture]) -> Iterator[str]:
    """A line for each lecture: its claims, formulas and figures."""
    for code, place in places.items():
        formulas = [f"{plain(name)} `{lectures[code].equations[name]}`" for name in place.equations]
        parts = [*map(plain, place.claims)]
        if formulas:
            parts.append(f"Formula{'s' if len(formulas) > 1 else ''}: {'; '.join(formulas)}.")
        if place.figures:
            parts.append(f"Shown: {', '.join(map(plain, place.figures))}.")
        yield f"**{code}** {' '.join(parts)}"


def _listed(title: str, lines: Iterable[str]) -> str:
    """A list below its title; a single line beside it; nothing where there is nothing to list."""
    found = [*lines]
    if len(found) < 2:
        return "".join(f"**{title}:** {line}\n" for line in found)
    return f"**{title}**\n\n" + _bullets(found)


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _by_file(named: Iterable[tuple[str, str]]) -> Iterator[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for file, name in named:
        files[file].append(name)
    for file, names in files.items():
        yield f"`{file}`: {', '.join(f'`{name}`' for name in names)}"


def _names(names: Sequence[str]) -> Iterator[str]:
    """One line of all, or none."""
    if names:
        yield ", ".join(f"`{name}`" for name in names)


def place_of(symbol: str) -> tuple[str, str]:
    """The file of a dotted name, from the root of the repository, and what is called so within it."""
    _, *parts = symbol.split(".")
    here = PACKAGE
    while parts and (here / parts[0]).is_dir():
        here /= parts.pop(0)
    file = here / "__init__.py"
    if parts and (here / f"{parts[0]}.py").is_file():
        file = here / f"{parts.pop(0)}.py"
    return f"src/heedful/{file.relative_to(PACKAGE).as_posix()}", ".".join(parts)


def link(entry: Entry, text: str) -> str:
    """A link to a row on the page."""
    return f"[{text}](#{_slug(f'{entry.row}. {entry.title}')})"


def _links(entries: Iterable[Entry]) -> str:
    return ", ".join(link(entry, str(entry.row)) for entry in entries)


def _slug(heading: str) -> str:
    """The anchor that code hosts and the site give to a heading of plain words."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def plain(text: str) -> str:
    """Text in which nothing but `code` is a sign of the page's."""
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        escaped = pieces[i].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        pieces[i] = re.sub(r"([\\*_\[\]])", r"\\\1", escaped)
    return "`".join(pieces)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    rows = [head, rule, *lines]
    if strange := [cell for row in rows for cell in row if "|" in cell]:
        raise ValueError(f"a cell cannot hold the sign between cells: {strange[0]}")
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    print(page(read(Path(sys.argv[1])), corrections(), experiments()), end="")

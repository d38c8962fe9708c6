"""Generator of the lectures page, ``docs/teach/lectures.md``: contents of each lecture, and their code.

The page is generated from the index (`lectures_index`), and the corrections and experiments of
the lab. It must render alike on a code host and on the documentation site. So files are named
but not linked, because the site contains the documents only, and anchors consist of letters, digits and
hyphens.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lectures_index import Entry, Index, Lecture, Place, read
from markdown_table import markdown_table

import heedful
from heedful.lab.corrections import Code, Correction, corrections
from heedful.lab.experiment import Experiment
from heedful.lab.registry import experiments

PACKAGE = Path(heedful.__file__).parent

WORDS = """# The lectures

<!-- Made by: make pages -->

Five lectures on Transformers define the scope of heedful. This page follows them: it lists every formula and
figure, and every component, claim and question, with the code that implements it, the tests that verify it,
and the experiments that demonstrate it. If a lecture contains an error, heedful implements the correct form,
and the row states both. `heedful lab` refers to the row numbers as items.

Symbols are listed after the file that defines them, and tests after theirs. `heedful lab NAME` runs an
experiment. It tests a claim, which **holds**, **holds with conditions** or **is wrong**; tests assert this
verdict, and that a changed condition leads to a different one. `heedful describe NAME` describes a preset,
and `heedful train NAME` trains a recipe; their scores are in the [results](../benchmarks/results.md).
"""


def page(index: Index, errors: Sequence[Correction], experiments_by_name: Mapping[str, Experiment]) -> str:
    """Format the whole page.

    Args:
        index: index of the lectures.
        errors: corrections of the lectures.
        experiments_by_name: the experiments of the lab, by name.
    """
    parts = [WORDS, _overview(index, errors)]
    parts += [_lecture(code, lecture, index.rows, errors) for code, lecture in index.lectures.items()]
    parts += ["## Rows\n", *(_row(entry, index, errors, experiments_by_name) for entry in index.rows)]
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
            str(sum(correction.lecture == code for correction in errors)),
        )
        for code, lecture in index.lectures.items()
    )
    return _table(("", "lecture", "by", "form", "formulas", "figures", "rows", "corrections"), lines)


def _heading(code: Code) -> str:
    """Return the heading of a lecture's section; the lecture's title is in the line below it."""
    return f"Lecture {code}"


def _lecture(code: Code, lecture: Lecture, rows: Sequence[Entry], errors: Sequence[Correction]) -> str:
    """Format the section of a lecture: formulas, figures, and the rows in which it occurs."""
    places = [(entry, entry.lectures[code]) for entry in rows if code in entry.lectures]
    formulas = (
        (plain(name), f"`{text}`", _links(entry for entry, place in places if name in place.equations))
        for name, text in lecture.equations.items()
    )
    figures = (
        (plain(name), plain(text), _links(entry for entry, place in places if name in place.figures))
        for name, text in lecture.figures.items()
    )
    links = (
        link(entry, f"{entry.row}. {entry.title}")
        + _corrected(sum((correction.row, correction.lecture) == (entry.row, code) for correction in errors))
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
        _bullets(links),
    ]
    return "\n".join(sections)


def _corrected(number: int) -> str:
    return f" ({number} correction{'s' if number > 1 else ''})" if number else ""


def _row(
    entry: Entry, index: Index, errors: Sequence[Correction], experiments_by_name: Mapping[str, Experiment]
) -> str:
    """Format all information on a row."""
    sections = [f"### {entry.row}. {entry.title}\n"]
    if entry.lectures:
        sections.append(_bullets(_places(entry.lectures, index.lectures)))
    else:
        sections.append("Not covered by the lectures.\n")
    row_corrections = (correction for correction in errors if correction.row == entry.row)
    corrected_lines = (
        f"{correction.lecture}: {plain(correction.printed)} → {plain(correction.correct)}"
        for correction in row_corrections
    )
    sections.append(_listed("Printed → correct", corrected_lines))
    sections.append(_listed("Code", _by_file(map(place_of, entry.symbols))))
    sections.append(_listed("Presets", _names(entry.presets)))
    sections.append(_listed("Recipes", _names(entry.recipes)))
    tests = ((file, name) for file, _, name in (test.partition("::") for test in entry.tests))
    sections.append(_listed("Tests", _by_file(tests)))
    claims = ((name, experiments_by_name[name].claim) for name in entry.experiments)
    experiment_lines = (f"`{name}`: {plain(claim.stated)} **{claim.expected[0]}**" for name, claim in claims)
    sections.append(_listed("Experiments", experiment_lines))
    if entry.no_experiment is not None:
        sections.append(f"**No experiment:** {plain(entry.no_experiment)}\n")
    if entry.not_here is not None:
        sections.append(f"**Not implemented:** {plain(entry.not_here)}\n")
    return "\n".join(section for section in sections if section)


def _places(places: Mapping[Code, Place], lectures: Mapping[Code, Lecture]) -> Iterator[str]:
    """Format a line for each lecture: its claims, formulas and figures."""
    for code, place in places.items():
        formulas = [f"{plain(name)} `{lectures[code].equations[name]}`" for name in place.equations]
        parts = [*map(plain, place.claims)]
        if formulas:
            parts.append(f"Formula{'s' if len(formulas) > 1 else ''}: {'; '.join(formulas)}.")
        if place.figures:
            parts.append(f"Shown: {', '.join(map(plain, place.figures))}.")
        yield f"**{code}** {' '.join(parts)}"


def _listed(title: str, lines: Iterable[str]) -> str:
    """Format a bullet list below its title; a single line goes beside the title; no lines give no text."""
    entries = [*lines]
    if len(entries) < 2:
        return "".join(f"**{title}:** {line}\n" for line in entries)
    return f"**{title}**\n\n" + _bullets(entries)


def _bullets(lines: Iterable[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _by_file(symbols: Iterable[tuple[str, str]]) -> Iterator[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for file, name in symbols:
        files[file].append(name)
    for file, names in files.items():
        yield f"`{file}`: {', '.join(f'`{name}`' for name in names)}"


def _names(names: Sequence[str]) -> Iterator[str]:
    """Yield one line with all names, or nothing if there are none."""
    if names:
        yield ", ".join(f"`{name}`" for name in names)


def place_of(symbol: str) -> tuple[str, str]:
    """Return the source file of a dotted name, relative to the repository, and its qualified name there."""
    _, *parts = symbol.split(".")
    folder = PACKAGE
    while parts and (folder / parts[0]).is_dir():
        folder /= parts.pop(0)
    file = folder / "__init__.py"
    if parts and (folder / f"{parts[0]}.py").is_file():
        file = folder / f"{parts.pop(0)}.py"
    return f"src/heedful/{file.relative_to(PACKAGE).as_posix()}", ".".join(parts)


def link(entry: Entry, text: str) -> str:
    """Return a link to a row of the page."""
    return f"[{text}](#{_slug(f'{entry.row}. {entry.title}')})"


def _links(entries: Iterable[Entry]) -> str:
    return ", ".join(link(entry, str(entry.row)) for entry in entries)


def _slug(heading: str) -> str:
    """Return the anchor that code hosts and the site derive from a heading of plain words."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def plain(text: str) -> str:
    """Escape all Markdown and HTML characters except in `code`."""
    pieces = text.split("`")
    for i in range(0, len(pieces), 2):
        escaped = pieces[i].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        pieces[i] = re.sub(r"([\\*_\[\]])", r"\\\1", escaped)
    return "`".join(pieces)


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [*lines]
    if strange := [cell for row in (head, *rows) for cell in row if "|" in cell]:
        raise ValueError(f"a table cell must not contain '|': {strange[0]}")
    return markdown_table(head, rows)


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "teach"
    text = page(read(folder / "lectures.yaml"), corrections(), experiments())
    (folder / "lectures.md").write_text(text, encoding="utf-8")

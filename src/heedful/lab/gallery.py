"""The gallery: an index and a page for each experiment, with figures beside them.

Pages are self-contained HTML with inline CSS: they need no network, server or script. Pages and figures
follow the light or dark mode of the browser. Contents of the folder:

| file | content |
|---|---|
| ``index.html`` | all experiments, with their verdicts |
| ``errors.html`` | all corrections of the lectures |
| ``NAME.html`` | claim, source, measurements, verdict and control of an experiment |
| ``NAME.png``, ``NAME.dark.png``, ``NAME.svg`` | its figure |
| ``NAME.control.png`` etc. | the figure of its control |
| ``lab.json`` | all of it as data (``docs/schemas/lab.schema.json``) |
"""

import json
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path

from heedful.errors import RequestError
from heedful.files import write_text
from heedful.lab.corrections import corrections
from heedful.lab.drawing import SavedFigure, save_figure
from heedful.lab.experiment import Experiment, Measured, Result, Verdict, as_dict, column_names
from heedful.lab.text import by_heading, cell, items, number, numeric_columns, value_of

INDEX, ERRORS, DATA = "index.html", "errors.html", "lab.json"
# A sign next to the word, so that verdicts do not differ by colour alone.
SIGNS: Mapping[Verdict, tuple[str, str]] = {
    "holds": ("✓", "holds"),
    "holds with conditions": ("≈", "conditions"),
    "is wrong": ("✗", "wrong"),
}


def check_folder(folder: Path) -> None:
    """Check before any work that the folder can be written to and is empty or a gallery.

    Raises:
        RequestError: it or a parent is a file, it is not writable, or it holds other files.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        reason = "" if existing == folder else f" cannot be created: {existing}"
        raise RequestError(f"{folder}:{reason} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise RequestError(f"{folder}: cannot be written to: no write permission for {existing}")
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if names and not _is_gallery(folder):
        raise RequestError(
            f"{folder}: must be empty or a gallery of the lab, but contains {names[0]!r}; "
            "choose another folder"
        )


def _is_gallery(folder: Path) -> bool:
    """Return whether the folder contains the data file that `write_gallery` writes."""
    try:
        data = json.loads((folder / DATA).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and {"version", "experiments"} <= set(data)


def write_gallery(results: Sequence[Result], folder: Path) -> Path:
    """Write pages and figures for the results, and return the path of the index.

    Args:
        results: results of experiments and controls; a page shows all results of its experiment.
        folder: created if missing; in an existing gallery, pages with the same names are replaced.

    Raises:
        RequestError: ``folder`` is a file, contains other files (`check_folder`), or cannot be created.
        WorkError: a page or figure cannot be written.
    """
    if not results:
        raise ValueError("results must not be empty")
    check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"{folder}: cannot be created ({error.strerror})") from None
    experiments = list({result.experiment.name: result.experiment for result in results}.values())
    # Written first: this file marks the folder as a gallery, even if the rest fails.
    write_text(folder / DATA, json.dumps(as_dict(experiments, results), ensure_ascii=False, indent=1) + "\n")
    images = {id(result): _draw(result, folder) for result in results}
    for i, experiment in enumerate(experiments):
        own_results = [(result, images[id(result)]) for result in results if result.experiment is experiment]
        previous = experiments[i - 1] if i else None
        following = experiments[i + 1] if i + 1 < len(experiments) else None
        write_text(folder / f"{experiment.name}.html", _page(experiment, own_results, previous, following))
    write_text(folder / ERRORS, _errors(results))
    index = folder / INDEX
    write_text(index, _index([(result, images[id(result)]) for result in results]))
    return index


def _draw(result: Result, folder: Path) -> SavedFigure | None:
    """Write the figure of a result."""
    name = f"{result.experiment.name}{'.control' if result.control else ''}"
    return save_figure(result.panels, folder, name) if result.panels else None


def _document(title: str, body: str) -> str:
    """Format a whole page; ``body`` is HTML."""
    style = Path(__file__).with_name("gallery.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _badge(verdict: Verdict) -> str:
    sign, kind = SIGNS[verdict]
    return f'<span class="verdict {kind}"><span aria-hidden="true">{sign}</span> {escape(verdict)}</span>'


def _index(results: Sequence[tuple[Result, SavedFigure | None]]) -> str:
    """Format the index of all experiments; if only the control of an experiment was run, it is shown."""
    results_by_name: dict[str, tuple[Result, SavedFigure | None]] = {}
    for pair in sorted(results, key=lambda pair: pair[0].control):
        results_by_name.setdefault(pair[0].experiment.name, pair)
    experiments = {result.experiment.name: result.experiment for result, _ in results}
    counts = Counter(result.verdict for result, _ in results_by_name.values() if not result.control)
    summary = ", ".join(f"{counts[verdict]} × {verdict}" for verdict in SIGNS if counts[verdict])
    wrong = [result for result, _ in results if not result.as_expected]
    warning = "".join(
        f"<p>{escape(result.name)}: expected “{escape(result.expected)}”.</p>" for result in wrong
    )
    plural = "s" if len(experiments) > 1 else ""
    links, sections = [], []
    for place, (heading, own) in enumerate(by_heading(experiments.values()).items(), 1):
        if heading:
            links.append(f'<a href="#part-{place}">{escape(heading)}</a>')
            sections.append(f'<h2 id="part-{place}">{escape(heading)}</h2>')
        cards = "\n".join(_card(*results_by_name[experiment.name]) for experiment in own)
        sections.append(f'<ul class="cards">\n{cards}\n</ul>')
    contents = f'<nav aria-label="Parts">{" ".join(links)}</nav>\n' if links else ""
    main = "\n".join(sections)
    return _document(
        "The lab of heedful",
        "<header><h1>The lab</h1>\n<p>Claims, questions and figures of five lectures on Transformers, each "
        "tested by an experiment that measures it and gives a verdict. Each has a control: a change that "
        f"must lead to a different verdict.</p>\n<p class='soft'>{len(experiments)} experiment{plural}: "
        f"{escape(summary)}</p>{warning}\n"
        f'<p><a href="{ERRORS}">Errors in the lectures</a></p></header>\n'
        f"{contents}<main>{main}</main>",
    )


def _card(result: Result, image: SavedFigure | None) -> str:
    experiment = result.experiment
    thumbnail = ""
    if image is not None:
        # The first of several panels; all of them would be too small to read.
        ratio = f"{image.first * image.width:.0f} / {image.height}"
        image_html = _image(image, "", f' loading="lazy" style="aspect-ratio: {ratio}"')
        link = f'<a class="thumb" href="{experiment.name}.html" tabindex="-1" aria-hidden="true">'
        thumbnail = f"{link}{image_html}</a>"
    return (
        f'<li>{thumbnail}<h3><a href="{experiment.name}.html">{escape(experiment.claim.title)}</a></h3>\n'
        f'<p class="soft">{escape(experiment.claim.stated)}</p>\n'
        f'<p>{_badge(result.verdict)} <span class="soft">{escape(items(experiment))}</span></p></li>'
    )


def _image(image: SavedFigure, alt: str, attributes: str = "") -> str:
    """Format the figure in its light and dark version; ``attributes`` are further ones of the ``img`` tag."""
    return (
        f'<picture><source srcset="{image.name}.dark.png" media="(prefers-color-scheme: dark)">'
        f'<img src="{image.name}.png" alt="{escape(alt)}" width="{image.width}" '
        f'height="{image.height}"{attributes}></picture>'
    )


def _errors(results: Sequence[Result]) -> str:
    """Format the page of errors in the lectures: each correction, with the experiment that demonstrates it.

    It also lists claims that an experiment refuted and that have no correction.
    """
    by_name = {result.experiment.name: result.experiment for result in results}
    demonstrations = {error.experiment: by_name.get(error.experiment or "") for error in corrections()}
    entries = []
    for error in corrections():
        origin = f"{error.lecture}, item {error.row}"
        text = _error(error.printed, error.correct, origin, demonstrations[error.experiment])
        entries.append((error.row, text))
    for result in results:
        experiment, claim = result.experiment, result.experiment.claim
        wrong = result.verdict == "is wrong" and not (result.control or claim.asked)
        if wrong and experiment.name not in demonstrations:
            text = _error(claim.claim, result.statement, claim.source, experiment)
            entries.append((claim.items[0], text))
    entries.sort(key=lambda entry: entry[0])
    listed = "\n".join(text for _, text in entries)
    return _document(
        "Errors in the lectures – the lab of heedful",
        f'<nav aria-label="Experiments"><a href="{INDEX}">All experiments</a></nav>\n'
        "<main><h1>Errors in the lectures</h1>\n<p>Each error with its correction, in the order of the "
        "lectures' items: formulas and numbers, with the experiments that refute them; names, dates and "
        "citations.</p>\n"
        f'<ul class="plain">\n{listed}\n</ul></main>',
    )


def _error(printed: str, correct: str, origin: str, experiment: Experiment | None) -> str:
    link = f' · <a href="{experiment.name}.html">{escape(experiment.claim.title)}</a>' if experiment else ""
    return (
        f"<li><blockquote>{escape(printed)}</blockquote>\n<p>{escape(correct)}</p>\n"
        f'<p class="soft">{escape(origin)}{link}</p></li>'
    )


def _page(
    experiment: Experiment,
    results: Sequence[tuple[Result, SavedFigure | None]],
    previous: Experiment | None,
    following: Experiment | None,
) -> str:
    """Format the page of one experiment."""
    links = [f'<a href="{INDEX}">All experiments</a>']
    if previous is not None:
        links.append(f'<a rel="prev" href="{previous.name}.html">← {escape(previous.claim.title)}</a>')
    if following is not None:
        links.append(f'<a rel="next" href="{following.name}.html">{escape(following.claim.title)} →</a>')
    navigation = f'<nav aria-label="Experiments">{" ".join(links)}</nav>'
    sections = "\n".join(_section(result, image) for result, image in results)
    source = " · ".join(part for part in (experiment.claim.source, items(experiment)) if part)
    return _document(
        f"{experiment.claim.title} – the lab of heedful",
        f"{navigation}\n<main><h1>{escape(experiment.claim.title)}</h1>\n"
        f"<blockquote>{escape(experiment.claim.stated)}</blockquote>\n"
        f'<p class="soft">{escape(source)}</p>\n{sections}\n'
        f'<p class="soft">Run it yourself: <code>heedful lab {experiment.name}</code></p></main>',
    )


def _section(result: Result, image: SavedFigure | None) -> str:
    """Format a result: verdict, figure, measurements, table."""
    experiment = result.experiment
    heading = "Control" if result.control else "Verdict"
    condition = f"<p>{escape(experiment.claim.control)}</p>\n" if result.control else ""
    expectation = "" if result.as_expected else f" (expected: {escape(result.expected)})"
    figure = ""
    if image is not None:
        caption = f"{experiment.claim.title}{', control' if result.control else ''}"
        figure = (
            f"<figure>{_image(image, f'Figure: {caption}. The tables below give its numbers.')}"
            f'<figcaption class="soft"><a href="{image.name}.svg">as SVG</a></figcaption></figure>\n'
        )
    details = ""
    if result.table:
        details = _table("Details", result.table, numeric_columns(result.table)) + "\n"
    return (
        f"<section><h2>{heading}</h2>\n{condition}<p>The claim {_badge(result.verdict)}{expectation}. "
        f"{escape(result.statement)}</p>\n{figure}{_figures(result.measured)}\n{details}"
        f'<p class="soft">{escape(result.size)} form, {number(round(result.seconds, 2))} s</p></section>'
    )


def _figures(measured: Sequence[Measured]) -> str:
    rows = [
        {
            "quantity": value.name,
            "measured": value_of(value),
            "expected": "" if value.expected is None else number(value.expected),
        }
        for value in measured
    ]
    return _table("Measurements", rows, {"measured", "expected"})


def _table(caption: str, table: Sequence[Mapping[str, str | float]], numeric: Collection[str]) -> str:
    """Format a table; numeric columns are right-aligned."""
    names = {name: ' class="number"' if name in numeric else "" for name in column_names(table)}
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in names.items())
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell(row.get(name, '')))}</td>" for name, kind in names.items())
        + "</tr>"
        for row in table
    )
    # A table that is too wide scrolls separately, also by keyboard.
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
        "</table></div>"
    )

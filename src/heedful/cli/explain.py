"""``heedful explain``."""

import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.output import json_result, json_text, one_line, result, say, whole_file
from heedful.cli.predict import changed_decoding
from heedful.errors import DataError, RequestError
from heedful.explain.views import VIEWS, maker

if TYPE_CHECKING:
    from heedful.explain.summary import Shown
    from heedful.explain.view import Explanation
    from heedful.runs.run import Run

SUFFIXES = (".html", ".svg", ".png", ".json")
GIB = 2**30
MOST_CELLS = 120
"""Rows or columns of a drawing; more could not be read."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("explain", short_help="Show where a run looks while it answers an input.")(explain)


def explain(
    run: Path = typer.Argument(..., metavar="RUN", help="A run's folder."),
    input: str = typer.Argument(
        ...,
        metavar="INPUT",
        help="A text, two texts with a tab between, or a picture's path. - is standard input.",
    ),
    pair: str = typer.Option(None, metavar="TEXT", help="The second text, of runs that read pairs."),
    target: str = typer.Option(
        None, metavar="TEXT", help="Look at this answer (text, or label) instead of the run's own."
    ),
    layer: list[int] = typer.Option(None, min=1, help="Only this layer; may be repeated."),
    head: list[int] = typer.Option(None, min=1, help="Only this head of each layer; may be repeated."),
    kind: list[str] = typer.Option(
        None, metavar="KIND", help="Only this attention: self, causal or cross; may be repeated."
    ),
    view: list[str] = typer.Option(
        None, metavar="NAME", help=f"Add a view: {', '.join(VIEWS)}; may be repeated."
    ),
    decoding: list[str] = typer.Option(
        None, metavar="KEY=VALUE", help="Change how the answer is written; may be repeated."
    ),
    alternative: int = typer.Option(0, min=0, help="Which of the run's answers; 0 is the best."),
    tokens: bool = typer.Option(False, "--tokens", help="Show tokens, and not whole words."),
    limit: float = typer.Option(1.0, metavar="GIB", help="Memory that attention weights may take."),
    out: Path = typer.Option(None, help="Write a page (.html), picture (.svg, .png) or data (.json)."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    device: str = typer.Option("auto", help="auto, cpu, cuda or cuda:N."),
) -> None:
    """Show where a run looks while it answers an input: layers and heads are counted from 1."""
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise RequestError(f"--out {out}: the name ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    from heedful.explain.look import look
    from heedful.explain.points import points
    from heedful.runs.run import load

    loaded = load(run, device=device)
    # A model without attention still has the views that are asked for.
    kinds: list[str] | None = kind or None
    if view and not kind and not points(loaded.model):
        kinds = []
    seen = look(
        loaded,
        _input(loaded, input, pair),
        layers=[number - 1 for number in layer] if layer else None,
        heads=[number - 1 for number in head] if head else None,
        kinds=kinds,
        decoding=changed_decoding(loaded.recipe.decoding, decoding or []),
        target=target,
        alternative=alternative,
        views=view or (),
        limit=int(limit * GIB),
    )
    if out is not None:
        _write(seen, out, tokens)
        say(f"written: {out}")
    if as_json:
        from heedful.explain.jsonable import jsonable

        json_result(jsonable(seen))
    else:
        _show(seen, tokens)


def _input(run: "Run", given: str, pair: str | None) -> Any:
    """The input as the run takes it."""
    text = _standard_input() if given == "-" else given
    keys = run.kind.inputs(run.recipe)
    if len(keys) == 1:
        if pair is not None:
            raise RequestError(f"--pair: a run of the task {run.recipe.task.kind} reads one text")
        return text
    return tuple(text.split("\t")) if pair is None else (text, pair)


def _standard_input() -> str:
    """All of it, without the last line's end."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"standard input: byte {error.start + 1} is not UTF-8; convert it to UTF-8") from None
    return text.removeprefix("\ufeff").removesuffix("\n").removesuffix("\r")


# Files -----------------------------------------------------------------------------------------------------


def _write(seen: "Explanation", out: Path, tokens: bool) -> None:
    """The explanation in the form that the name's ending says."""
    if out.suffix.lower() in {".svg", ".png"}:
        _draw(seen, out, tokens)
        return
    text = _page(seen) if out.suffix.lower() == ".html" else _data(seen)
    with whole_file(out) as file:
        file.write(text)


def _data(seen: "Explanation") -> str:
    from heedful.explain.jsonable import jsonable

    return json_text(jsonable(seen)) + "\n"


def _page(seen: "Explanation") -> str:
    from heedful.explain.page import page

    return page(seen)


def _draw(seen: "Explanation", out: Path, tokens: bool) -> None:
    from heedful.explain.picture import heat_map, save
    from heedful.explain.summary import mean_of, over_squares

    shown = mean_of(seen)
    if shown.queries.grid is not None:
        weights = over_squares(shown)
        rows, columns = ([str(i + 1) for i in range(n)] for n in shown.queries.grid)
        who = "the class token looks" if shown.queries.before else "mean of all squares"
        note = f"{shown.title}; {who}; dark is {weights.max():.2g}"
        figure = heat_map(columns, rows, weights / weights.max(), title=_answer(seen), note=note)
    else:
        shown = shown if tokens else shown.in_words()
        words, looked_at = list(shown.queries.tokens), list(shown.keys.tokens)
        if max(len(words), len(looked_at)) > MOST_CELLS:
            raise RequestError(
                f"{out}: a drawing of {len(words)} x {len(looked_at)} cells could not be read: take .html or "
                ".json, or a shorter input"
            )
        figure = heat_map(looked_at, words, shown.weights, title=_answer(seen), note=shown.title)
    save(figure, out)


def _answer(seen: "Explanation") -> str:
    return str(seen.answer.get("text", ""))


# The terminal ----------------------------------------------------------------------------------------------


def _show(seen: "Explanation", tokens: bool) -> None:
    """The answer, the strongest links, and the views that were asked for."""
    result(f"{seen.task}: {one_line(_answer(seen))}")
    if note := seen.answer.get("note"):
        result(f"  ({note})")
    result("")
    if seen.maps:
        _show_maps(seen, tokens)
    for name, values in seen.more.items():
        for line in maker(name).lines(seen, values):
            result(one_line(line))
        result("")


def _show_maps(seen: "Explanation", tokens: bool) -> None:
    from heedful.explain.summary import mean_of, word_alignment

    shown = mean_of(seen)
    is_translation = set(seen.sides) >= {"source", "target"} and shown.keys.grid is None
    is_alignment = is_translation and shown.queries is seen.sides["target"]
    alignment = word_alignment(shown) if is_alignment else None
    shown = shown if tokens else shown.in_words()
    result(f"{shown.title}\n")
    if is_alignment and max(shown.weights.shape) <= MOST_CELLS:
        _show_alignment(shown)
    else:
        _show_links(shown)
    if alignment is not None:
        result(f"\nword alignment: {alignment}")
    result("")


def _show_alignment(shown: "Shown") -> None:
    from heedful.explain.terminal import choose_style, heat_map

    width = max(40, get_terminal_size((80, 24)).columns)
    style = choose_style(sys.stdout)
    result(heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, style=style, width=width))


def _show_links(shown: "Shown") -> None:
    """A line for each token: what it looks at most."""
    from heedful.explain.matrix import printable

    rows = shown.strongest()
    width = min(24, max((len(token) for token, _ in rows), default=0))
    for token, best in rows:
        links = "   ".join(f"{printable(to)} {weight:.2f}" for to, weight in best)
        result(f"  {printable(token):<{width}}  →  {links}")

"""``heedful explain``."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options
from heedful.cli.options import Device, Json, changed_decoding, from_command_line, grouped
from heedful.cli.output import (
    check_out,
    log,
    one_line,
    result,
    result_in_pieces,
    whole_file,
)
from heedful.cli.source import Source
from heedful.errors import RequestError
from heedful.explain.classes import MEANINGS
from heedful.explain.views import ALL, VIEWS, check_names, check_picture, maker

if TYPE_CHECKING:
    from heedful.explain.alignment import Choice
    from heedful.explain.attention_sites import Selection
    from heedful.explain.summary import Shown
    from heedful.explain.view import Explanation
    from heedful.runs.run import Run

PAGE = ".html"
PICTURES = (".svg", ".png")
SUFFIXES = (PAGE, *PICTURES, ".json")
GIB = 2**30
WIDEST = 120
"""Rows or columns of a heat map in the terminal."""

EPILOG = "\n\n".join(
    [
        "\b\nViews (--view NAME):\n" + "\n".join(f"  {name:<12} {view.says}" for name, view in VIEWS.items()),
        "Views of all inputs together take several INPUTs, and those of a file (--inputs).",
        "\b\nClasses of heads (--view census), each by how much more it does so than even attention would:\n"
        + "\n".join(f"  {name:<15} {meaning}" for name, meaning in MEANINGS.items()),
    ]
)
"""Below the options."""


@dataclass(frozen=True)
class Inputs:
    """What is looked at: inputs, and an answer in place of the run's own."""

    input: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="A text, two texts with a tab between, or a picture's path. - is standard input. Several "
            "are for views that look at all of them together; the first is explained.",
        ),
    ] = None
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Inputs of a file too, one a line; empty lines are none. - is standard input.",
        ),
    ] = None
    pair: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The second text, of runs that read pairs.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Look at this answer (text, or label) instead of the run's own."),
    ] = None

    def read(self, run: "Run") -> list[Any]:
        """All inputs as the run takes them: those that were given, then those of the file.

        Raises:
            RequestError: there are none, or a second text of several first ones.
        """
        texts = self._texts()
        if not run.kind.pictures(run.recipe):
            self._log_files()
            texts = [from_command_line(text) for text in texts]
        most = len(run.kind.inputs(run.recipe)) + len(run.kind.optional(run.recipe))
        if self.pair is not None:
            if most == 1:
                raise RequestError(f"--pair: a run of the task {run.recipe.task.kind} reads one text")
            if len(texts) > 1:
                raise RequestError("--pair: of several inputs, write both texts of each with a tab between")
            return [(texts[0], from_command_line(self.pair))]
        if most == 1:
            return list(texts)
        return [tuple(text.split("\t")) if "\t" in text else text for text in texts]

    def _log_files(self) -> None:
        """Say which of the inputs that are read as texts are names of files."""
        for text in self.input or []:
            if os.path.isfile(text):
                log(
                    f"heedful: {text!r} is read as a text; of the file of this name, --inputs reads the lines"
                )

    def _texts(self) -> list[str]:
        given = self.input or []
        if self.inputs == "-" and "-" in given:
            raise RequestError("--inputs -: standard input is an INPUT already")
        texts = [Source.of(text).text() if text == "-" else text for text in given]
        if self.inputs is not None:
            texts += [line for line in Source.of(self.inputs).lines() if line.strip()]
        if not texts:
            file = self.inputs
            what = f"{file}: there is no input in it" if file else "no input: give INPUT, or --inputs FILE"
            raise RequestError(what)
        return texts


@dataclass(frozen=True)
class Attention:
    """Whose attention is shown, and which views besides; layers and heads are counted from 1."""

    layer: Annotated[list[int] | None, typer.Option(min=1, help="Only this layer; may be repeated.")] = None
    head: Annotated[
        list[int] | None, typer.Option(min=1, help="Only this head of each layer; may be repeated.")
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Only this attention: self, causal or cross; may be repeated."),
    ] = None
    view: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Add a view (below): {', '.join(VIEWS)}; may be repeated. {ALL}: those that this run and "
            "input have.",
        ),
    ] = None

    @property
    def views(self) -> list[str]:
        """Their names."""
        return self.view or []

    def maps(self, run: "Run") -> "Selection":
        """Whose attention is looked at."""
        from heedful.explain.attention_sites import Selection, points

        kinds = self.kind or None
        # A model without attention still has the views that are asked for.
        if self.views and not kinds and not points(run.model):
            kinds = []
        layers, heads = ([n - 1 for n in given] if given else None for given in (self.layer, self.head))
        return Selection(layers, heads, kinds)


@dataclass(frozen=True)
class Answer:
    """How the run writes its answer, and which of its answers is looked at."""

    decoding: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Change how the answer is written; may be repeated."),
    ] = None
    alternative: Annotated[int, typer.Option(min=0, help="Which of the run's answers; 0 is the best.")] = 0


@dataclass(frozen=True)
class Form:
    """In which form it is shown, and how much of it."""

    exact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER.HEAD",
            help="Have every weight of this head in the page (LAYER: of all its heads); may be repeated. A "
            "page of long inputs otherwise has the strongest links of each row.",
        ),
    ] = None
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens, and not whole words.")] = False
    limit: Annotated[float, typer.Option(metavar="GIB", help="Memory that attention weights may take.")] = 1.0
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a page (.html), a picture (.svg, .png: of the view, else of attention) or data "
            "(.json).",
        ),
    ] = None
    as_json: Json = False

    @property
    def memory(self) -> int:
        """In bytes.

        Raises:
            RequestError: it is no number of GiB, or none is left.
        """
        if not 0 < self.limit * GIB < inf:
            raise RequestError(f"--limit {self.limit:g}: expected a number of GiB above 0")
        return int(self.limit * GIB)

    @property
    def every_weight(self) -> "list[Choice]":
        """The heads of which a page has every weight.

        Raises:
            RequestError: no page is written, or a name is none.
        """
        if not self.exact:
            return []
        if self.out is None or self.out.suffix.lower() != PAGE:
            raise RequestError(f"--exact: it is for pages (--out NAME{PAGE}); data (.json) has every weight")
        from heedful.explain.alignment import Choice

        return [Choice.parse(name, "--exact") for name in self.exact]

    def check(self, views: Sequence[str]) -> None:
        """See, before anything is looked at, that the views are there and can be shown so."""
        check_out(self.out, SUFFIXES)
        check_names(views)
        if self.out is not None and self.out.suffix.lower() in PICTURES:
            check_picture(views)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    command = app.command(
        "explain", short_help="Show where a run looks while it answers an input.", epilog=EPILOG
    )
    command(grouped(explain))


def explain(
    run: options.Run,
    inputs: Inputs,
    attention: Attention,
    answer: Answer,
    form: Form,
    device: Device = "auto",
) -> None:
    """Show where a run looks while it answers an input: layers and heads are counted from 1."""
    form.check(attention.views)
    memory, exact = form.memory, form.every_weight
    from heedful.runs.run import load

    seen = _seen(load(run, device=device), inputs, attention, answer, memory)
    if ALL in attention.views:
        _log_left_out(seen)
    if form.out is not None:
        _write(seen, form.out, form.tokens, exact)
        log(f"written: {form.out}")
    if form.as_json:
        from heedful.explain.jsonable import pieces

        result_in_pieces(pieces(seen))
    else:
        _show(seen, form.tokens)


def _seen(run: "Run", inputs: Inputs, attention: Attention, answer: Answer, memory: int) -> "Explanation":
    """The explanation of the first input; maps may take so many bytes of memory."""
    from heedful.explain.explaining import explain_input
    from heedful.explain.reading import AnswerOptions

    maps = attention.maps(run)
    first, *others = inputs.read(run)
    if others:
        log(f"heedful: looking at {1 + len(others):,} inputs")
    decoding = changed_decoding(run.recipe.decoding, answer.decoding)
    target = None if inputs.target is None else from_command_line(inputs.target)
    asked = AnswerOptions(decoding, target, answer.alternative)
    return explain_input(
        run, first, maps=maps, asked=asked, views=attention.views, others=others, limit=memory
    )


def _log_left_out(seen: "Explanation") -> None:
    """Which views this run or input has not, and why."""
    for name, view in VIEWS.items():
        if name not in seen.more:
            log(f"heedful: the view {name} is left out: {seen.absent.get(name, f'it needs {view.needs}')}")


# Files -----------------------------------------------------------------------------------------------------


def _write(seen: "Explanation", out: Path, tokens: bool, exact: "Sequence[Choice]") -> None:
    """The explanation in the form that the name's ending says; a page with all weights of some heads."""
    if out.suffix.lower() in PICTURES:
        from heedful.explain.figure import figure_of
        from heedful.explain.picture import save

        save(figure_of(seen, tokens=tokens), out)
        return
    text = [_page(seen, exact)] if out.suffix.lower() == PAGE else _data(seen)
    with whole_file(out) as file:
        file.writelines(text)


def _data(seen: "Explanation") -> "Iterator[str]":
    from heedful.explain.jsonable import pieces

    yield from pieces(seen)
    yield "\n"


def _page(seen: "Explanation", exact: "Sequence[Choice]") -> str:
    from heedful.explain.page import page

    return page(seen, exact=[head for choice in exact for head in _heads(seen, choice)])


def _heads(seen: "Explanation", choice: "Choice") -> list[tuple[str, int]]:
    """Of every kind of attention that has the layer: the taps, and the head, or all heads that are shown.

    Raises:
        RequestError: there are none.
    """
    found = [
        (each.tap, head)
        for each in seen.maps
        if each.layer == choice.layer
        for head in each.heads
        if choice.head in (None, head)
    ]
    if not found:
        name = f"{choice.layer + 1}" if choice.head is None else f"{choice.layer + 1}.{choice.head + 1}"
        layers = sorted({each.layer + 1 for each in seen.maps})
        heads = sorted({head + 1 for each in seen.maps for head in each.heads})
        shown = f"shown are layers {', '.join(map(str, layers))} with heads {', '.join(map(str, heads))}"
        raise RequestError(
            f"--exact {name}: no such head is shown; {shown if layers else 'no head is shown'}"
        )
    return found


# The terminal ----------------------------------------------------------------------------------------------


def _show(seen: "Explanation", tokens: bool) -> None:
    """The answer, the strongest links, and the views that were asked for."""
    result(f"{seen.task}: {one_line(str(seen.answer.get('text', '')))}")
    if note := seen.answer.get("note"):
        result(f"  ({note})")
    if (follows := seen.answer.get("follows")) is not None:
        result(f"  (the second text follows the first: probability {follows:.2f})")
    result("")
    if seen.maps:
        _show_maps(seen, tokens)
    for name, values in seen.more.items():
        for line in maker(name).lines(seen, values):
            result(one_line(line))
        result("")


def _show_maps(seen: "Explanation", tokens: bool) -> None:
    from heedful.explain.summary import alignment_of, mean_of

    shown = mean_of(seen)
    is_translation = set(seen.sides) >= {"source", "target"} and shown.keys.grid is None
    is_alignment = is_translation and shown.queries is seen.sides["target"]
    alignment = alignment_of(seen) if is_alignment else None
    shown = shown if tokens else shown.in_words()
    result(f"{shown.title}\n")
    if is_alignment and max(shown.weights.shape) <= WIDEST:
        _show_alignment(shown)
    else:
        from heedful.explain.terminal import link_lines

        for line in link_lines(shown.strongest()):
            result(line)
    if alignment is not None:
        result(f"\nword alignment: {alignment}")
    result("")


def _show_alignment(shown: "Shown") -> None:
    from heedful.explain.terminal import choose_style, heat_map

    width = max(40, get_terminal_size((80, 24)).columns)
    style = choose_style(sys.stdout)
    result(heat_map(shown.keys.tokens, shown.queries.tokens, shown.weights, style=style, width=width))

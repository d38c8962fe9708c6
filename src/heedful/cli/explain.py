"""The command ``heedful explain``."""

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options
from heedful.cli.explain_inputs import Inputs
from heedful.cli.explain_many import (
    LINES,
    ExplainedInputs,
    check_folder,
    is_folder,
    write_lines,
    write_pages,
)
from heedful.cli.options import DecodingChanges, Device, Json, from_command_line
from heedful.cli.output import (
    check_not_input,
    check_out,
    log,
    one_line,
    result,
    result_in_pieces,
    terminal_width,
)
from heedful.cli.tables import TABLES
from heedful.cli.word_tables import VIEWS_OF_WORDS, check_views, rows_of, write_words
from heedful.errors import RequestError
from heedful.explain.patterns.classes import CLASSES
from heedful.explain.views import (
    ALL,
    OVER_INPUTS,
    PAGE,
    SUFFIXES,
    VIEWS,
    check_image,
    check_names,
    view_module,
)
from heedful.files import IMAGES, has_suffix

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.explain.alignment.word_alignment import HeadChoice
    from heedful.explain.drawings import Drawing
    from heedful.explain.explanation import Explanation
    from heedful.explain.summary import AttentionMatrix
    from heedful.tasks.prediction import TaskInput

NO_ATTENTION = "none"
"""In place of a kind of attention: no attention is shown."""

GIB = 2**30
WIDEST = 120
"""Maximum rows or columns of a heat map in the terminal."""


def _aligned(texts: Mapping[str, str]) -> str:
    """Return a line for each name and its text, in two columns."""
    width = max(map(len, texts)) + 1
    return "\n".join(f"  {name:<{width}} {text}" for name, text in texts.items())


EPILOG = "\n\n".join(
    [
        "\b\nViews (--view NAME):\n" + _aligned({name: view.description for name, view in VIEWS.items()}),
        f"Views over all inputs ({', '.join(OVER_INPUTS)}) read every INPUT and those of --inputs; patching "
        "needs two inputs with equal numbers of tokens.",
        "\b\nHead classes (--view census), scored relative to uniform attention:\n"
        + _aligned({name: each.meaning for name, each in CLASSES.items()}),
    ]
)
"""Text below the options in the help."""


@dataclass(frozen=True)
class Attention:
    """Options that select attention heads and views; layers and heads are counted from 1."""

    layer: Annotated[list[int] | None, typer.Option(min=1, help="Show only this layer; may be repeated.")] = (
        None
    )
    head: Annotated[
        list[int] | None, typer.Option(min=1, help="Show only this head of each layer; may be repeated.")
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Show only this kind of attention: self, causal or cross; may be repeated. none: no "
            "attention.",
        ),
    ] = None
    view: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Add a view (below): {', '.join(VIEWS)}; may be repeated. {ALL}: every view that "
            "this run and input support.",
        ),
    ] = None

    @property
    def views(self) -> list[str]:
        """Names of the requested views."""
        return self.view or []

    def selection(self, run: "Run") -> tuple[list[int] | None, list[int] | None, list[str] | None]:
        """Return the layers and heads to capture, from 0, and the kinds of attention; None: all.

        Raises:
            RequestError: no attention and a kind of it are requested.
        """
        from heedful.explain.attention_sites import find_sites

        kinds = self.kind or None
        if NO_ATTENTION in (kinds or ()):
            if kinds != [NO_ATTENTION]:
                raise RequestError(f"--kind: {NO_ATTENTION} cannot be combined with kinds of attention")
            kinds = []
        # A model without attention can still have the requested views.
        if self.views and not kinds and not find_sites(run.model):
            kinds = []
        layers, heads = ([n - 1 for n in numbers] if numbers else None for numbers in (self.layer, self.head))
        return layers, heads, kinds


@dataclass(frozen=True)
class Answer(DecodingChanges):
    """Options for decoding and for choosing one of the answers."""

    alternative: Annotated[int, typer.Option(min=0, help="Rank of the answer to explain; 0 is the best.")] = 0


@dataclass(frozen=True)
class Form:
    """Options for the format and size of the output."""

    exact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LAYER.HEAD",
            help="Include every weight of this head in the page (LAYER: of all its heads); may be repeated. "
            "Otherwise pages of long inputs contain only the strongest links of each row.",
        ),
    ] = None
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens instead of words.")] = False
    memory: Annotated[
        float, typer.Option(metavar="GIB", help="Memory limit for attention weights, in GiB.")
    ] = 1.0
    limit: Annotated[str | None, typer.Option(metavar="N", help="Not an option: renamed to --memory.")] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a self-contained page (.html), an image (.svg, .png: of the view, else of "
            "attention) or data (.json) of the first input; of every input by itself, a folder of pages (a "
            "name without a suffix), data (.jsonl), or scores of its words (.csv, .tsv, .xlsx: with "
            f"--view {', '.join(VIEWS_OF_WORDS[:-1])} or {VIEWS_OF_WORDS[-1]})."
        ),
    ] = None
    id: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Field of --inputs that names the pages of a folder. [default: id, otherwise the number]",
        ),
    ] = None
    as_json: Json = False

    @property
    def is_table(self) -> bool:
        """Whether a table of words is written, of all inputs."""
        return self.out is not None and has_suffix(self.out.name, *TABLES)

    @property
    def is_folder(self) -> bool:
        """Whether a folder of pages is written, of all inputs."""
        return self.out is not None and is_folder(self.out)

    @property
    def is_of_each(self) -> bool:
        """Whether every input is explained by itself."""
        return self.is_table or self.is_folder or (self.out is not None and has_suffix(self.out.name, LINES))

    def check(self, views: Sequence[str]) -> "tuple[int, list[HeadChoice]]":
        """Check, before any work, that the views exist and support the output format, and the options.

        Returns:
            The memory limit in bytes, and the heads whose weights are all included in the page.

        Raises:
            RequestError: an option is not supported, or its value is invalid.
        """
        if self.out is not None and self.is_folder:
            check_folder(self.out)
        else:
            check_out(self.out, (*SUFFIXES, LINES, *TABLES))
            if self.id is not None:
                raise RequestError("--id: names the pages of a folder; add --out FOLDER")
        check_names(views)
        if self.is_of_each and self.as_json:
            raise RequestError(
                f"--json: not supported with --out {self.out}, which is of every input; remove one of them"
            )
        if self.out is not None and self.is_table:
            check_views(views, self.out)
        suffix = None if self.out is None else self.out.suffix.lower()
        if suffix in IMAGES:
            check_image(views)
        if self.limit is not None:
            raise RequestError(
                f"--limit {self.limit}: not supported; for the memory of attention weights, --memory GIB; to "
                "explain only the first inputs of a file, give a shorter file"
            )
        if not 0 < self.memory * GIB < inf:
            raise RequestError(f"--memory must be a positive number of GiB, got {self.memory:g}")
        if self.exact and suffix != PAGE and not self.is_folder:
            raise RequestError(
                f"--exact: requires a page (--out NAME{PAGE}); .json files contain every weight"
            )
        from heedful.explain.alignment.word_alignment import HeadChoice

        return int(self.memory * GIB), [HeadChoice.parse(name, "--exact") for name in self.exact or []]


def explain(
    run: options.Run,
    inputs: Inputs,
    attention: Attention,
    answer: Answer,
    form: Form,
    device: Device = "auto",
) -> None:
    """Explain an answer: which words decided (--view occlusion), attention, and further views.

    Without --view, attention is shown: what each head attends to, which does not say why the answer was
    given. Layers and heads are counted from 1.
    """
    memory, exact = form.check(attention.views)
    from heedful.api.run import load

    if form.is_of_each:
        _explain_each(load(run, device=device), inputs, attention, answer, form, memory, exact)
        return
    explanation = _explain_first(load(run, device=device), inputs, attention, answer, memory)
    _log_unavailable_views(explanation, VIEWS if ALL in attention.views else explanation.unavailable)
    if form.out is not None:
        _save(explanation, form, form.out, exact)
        log(f"wrote {form.out}")
    if form.as_json:
        from heedful.explain.json_format import json_pieces

        result_in_pieces(json_pieces(explanation))
    else:
        _show(explanation, form.tokens)


def _explain_first(
    run: "Run", inputs: Inputs, attention: Attention, answer: Answer, memory: int
) -> "Explanation":
    """Explain the first input; attention maps use at most `memory` bytes."""
    layers, heads, kinds = attention.selection(run)
    first_input, *other_inputs = inputs.read(run)
    if other_inputs:
        log(f"heedful: explaining {1 + len(other_inputs):,} inputs")
    decoding = answer.changed(run.recipe.decoding)
    target = None if inputs.target is None else from_command_line(inputs.target)
    return run.explain(
        first_input,
        layers=layers,
        heads=heads,
        kinds=kinds,
        views=attention.views,
        target=target,
        alternative=answer.alternative,
        decoding=decoding,
        others=other_inputs,
        limit=memory,
    )


def _save(explanation: "Explanation", form: Form, out: Path, exact: "Sequence[HeadChoice]") -> None:
    heads = [head for choice in exact for head in _heads(explanation, choice)]
    explanation.save(out, tokens=form.tokens, exact=heads)


def _explain_each(
    run: "Run",
    inputs: Inputs,
    attention: Attention,
    answer: Answer,
    form: Form,
    memory: int,
    exact: "Sequence[HeadChoice]",
) -> None:
    """Explain every input by itself, and write a table of words, pages or JSON lines.

    Raises:
        WorkError: some inputs could not be explained; what is written has the others.
        RequestError: none could be explained.
    """
    assert form.out is not None
    decoding, target = answer.changed(run.recipe.decoding), inputs.target
    layers, heads, kinds = (None, None, []) if form.is_table else attention.selection(run)
    if not form.is_folder and inputs.inputs not in (None, "-"):
        check_not_input(form.out, [inputs.inputs])

    def explained(task_input: "TaskInput") -> "Explanation":
        return run.explain(
            task_input,
            layers=layers,
            heads=heads,
            kinds=kinds,
            views=attention.views,
            target=None if target is None else from_command_line(target),
            alternative=answer.alternative,
            decoding=decoding,
            limit=memory,
        )

    records = inputs.records(run)
    if form.is_table:
        write_words(ExplainedInputs(records, rows_of(explained, attention.views), form.out))
        return
    each = ExplainedInputs(records, explained, form.out)
    if form.is_folder:
        write_pages(each, form.id, lambda explanation, out: _save(explanation, form, out, exact))
    else:
        write_lines(each)


def _log_unavailable_views(explanation: "Explanation", names: Iterable[str]) -> None:
    """Log which of the requested views this run or input does not support, and why."""
    for name in names:
        if name not in explanation.views:
            reason = explanation.unavailable.get(name, f"it needs {VIEWS[name].requirement}")
            log(f"heedful: view {name} is not available: {reason}")


def _heads(explanation: "Explanation", choice: "HeadChoice") -> list[tuple[str, int]]:
    """Return (tap, head) pairs of the chosen layer: the chosen head, or all captured heads.

    Raises:
        RequestError: no such head was captured.
    """
    matching = [
        (site_map.tap, head)
        for site_map in explanation.maps
        if site_map.layer == choice.layer
        for head in site_map.heads
        if choice.head in (None, head)
    ]
    if not matching:
        name = f"{choice.layer + 1}" if choice.head is None else f"{choice.layer + 1}.{choice.head + 1}"
        layer_numbers = sorted({site_map.layer + 1 for site_map in explanation.maps})
        head_numbers = sorted({head + 1 for site_map in explanation.maps for head in site_map.heads})
        available = (
            f"expected layers {', '.join(map(str, layer_numbers))} "
            f"and heads {', '.join(map(str, head_numbers))}"
        )
        raise RequestError(
            f"--exact {name}: this head is not shown; {available if layer_numbers else 'no head is shown'}"
        )
    return matching


def _show(explanation: "Explanation", tokens: bool) -> None:
    """Print the answer, the requested views, and the strongest links of attention."""
    result(f"{explanation.task}: {one_line(explanation.text)}")
    if notes := explanation.answer.get("notes"):
        result(f"  ({'; '.join(notes)})")
    if (follows := explanation.answer.get("follows")) is not None:
        result(f"  (probability that the second text follows the first: {follows:.2f})")
    result("")
    _show_views(explanation)
    if explanation.maps:
        _show_maps(explanation, tokens)


def _show_views(explanation: "Explanation") -> None:
    from heedful.explain.drawing.on_terminal import lines
    from heedful.explain.drawing.terminal import choose_style
    from heedful.explain.drawings import share_scales

    style, width = choose_style(sys.stdout), terminal_width()
    by_view = {name: _drawings(explanation, name) for name in explanation.views}
    scaled = iter(share_scales([drawing for drawings in by_view.values() for drawing in drawings]))
    for name, drawings in by_view.items():
        if not drawings:
            result(f"view {name}: there is nothing to draw\n")
        for drawing in islice(scaled, len(drawings)):
            for line in lines(drawing, explanation.axes, style=style, width=width):
                result(one_line(line))
            result("")


def _drawings(explanation: "Explanation", view: str) -> "list[Drawing]":
    """Return the drawings of a view for the terminal."""
    found = view_module(view).drawings(explanation, explanation.views[view])
    return [drawing for drawing in found if "terminal" in drawing.media]


def _show_maps(explanation: "Explanation", tokens: bool) -> None:
    from heedful.explain.summary import ABOUT_ATTENTION, alignment_of, summary_matrix

    matrix = summary_matrix(explanation)
    is_translation = set(explanation.axes) >= {"source", "target"} and matrix.keys.grid is None
    is_alignment = is_translation and matrix.queries is explanation.axes["target"]
    alignment = alignment_of(explanation) if is_alignment else None
    matrix = matrix if tokens else matrix.to_words()
    result(f"{matrix.title}\n")
    if is_alignment and max(matrix.weights.shape) <= WIDEST:
        _show_alignment(matrix)
    else:
        from heedful.explain.drawing.terminal import link_lines

        for line in link_lines(matrix.strongest()):
            result(line)
    if alignment is not None:
        result("\n" + ": ".join(alignment))
    has_words = bool({*explanation.views} & {*VIEWS_OF_WORDS})
    about = ABOUT_ATTENTION if has_words else f"{ABOUT_ATTENTION} --view occlusion shows what decided."
    result("\n" + textwrap.fill(about, terminal_width()) + "\n")


def _show_alignment(matrix: "AttentionMatrix") -> None:
    from heedful.explain.drawing.terminal import choose_style, heat_map

    width = terminal_width()
    style = choose_style(sys.stdout)
    result(heat_map(matrix.keys.tokens, matrix.queries.tokens, matrix.weights, style=style, width=width))

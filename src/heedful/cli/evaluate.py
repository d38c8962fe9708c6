"""``heedful evaluate``."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from heedful.cli import options
from heedful.cli.options import Decoding, Device, Json, grouped
from heedful.cli.output import json_result, json_text, log, result, whole_file
from heedful.errors import RequestError

if TYPE_CHECKING:
    from heedful.data.sources import SourceConfig
    from heedful.explain import error_rates
    from heedful.runs.kind import Evaluation, OwnData
    from heedful.runs.run import Run


@dataclass(frozen=True)
class Sources:
    """Which data: a data set of the recipe, or the user's own files."""

    split: Annotated[
        str, typer.Option(help="test (all test sets), valid, train, or one test set's name.")
    ] = "test"
    data: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="SOURCE TARGET", help="Score on these two aligned files instead."),
    ] = None
    text: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Score a language model, masked or not, on this file instead; may be repeated.",
        ),
    ] = None
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Score a classifier (tagger, captioner …) on a table like the recipe's, on one whose first "
            "line names the columns, or on JSON lines.",
        ),
    ] = None
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Score a classifier of pictures on this folder, with a folder for each label; or a "
            "captioner.",
        ),
    ] = None

    def check(self) -> None:
        """Refuse files for several tasks."""
        if len(given := self._given()) > 1:
            raise RequestError(f"{' and '.join(f'--{form}' for form in given)}: give one of them")

    def chosen(self, run: "Run") -> "dict[str, SourceConfig]":
        """The data sets by their names.

        Raises:
            RequestError: the run's task is not scored on such files, or one is not there.
        """
        from heedful.data.lines import find
        from heedful.runs.evaluate import as_options, chosen_splits

        given = self._given()
        for form, files in given.items():
            if form not in run.kind.own_data:
                task, own = run.recipe.task.kind, as_options(run.kind.own_data)
                raise RequestError(f"--{form}: a run of the task {task} is scored on {own}")
            if form in ("data", "table"):  # the others may be folders
                for file in files:
                    find(str(file), Path())
        return chosen_splits(run, self.split, next(iter(given.values()), None))

    def _given(self) -> "dict[OwnData, Sequence[Path]]":
        """The files to score on instead of the recipe's, by the form that they have."""
        table, folder = [self.table] if self.table else None, [self.folder] if self.folder else None
        forms: dict[OwnData, Sequence[Path] | None]
        forms = {"data": self.data, "text": self.text, "table": table, "folder": folder}
        return {form: files for form, files in forms.items() if files}


@dataclass(frozen=True)
class Judging:
    """Whether and how attention is held against gold alignments."""

    alignments: Annotated[
        str | None,
        typer.Option(
            metavar="GOLD",
            help="Score the attention instead: word alignments, a line for each sentence pair (1-1 2p3).",
        ),
    ] = None
    first_word: Annotated[int, typer.Option(min=0, max=1, help="What GOLD calls the first word: 0 or 1.")] = 0
    dev: Annotated[
        int,
        typer.Option(min=0, help="Choose the head by the first so many pairs, and report it on the others."),
    ] = 0
    head: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER.HEAD", help="Report this head, from 1; LAYER alone: the mean of its heads."
        ),
    ] = None
    links: Annotated[
        Literal["target", "source", "both"],  # heedful.explain.alignment.Direction
        typer.Option(
            help="target: each target word with the source word that it looks at most; source: each source "
            "word with the target word that looks at it most; both: what is linked both ways."
        ),
    ] = "target"
    step: Annotated[
        Literal["output", "input"] | None,  # heedful.objectives.guided.DecoderStep
        typer.Option(
            help="Where a target word is looked for: output, as it is foretold; input, as it is read. "
            "[default: both; with --head: output]"
        ),
    ] = None

    def check(self, decoding: Decoding, extent: "Extent") -> None:
        """Refuse options that say nothing about what is to be scored.

        Of alignments nothing is decoded, and there are no windows.
        """
        own = {
            "--first-word": self.first_word,
            "--dev": self.dev,
            "--head": self.head,
            "--links": self.links != "target",
            "--step": self.step,
        }
        decoded = {
            "--beam": decoding.beam,
            "--decoding": decoding.decoding,
            "--stride": extent.stride,
            "--evaluation": extent.evaluation,
            "--precision": decoding.precision != "auto",
        }
        for option, value in (own if self.alignments is None else decoded).items():
            if value:
                alone = "is for --alignments GOLD"
                why = alone if self.alignments is None else "has no meaning with --alignments"
                raise RequestError(f"{option} {why}")

    def scoring(self, limit: int | None) -> "error_rates.AlignmentScoring":
        """As `heedful.explain.error_rates.evaluate_alignments` takes it."""
        from heedful.explain.alignment import STEPS, Choice
        from heedful.explain.error_rates import AlignmentScoring

        assert self.alignments is not None
        steps = STEPS if self.step is None else (self.step,)
        return AlignmentScoring(
            self.alignments,
            first=self.first_word,
            development=self.dev,
            choice=None if self.head is None else Choice.parse(self.head, "--head", step=steps[0]),
            by=self.links,
            steps=steps,
            limit=limit,
        )

    def remember(self, run: "Run", found: "error_rates.Evaluation") -> None:
        """Keep the head that was chosen with the run: ``explain`` shows it first."""
        from heedful.explain.best_head import keep

        shown = keep(run, found.table, found.judged)
        if shown is not None:
            state = "is now" if shown.choice == found.chosen.choice else "stays"
            log(f"{shown.choice} {state} the one that heedful explain shows first: {shown.why}")


@dataclass(frozen=True)
class Extent:
    """How much is scored, and where its single scores go."""

    stride: Annotated[
        int | None,
        typer.Option(
            min=1, help="Also read a text in windows that move on by so many tokens (language models)."
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write every sentence or document with its scores, as JSON lines; or the links found."
        ),
    ] = None
    limit: Annotated[
        int | None, typer.Option(min=1, help="Score only the first so many sentences or documents.")
    ] = None
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Change a setting of the recipe's section evaluation: language=ja; may be repeated.",
        ),
    ] = None


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("evaluate", short_help="Score a run on test data.")(grouped(evaluate))


def evaluate(
    run: options.Run,
    sources: Sources,
    judging: Judging,
    extent: Extent,
    decoding: Decoding,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score a run on test data, with what is needed to compare the scores."""
    from heedful.runs.evaluate import with_evaluation
    from heedful.runs.run import load

    sources.check()
    judging.check(decoding, extent)
    loaded = load(run, device=device)
    if extent.evaluation:
        loaded = with_evaluation(loaded, extent.evaluation)
    if judging.alignments is None:
        found = _scored(loaded, sources, extent, decoding, shown=not as_json)
    else:
        found = [_judged(loaded, sources, extent, judging, shown=not as_json)]
    if as_json:
        json_result({"version": 1, "run": str(run), "splits": [each.to_dict() for each in found]})


def _judged(run: "Run", sources: Sources, extent: Extent, judging: Judging, *, shown: bool) -> "Evaluation":
    """Score the attention of one data set, show the table of all heads, and write the links of the chosen."""
    from heedful.explain.error_rates import evaluate_alignments

    chosen = sources.chosen(run)
    if len(chosen) > 1:
        known = ", ".join(chosen)
        raise RequestError(f"--alignments are of one data set: give --data, or --split with one of {known}")
    ((name, source),) = chosen.items()
    with _to(extent.output) as write:
        log(f"{name}: reading the attention")
        found = evaluate_alignments(run, name, source, judging.scoring(extent.limit))
        write(found.pharaoh())
    if judging.head is None:
        judging.remember(run, found)
    if shown:
        for line in found.lines():
            result(line)
        result(f"the head marked *: {found.chosen.choice}")
        _show(name, "sentences", found.scores)
    return found


def _scored(
    run: "Run", sources: Sources, extent: Extent, decoding: Decoding, *, shown: bool
) -> "list[Evaluation]":
    """Score one data set after the other, show each, and write what was scored in it."""
    from heedful.runs.evaluate import evaluate as score
    from heedful.runs.kind import Scoring

    chosen = sources.chosen(run)
    how = Scoring(
        decoding.settings(run.recipe.decoding), extent.limit, extent.stride, precision=decoding.precision
    )
    if run.kind.scored_by_writing:
        log(f"heedful: decoding in {run.inference(decoding.precision).chosen}")
    evaluations = []
    with _to(extent.output) as write:
        for name, source in chosen.items():
            log(f"{name}: {run.kind.scoring}")
            found = score(run, name, source, how)
            evaluations.append(found)
            for note in found.notes:
                log(f"heedful: {name}: {note}")
            if shown:
                _show(name, run.kind.unit, found.scores)
            write(json_text({"split": name, **row}) for row in found.rows())
    return evaluations


@contextmanager
def _to(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """What writes lines to a file (`whole_file`); where there is none, they are not even made."""
    if output is None:
        yield lambda lines: None
        return
    with whole_file(output) as file:
        yield lambda lines: file.writelines(line + "\n" for line in lines)


def _show(name: str, unit: str, scores: list[Any]) -> None:
    """A line for each score: its value and its signature; and the shares that it has, below it."""
    result(f"{name}: {scores[0].counts.get(unit, 0):,} {unit}")
    for score in scores:
        digits = 2 if abs(score.value) >= 10 else 4
        result(f"  {score.name:<22} {score.value:>8.{digits}f}  {score.signature}")
        if shares := score.details.get("shares"):
            told = "tokens of each: " + " ".join(f"{share:.1%}" for share in shares)
            for line in textwrap.wrap(told, 76):
                result(f"    {line}")

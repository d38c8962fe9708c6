"""The command ``heedful evaluate``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli import options
from heedful.cli.options import Decoding, Device, Ensemble, Json, load_runs
from heedful.cli.output import check_not_input, json_result, log, notify, result, terminal_width
from heedful.errors import RequestError
from heedful.files import check_parent, json_text, whole_file
from heedful.tasks.metrics.calibration_tables import threshold_lines
from heedful.tasks.metrics.evaluation_text import evaluation_lines
from heedful.typing import JsonObject

if TYPE_CHECKING:
    from heedful.api.run import Run
    from heedful.data.lines import Source
    from heedful.explain.alignment.error_rates import AlignmentEvaluation
    from heedful.tasks.evaluation import Evaluation

Print = Callable[[str], None]
"""Prints a line."""


@dataclass(frozen=True)
class Sources:
    """Options that select the data: a data set of the recipe, or the user's own files."""

    file: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Score on this file instead of a data set of the recipe: in the format of the training "
            "data, a table (.csv, .tsv, .xlsx, .parquet), or JSON lines; on two line-aligned files (source, "
            "target); or on a folder of images.",
            show_default=False,
        ),
    ] = None
    split: Annotated[
        str,
        typer.Option(help="Data to score on: test (all test sets), valid, train, or the name of a test set."),
    ] = "test"
    data: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The same as FILE; may be repeated."),
    ] = None
    text: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The same, for a causal or masked language model."),
    ] = None
    table: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="The same, for a file of records."),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=NAME",
            help="Field of a column in the file (text=review; without a header, and in CoNLL, its number, "
            "text=0), once for each column that has another name. [default: as in the recipe]",
        ),
    ] = None
    folder: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="The same, for a folder of images."),
    ] = None

    def files(self) -> list[Path]:
        """Return the user's files.

        Raises:
            RequestError: they are given in several ways.
        """
        own = [*(self.data or ()), *(self.file or ())]
        by_option = {"FILE": own, "--text": self.text, "--table": self.table, "--folder": self.folder}
        given = {option: files for option, files in by_option.items() if files}
        if len(given) > 1:
            raise RequestError(f"{' and '.join(given)}: expected only one of these; give all files as FILE")
        return [*next(iter(given.values()), ())]

    def chosen(self, run: "Run") -> "dict[str, Source]":
        """Return the selected data sets by name.

        Raises:
            RequestError: the run's task does not read such files, or a file does not exist.
        """
        from heedful.cli.inputs import names_of
        from heedful.data.lines import find
        from heedful.runs.column_keys import ColumnKeys
        from heedful.runs.evaluate import chosen_splits

        files = self.files()
        for file in files:
            if not file.is_dir():
                find(str(file), Path())
        if self.column and not files:
            raise RequestError("--column: names the columns of a file; add FILE")
        keys = ColumnKeys.of_task(run.recipe.task.kind, run.task.columns)
        names = names_of(self.column or (), keys, files)
        return chosen_splits(run, self.split, files, names)


@dataclass(frozen=True)
class AlignmentOptions:
    """Options for scoring attention against gold word alignments."""

    alignments: Annotated[
        str | None,
        typer.Option(
            metavar="GOLD",
            help="Score attention against word alignments, one line per sentence pair (1-1 2p3).",
        ),
    ] = None
    first_word: Annotated[
        int, typer.Option(min=0, max=1, help="Index of the first word in GOLD: 0 or 1.")
    ] = 0
    dev: Annotated[
        int, typer.Option(min=0, help="Select the head on this many leading pairs and report it on the rest.")
    ] = 0
    head: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER.HEAD",
            help="Report this head (counted from 1); LAYER alone: the mean of its heads.",
        ),
    ] = None
    links: Annotated[
        Literal["target", "source", "both"],  # heedful.explain.alignment.word_alignment.Direction
        typer.Option(
            help="target: link each target word to the source word with the highest weight; source: link "
            "each source word to the target word with the highest weight; both: the intersection."
        ),
    ] = "target"
    step: Annotated[
        Literal["output", "input"] | None,  # heedful.objectives.guided.DecoderStep
        typer.Option(
            help="Decoder step of a target word: output, the step that predicts it; input, the step that "
            "reads it. [default: both; with --head: output]"
        ),
    ] = None

    def check(self, decoding: Decoding, extent: "Extent") -> None:
        """Raise `RequestError` for options that do not apply to what is scored.

        Neither alignments nor faithfulness depend on decoding or windows.
        """
        alignment_values = {
            "--first-word": self.first_word,
            "--dev": self.dev,
            "--head": self.head,
            "--links": self.links != "target",
            "--step": self.step,
        }
        decoding_values = {
            "--beam": decoding.beam,
            "--decoding": decoding.decoding,
            **{f"--{name.replace('_', '-')}": True for name in decoding.sampling},
            "--stride": extent.stride,
            "--evaluation": extent.evaluation,
            "--precision": decoding.precision != "auto",
            "--accuracy": extent.accuracy is not None,
        }
        if self.alignments is None:
            for option, value in alignment_values.items():
                if value:
                    raise RequestError(f"{option} requires --alignments GOLD")
        else:
            _refuse({**decoding_values, "--faithfulness": extent.faithfulness}, "--alignments")
        if extent.faithfulness:
            _refuse(decoding_values, "--faithfulness")

    def evaluate(self, run: "Run", name: str, source: "Source", limit: int | None) -> "AlignmentEvaluation":
        """Evaluate the attention of a run on a data set."""
        from heedful.explain.alignment.error_rates import evaluate_alignments
        from heedful.explain.alignment.word_alignment import STEPS, HeadChoice

        assert self.alignments is not None
        steps = STEPS if self.step is None else (self.step,)
        return evaluate_alignments(
            run,
            name,
            source,
            self.alignments,
            first=self.first_word,
            development=self.dev,
            choice=None if self.head is None else HeadChoice.parse(self.head, "--head", step=steps[0]),
            by=self.links,
            steps=steps,
            limit=limit,
        )

    def save_best_head(self, run: "Run", evaluation: "AlignmentEvaluation") -> None:
        """Store the selected head in the run; ``explain`` shows it first."""
        from heedful.explain.alignment.best_head import store_best_head

        shown = store_best_head(run, evaluation.table, evaluation.judged)
        if shown is not None:
            state = "now" if shown.choice == evaluation.reported.choice else "still"
            log(f"heedful explain {state} shows {shown.choice} first: {shown.reason}")


def _refuse(values: Mapping[str, object], mode: str) -> None:
    """Raise `RequestError` for an option that is given and has no meaning beside ``mode``."""
    for option, value in values.items():
        if value:
            raise RequestError(f"{option} is not supported with {mode}")


@dataclass(frozen=True)
class Extent:
    """Options for how much is scored and where the scores per example are written."""

    stride: Annotated[
        int | None,
        typer.Option(
            min=1, help="Also score with sliding windows of this stride in tokens (language models)."
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write the scores of each sentence or document as JSON lines, with the probability of each "
            "label (classifiers); with --alignments, the links; with "
            "--faithfulness, the measures of each view. - is standard output; the scores then go to "
            "standard error."
        ),
    ] = None
    limit: Annotated[
        int | None, typer.Option(min=1, help="Score only this many leading sentences or documents.")
    ] = None
    evaluation: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Override a key of the recipe section evaluation, e.g. language=ja; may be repeated.",
        ),
    ] = None
    faithfulness: Annotated[
        bool,
        typer.Option(
            "--faithfulness",
            help="Instead of the predictions, score the views that say which words decided: how much the "
            "answer changes without these words, removed in another way than the view does it.",
        ),
    ] = False

    accuracy: Annotated[
        float | None,
        typer.Option(
            parser=options.probability,
            metavar="NUMBER",
            min=0,
            max=1,
            help="Also report how probable answers must be to be right this often on other rows of the same "
            "kind, and on these rows (classifiers, tags, questions).",
        ),
    ] = None

    @property
    def to_standard_output(self) -> bool:
        """Whether `output` is standard output."""
        return str(self.output) == "-"

    def scores_printer(self, *, as_json: bool) -> Print:
        """Return the function that prints a line of the scores: on the stream that `output` leaves free.

        Raises:
            RequestError: the scores as JSON and `output` would both go to standard output.
        """
        if as_json and self.to_standard_output:
            raise RequestError("--output - is not supported with --json; give a file, or remove --json")
        if as_json:
            return lambda line: None
        return notify if self.to_standard_output else result


def evaluate(
    run: options.Run,
    sources: Sources,
    alignment_options: AlignmentOptions,
    extent: Extent,
    decoding: Decoding,
    ensemble: Ensemble = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Evaluate a run on test data; scores are printed with the signatures needed to compare them."""
    from heedful.runs.evaluate import with_evaluation

    files = sources.files()  # refuse several data options before the run is loaded
    if extent.output is not None and not extent.to_standard_output:
        check_not_input(extent.output, files, "--output")
        check_parent(extent.output, "--output")
    alignment_options.check(decoding, extent)
    show = extent.scores_printer(as_json=as_json)
    loaded_run = load_runs(run, ensemble, device)
    if extent.evaluation:
        loaded_run = with_evaluation(loaded_run, extent.evaluation)
    if extent.faithfulness:
        evaluations = _score_faithfulness(loaded_run, sources, extent, show)
    elif alignment_options.alignments is None:
        evaluations = _score_predictions(loaded_run, sources, extent, decoding, show)
    else:
        evaluations = [_score_alignments(loaded_run, sources, extent, alignment_options, show)]
    if as_json:
        splits = [_record(evaluation, extent.accuracy) for evaluation in evaluations]
        json_result({"version": 2, "run": str(run), "splits": splits})


def _record(evaluation: "Evaluation", accuracy: float | None) -> JsonObject:
    """Return the entry of an evaluation in JSON, with the thresholds for an accuracy."""
    if accuracy is None:
        return evaluation.to_dict()
    return {**evaluation.to_dict(), "accuracy_threshold": evaluation.threshold_for(accuracy).to_dict()}


def _score_alignments(
    run: "Run", sources: Sources, extent: Extent, alignment_options: AlignmentOptions, show: Print
) -> "Evaluation":
    """Score attention on one data set, print a table of all heads and write the links of the selected one."""
    sources_by_name = sources.chosen(run)
    if len(sources_by_name) > 1:
        names = ", ".join(sources_by_name)
        raise RequestError(
            f"--alignments: expected one data set; give --data, or --split with one of {names}"
        )
    ((name, source),) = sources_by_name.items()
    with _to(extent.output) as write:
        log(f"{name}: computing attention")
        evaluation = alignment_options.evaluate(run, name, source, extent.limit)
        write(evaluation.pharaoh())
    if alignment_options.head is None:
        alignment_options.save_best_head(run, evaluation)
    for line in evaluation.lines():
        show(line)
    show(f"* marks the reported head: {evaluation.reported.choice}")
    for line in evaluation_lines(name, "sentences", evaluation.scores, terminal_width()):
        show(line)
    return evaluation


def _score_faithfulness(run: "Run", sources: Sources, extent: Extent, show: Print) -> "list[Evaluation]":
    """Score the views that attribute an answer to words on each data set, and print a table."""
    from heedful.explain.attribution.faithfulness import evaluate_faithfulness

    evaluations: list[Evaluation] = []
    with _to(extent.output) as write:
        for name, source in sources.chosen(run).items():
            log(f"{name}: removing words")
            evaluation = evaluate_faithfulness(run, name, source, limit=extent.limit, log=log)
            evaluations.append(evaluation)
            for note in evaluation.notes:
                log(f"heedful: {name}: {note}")
            show(evaluation.heading)
            for line in evaluation.lines():
                show(line)
            write(json_text({"split": name, **row}, allow_nan=False) for row in evaluation.rows())
    return evaluations


def _score_predictions(
    run: "Run", sources: Sources, extent: Extent, decoding: Decoding, show: Print
) -> "list[Evaluation]":
    """Score each data set, print its scores and write its rows."""
    from heedful.runs.evaluate import evaluate as score
    from heedful.tasks.evaluation import EvaluationOptions

    sources_by_name = sources.chosen(run)
    evaluation_options = EvaluationOptions(
        decoding.settings(run.recipe.decoding), extent.limit, extent.stride, precision=decoding.precision
    )
    if run.task.info.generates:
        log(f"heedful: decoding in {run.inference(decoding.precision).description}")
    evaluations = []
    with _to(extent.output) as write:
        for name, source in sources_by_name.items():
            log(f"{name}: {run.task.info.evaluation_verb}")
            evaluation = score(run, name, source, evaluation_options)
            evaluations.append(evaluation)
            for note in evaluation.notes:
                log(f"heedful: {name}: {note}")
            for line in evaluation_lines(name, evaluation.unit, evaluation.scores, terminal_width()):
                show(line)
            if extent.accuracy is not None:
                for line in threshold_lines(evaluation.threshold_for(extent.accuracy)):
                    show(f"  {line}")
            write(json_text({"split": name, **row}, allow_nan=False) for row in evaluation.rows())
    return evaluations


@contextmanager
def _to(output: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """Yield a function that writes lines to `output`; without `output` it does not consume them."""
    if output is None:
        yield lambda lines: None
        return
    if str(output) == "-":
        yield _print_lines
        return
    with whole_file(output) as file:
        yield lambda lines: file.writelines(line + "\n" for line in lines)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        result(line)

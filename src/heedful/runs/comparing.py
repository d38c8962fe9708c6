"""Compare runs: settings that differ, learning curves, best scores; of one run, its losses.

Everything is read from files of the runs (`recipe.yaml`, `metrics.jsonl`, `run.json`); no model is loaded, so
trainings in progress can be compared too.
"""

import html
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import RequestError, nearest
from heedful.files import sha256
from heedful.runs.data_report import read_data_report
from heedful.runs.reading import saved_tree
from heedful.runs.seeds import SeedGroup, seed_groups, seed_table
from heedful.runs.significance import MetricComparison, method, tables
from heedful.svg import line_chart
from heedful.tables import columns, html_table
from heedful.training.callbacks import read_metrics
from heedful.typing import JsonMapping, JsonObject

OUTSIDE = ("description", "expected", "root")
"""Settings that do not affect how a run is trained."""

MOST = 12
"""Maximum rows of the table of a learning curve; longer curves are subsampled."""

WIDTH = 80
"""Maximum number of characters of a line of text."""

Rows: TypeAlias = list[Sequence[str]]
"""Rows of a table, of which the first is its head."""

PER_TOKEN = {"loss", "perplexity", "nll"}
"""Metrics that depend on the tokenizer."""


@dataclass(frozen=True)
class Validation:
    """A validation during training.

    Args:
        update: number of updates before it.
        seconds: training time until then, including validations.
        metrics: metrics by name, without those that were not finite.
    """

    update: int
    seconds: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class LoggedLoss:
    """The training loss of an update, as ``metrics.jsonl`` has it.

    Args:
        update: number of the update, from 1.
        loss: the weighted sum of the loss terms.
    """

    update: int
    loss: float


@dataclass(frozen=True)
class TrainedRun:
    """The training of a run so far.

    Args:
        name: the shortest end of its path that distinguishes it from the others.
        task: the kind of its task.
        updates: number of updates made.
        seconds: training time.
        ended: why training ended ("updates", "patience" …; "finished" in a loop of one's own, "imported");
            None: it has not.
        metric: the metric that selects the best checkpoint.
        best: index of the best validation in ``curve``; None: there was no validation.
        curve: its validations.
        settings: settings of the merged recipe by dotted keys.
        tokenizers: hashes of the tokenizer files.
        validation_rows: hash of the validation data; None: they were not read yet.
        training: the training loss of the logged updates, without those that were not finite.
    """

    name: str
    task: str
    updates: int
    seconds: float
    ended: str | None
    metric: str
    best: int | None
    curve: Sequence[Validation]
    settings: JsonMapping
    tokenizers: Sequence[str]
    validation_rows: str | None = None
    training: Sequence[LoggedLoss] = ()

    @property
    def losses(self) -> dict[str, list[tuple[int, float]]]:
        """Return training and validation loss by name, as points of update and loss."""
        return {
            "training loss": [(logged.update, logged.loss) for logged in self.training],
            "validation loss": [(v.update, v.metrics["loss"]) for v in self.curve if "loss" in v.metrics],
        }

    @property
    def reached(self) -> Validation | None:
        """Return the best validation."""
        return None if self.best is None else self.curve[self.best]


@dataclass(frozen=True, repr=False)
class Comparison:
    """A comparison of runs.

    Args:
        runs: the runs, in the given order.
        differences: for each setting that is not the same in all runs, its value in each; ``ABSENT`` if a run
            has no such key.
        notes: reasons why scores are not comparable.
        significance: the scores of the runs on the same rows, if they were evaluated.
    """

    runs: Sequence[TrainedRun]
    differences: Mapping[str, Sequence[object]]
    notes: Sequence[str]
    significance: Sequence[MetricComparison] = ()

    def metrics(self) -> list[str]:
        """Return the names of the metrics of all runs, in the order of their first appearance."""
        return list(dict.fromkeys(name for run in self.runs for v in run.curve for name in v.metrics))

    def shared_metric(self, metric: str | None = None) -> str:
        """Return the metric to plot: ``metric``, or the one that selects the first run's best checkpoint.

        Raises:
            RequestError: no run has it.
        """
        metrics = self.metrics()
        if metric is None and self.runs[0].metric not in metrics:
            metric = "loss"
        name = metric or self.runs[0].metric
        if name not in metrics:
            raise RequestError(
                f"no run measured {name!r}{nearest(name, metrics)}"
                + (f"; available: {', '.join(metrics)}" if metrics else ": no run has been validated yet")
            )
        return name

    def to_dict(self) -> JsonObject:
        """Return the object of ``docs/schemas/comparison.schema.json``; what a run does not have is null."""
        runs = []
        for i, run in enumerate(self.runs):
            record = asdict(run)
            for key in ("settings", "tokenizers", "validation_rows"):  # the former is written last
                del record[key]
            record["settings"] = {
                key: None if values[i] is ABSENT else values[i] for key, values in self.differences.items()
            }
            runs.append(record)
        added: JsonObject = {}
        if groups := self.groups:
            added["groups"] = [group.to_dict() for group in groups]
        if self.significance:
            added["significance"] = [c.to_dict() for c in self.significance]
        return {"version": 1, "runs": runs, **added, "notes": list(self.notes)}

    def tables(self, metric: str | None = None) -> tuple[Rows, Rows, Rows]:
        """Return the tables of results, of settings that differ and of the learning curve; they may be empty.

        Args:
            metric: that of the curve; None: no curve. The curve of a single run has all metrics.
        """
        names, metrics = [run.name for run in self.runs], self.metrics()
        head = ("run", "updates", "minutes", "stopped by", "best at", *metrics)
        settings = [(key, *map(_format_setting, values)) for key, values in self.differences.items()]
        return (
            [head, *(_result_row(run, metrics) for run in self.runs)],
            [("setting", *names), *settings] if settings else [],
            [] if metric is None else self._curve(metric),
        )

    def _curve(self, metric: str) -> Rows:
        if len(self.runs) > 1:
            return _curve_rows(self.runs, metric)
        return _curve_rows_of_one(self.runs[0], self.metrics())

    @property
    def groups(self) -> list[SeedGroup]:
        """The groups of runs that differ in the seed alone, with mean and deviation of their best scores."""
        return seed_groups(self.runs)

    def __repr__(self) -> str:
        """Name the runs."""
        return f"<heedful.Comparison of {', '.join(run.name for run in self.runs)}>"

    def lines(self, metric: str | None = None) -> Iterator[str]:
        """Yield the `tables` as lines of text."""
        results, settings, curve = self.tables(metric)
        yield from columns(results, right={1, 2, *range(4, len(results[0]))})
        if seeds := seed_table(self.groups):
            yield ""
            yield from columns(seeds, right=range(1, len(seeds[0])))
        if len(self.runs) > 1:
            yield ""
            yield from columns(settings) if settings else ["all settings are equal"]
        if curve:
            yield ""
            yield from columns(curve, right=set(range(len(curve[0]))))
        for heading, rows in tables(self.significance):
            yield ""
            yield heading
            yield from columns(rows, right=range(1, 6))
        if (line := method(self.significance)) is not None:
            yield ""
            yield from textwrap.wrap(line, WIDTH)

    def __str__(self) -> str:
        """Return the tables, the curve of the metric that selects checkpoints, and the notes."""
        metric = self.shared_metric() if self.metrics() else None
        return "\n".join([*self.lines(metric), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Show the tables in a notebook, and the losses of a single run."""
        own = self.tables(self.shared_metric() if self.metrics() else None)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        chart = line_chart(self.runs[0].losses, "update", "loss") if len(self.runs) == 1 else ""
        tests = "".join(
            f"<p>{html.escape(heading)}</p>{html_table(rows)}" for heading, rows in tables(self.significance)
        )
        line = method(self.significance)
        tests += "" if line is None else f"<p>{html.escape(line)}</p>"
        results, *others = own
        shown = (results, seed_table(self.groups), *others)
        return "".join(html_table(rows) for rows in shown if rows) + chart + tests + notes


def _result_row(run: TrainedRun, metrics: Sequence[str]) -> Sequence[str]:
    best = run.reached
    scores = {} if best is None else best.metrics
    return [
        run.name,
        f"{run.updates:,}",
        f"{run.seconds / 60:.1f}",
        run.ended or "running",
        "–" if best is None else f"{best.update:,}",
        *(_number(scores.get(name)) for name in metrics),
    ]


def _curve_rows(runs: Sequence[TrainedRun], metric: str) -> Rows:
    """Return rows with the metric of every run per validated update, at most `MOST` of them."""
    curves = [{v.update: v.metrics.get(metric) for v in run.curve} for run in runs]
    updates = sorted({update for curve in curves for update in curve})
    step = -(-len(updates) // MOST)
    shown_updates = updates[::-1][::step][::-1] if updates else []
    return [
        [f"{metric} after update", *(run.name for run in runs)],
        *([f"{update:,}", *(_number(curve.get(update)) for curve in curves)] for update in shown_updates),
    ]


def _curve_rows_of_one(run: TrainedRun, metrics: Sequence[str]) -> Rows:
    """Return rows with the training loss and all metrics per validated update, at most `MOST` of them.

    The training loss is the mean over the logged updates since the validation before. It includes dropout,
    label smoothing and other regularisation, which validation does not.
    """
    rows, previous = [], 0
    for validation in run.curve:
        losses = [x.loss for x in run.training if previous < x.update <= validation.update]
        loss = sum(losses) / len(losses) if losses else None
        cells = map(_number, (loss, *(validation.metrics.get(name) for name in metrics)))
        rows.append([f"{validation.update:,}", *cells])
        previous = validation.update
    names = ["validation loss" if name == "loss" else name for name in metrics]
    step = -(-len(rows) // MOST) or 1
    return [["after update", "training loss", *names], *rows[::-1][::step][::-1]]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _format_setting(value: object) -> str:
    """Format a value as recipes do."""
    return str(value) if value is ABSENT else json.dumps(value, ensure_ascii=False).strip('"')


class _Absent:
    def __repr__(self) -> str:
        return "–"


ABSENT = _Absent()
"""Value of a setting that a run's task or model does not have."""


def compare(paths: Sequence[Path]) -> Comparison:
    """Read and compare runs.

    Raises:
        RequestError: a folder is not a run, or a run is given twice.
        DamagedError: a file of a run is damaged.
    """
    resolved = [path.resolve() for path in paths]
    if duplicates := [path for i, path in enumerate(resolved) if path in resolved[:i]]:
        raise RequestError(f"{duplicates[0]}: the run is given twice")
    damaged: list[str] = []
    names = _names(resolved)
    runs = [_trained_run(path, name, damaged.append) for path, name in zip(paths, names, strict=True)]
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    values_by_key = {key: [run.settings.get(key, ABSENT) for run in runs] for key in keys}
    differing = {
        key: values for key, values in values_by_key.items() if any(value != values[0] for value in values)
    }
    # Settings that only one kind of model has come last.
    order = sorted(differing, key=lambda key: ABSENT in differing[key])
    return Comparison(runs, {key: differing[key] for key in order}, [*damaged, *_notes(runs)])


def _names(paths: Sequence[Path]) -> list[str]:
    """Return as many of the last parts of each path as distinguish all of them."""
    depth = 1
    while True:
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
        depth += 1


def _trained_run(path: Path, name: str, log: Callable[[str], None]) -> TrainedRun:
    folder = RunFolder(path)
    settings = flattened({key: value for key, value in saved_tree(path).data.items() if key not in OUTSIDE})
    for key in [key for key, value in settings.items() if key.endswith(".kind") and value == "memory"]:
        del settings[f"{key.removesuffix('kind')}name"]  # another one each time
    report = read_data_report(folder)
    curve: list[Validation] = []
    losses: list[LoggedLoss] = []
    best, updates, seconds, stop_reason = None, 0, 0.0, None
    for event in read_metrics(folder.metrics, log) if folder.metrics.is_file() else ():
        updates = event["update"]
        seconds = event.get("elapsed") or seconds
        stop_reason = event["reason"] if event["event"] == "stopped" else None
        if event["event"] == "updated" and event["loss"] is not None:
            losses.append(LoggedLoss(updates, event["loss"]))
        if event["event"] == "validated":
            if event["best"]:
                best = len(curve)
            metrics = {key: value for key, value in event["metrics"].items() if value is not None}
            curve.append(Validation(updates, seconds, metrics))
    if not folder.metrics.is_file() and folder.card.is_file():  # a loop of one's own, or an import
        card = folder.read_card()
        updates, seconds = int(card.get("updates") or 0), float(card.get("seconds") or 0)
        stop_reason = card.get("stopped") or ("imported" if "imported" in card else "finished")
    return TrainedRun(
        name,
        settings["task.kind"],
        updates,
        seconds,
        stop_reason,
        settings.get("training.metric", "loss"),
        best,
        curve,
        settings,
        [sha256(file) for file in sorted(path.glob("*.tokenizer.json"))],
        None if report is None else report.valid.sha256,
        losses,
    )


def flattened(tree: JsonMapping, prefix: str = "") -> JsonObject:
    """Return ``{"a.b": 1}`` for ``{"a": {"b": 1}}``; lists are values."""
    flat: JsonObject = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _validation_data(run: TrainedRun) -> str:
    """Return the hash of the validation data, or the settings that determine them."""
    if run.validation_rows is not None:
        return run.validation_rows
    has_split = "data.split.valid" in run.settings
    prefixes = ("data.train.", "data.split.valid") if has_split else ("data.valid.",)
    settings = {key: value for key, value in run.settings.items() if key.startswith(prefixes)}
    return json.dumps(settings, default=str)


def _notes(runs: Sequence[TrainedRun]) -> list[str]:
    notes = []
    if len({run.task for run in runs}) > 1:
        notes.append("the runs have different tasks: their figures are of different things")
    if len({_validation_data(run) for run in runs}) > 1:
        notes.append("the runs were validated on different data")
    if len({tuple(run.tokenizers) for run in runs}) > 1 and any(
        PER_TOKEN & set(validation.metrics) for run in runs for validation in run.curve
    ):
        notes.append("the tokenizers differ, and with them the tokens that losses and perplexities are of")
    return notes

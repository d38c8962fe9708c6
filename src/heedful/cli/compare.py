"""The command ``heedful compare``."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Json
from heedful.cli.output import check_out, columns, json_result, log, result
from heedful.errors import RequestError, escaped

if TYPE_CHECKING:
    from heedful.lab.drawing import Curves
    from heedful.runs.comparing import Comparison, TrainedRun

SUFFIXES = (".svg", ".png")
MOST = 12
"""Maximum rows of the printed learning curve; longer curves are subsampled."""


def compare(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN RUN...", help="Run folders; training may still be in progress."
    ),
    metric: str = typer.Option(
        None,
        metavar="NAME",
        help="Metric of the curve. [default: the metric that selects the first run's best checkpoint]",
    ),
    out: Path = typer.Option(
        None, metavar="FILE", help="Plot the curves over updates and over minutes: .svg or .png."
    ),
    as_json: Json = False,
) -> None:
    """Compare runs: settings that differ, validation scores and learning curves."""
    from heedful.runs.comparing import compare as read

    if len(runs) < 2:
        raise RequestError("compare: expected at least two runs")
    check_out(out, SUFFIXES)
    comparison = read(runs)
    plotted_metric = comparison.shared_metric(metric) if metric or comparison.metrics() else None
    if out is not None:
        _draw(comparison, plotted_metric, out)
        log(f"wrote {out}")
    if as_json:
        json_result(comparison.to_dict())
        return
    for line in _table_lines(comparison, plotted_metric):
        result(line)
    for note in comparison.notes:
        log(f"note: {note}")


def _table_lines(comparison: "Comparison", metric: str | None) -> Iterator[str]:
    """Yield the lines of three tables: results, settings that differ, learning curve."""
    names = [run.name for run in comparison.runs]
    metrics = comparison.metrics()
    head = ("run", "updates", "minutes", "stopped by", "best at", *metrics)
    yield from columns(
        [head, *(_result_row(run, metrics) for run in comparison.runs)], right={1, 2, *range(4, len(head))}
    )
    yield ""
    if comparison.differences:
        rows = [[key, *map(_format_setting, values)] for key, values in comparison.differences.items()]
        yield from columns([["setting", *names], *rows])
    else:
        yield "all settings are equal"
    if metric is not None:
        yield ""
        yield from columns(_curve_rows(comparison, metric), right=set(range(len(names) + 1)))


def _result_row(run: "TrainedRun", metrics: Sequence[str]) -> list[str]:
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


def _curve_rows(comparison: "Comparison", metric: str) -> list[list[str]]:
    """Return rows with the metric of every run per validated update, at most `MOST` of them."""
    curves = [{v.update: v.metrics.get(metric) for v in run.curve} for run in comparison.runs]
    updates = sorted({update for curve in curves for update in curve})
    step = -(-len(updates) // MOST)
    shown_updates = updates[::-1][::step][::-1] if updates else []
    head = [f"{metric} after update", *(run.name for run in comparison.runs)]
    return [
        head,
        *([f"{update:,}", *(_number(curve.get(update)) for curve in curves)] for update in shown_updates),
    ]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _format_setting(value: object) -> str:
    """Format a value as recipes do."""
    from heedful.runs.comparing import ABSENT

    return str(value) if value is ABSENT else json.dumps(value, ensure_ascii=False).strip('"')


def _draw(comparison: "Comparison", metric: str | None, out: Path) -> None:
    """Plot the metric over updates and over minutes, since steps may differ in cost."""
    from heedful.explain.drawing.heat_map import save
    from heedful.lab.drawing import draw

    if metric is None:
        raise RequestError("--out: nothing to plot: no run has a validation yet")
    save(draw(_panel(comparison, metric, minutes=False), _panel(comparison, metric, minutes=True)), out)


def _panel(comparison: "Comparison", metric: str, *, minutes: bool) -> "Curves":
    from heedful.lab.drawing import Curves

    lines = {
        escaped(run.name): (
            [v.seconds / 60 if minutes else v.update for v in run.curve if metric in v.metrics],
            [v.metrics[metric] for v in run.curve if metric in v.metrics],
        )
        for run in comparison.runs
    }
    title = f"{metric} over {'minutes' if minutes else 'updates'}"
    return Curves(title, "minutes" if minutes else "updates", f"{metric} on validation data", lines)

"""The command ``heedful compare``."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Device, Json
from heedful.cli.output import check_out, json_result, log, result, terminal_width
from heedful.errors import RequestError, escaped
from heedful.files import IMAGES

if TYPE_CHECKING:
    from heedful.lab.drawing import Curves
    from heedful.runs.comparing import Comparison

WIDEST = 80
"""Maximum number of columns of a chart."""


def compare(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN...", help="Run folders; training may still be in progress."
    ),
    metric: str = typer.Option(
        None,
        metavar="NAME",
        help="Metric of the curve. [default: the metric that selects the first run's best checkpoint]",
    ),
    out: Path = typer.Option(
        None, metavar="FILE", help="Plot the curves over updates and over minutes: .svg or .png."
    ),
    data: list[Path] = typer.Option(
        None,
        metavar="FILE",
        help="Evaluate the runs on this file and test whether their scores differ; twice for aligned files.",
    ),
    split: str = typer.Option(
        None,
        metavar="NAME",
        help="The same, on a data set of the first run: test (all test sets), valid, or a name.",
    ),
    column: list[str] = typer.Option(
        None, metavar="KEY=NAME", help="Field of a column in the file, as of evaluate."
    ),
    limit: int = typer.Option(None, min=1, help="Evaluate only this many leading rows."),
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Compare runs: settings that differ, validation scores and learning curves; of one run, its losses.

    With --data or --split, the runs are evaluated on the same rows, and the first is compared with each other
    one: 95 % intervals of the differences by paired bootstrap resampling, p-values by approximate
    randomisation.
    """
    check_out(out, IMAGES)
    comparison = _read(runs, data or [], split, column or [], limit, device)
    plotted_metric = comparison.shared_metric(metric) if metric or comparison.metrics() else None
    if out is not None:
        _draw(comparison, plotted_metric, out)
        log(f"wrote {out}")
    if as_json:
        json_result(comparison.to_dict())
        return
    for line in comparison.lines(plotted_metric):
        result(line)
    for line in _loss_chart(comparison):
        result(line)
    for note in comparison.notes:
        log(f"note: {note}")


def _read(
    runs: list[Path], data: list[Path], split: str | None, columns: list[str], limit: int | None, device: str
) -> "Comparison":
    """Compare the runs; load and evaluate them if data are given."""
    if not data and split is None:
        for option, value in (("--column", columns), ("--limit", limit)):
            if value:
                raise RequestError(f"{option}: requires --data FILE or --split NAME")
        from heedful.runs.comparing import compare as read

        return read(runs)
    from heedful.api.comparison import compare as evaluated
    from heedful.artifacts.run_folder import RunFolder
    from heedful.cli.inputs import names_of
    from heedful.runs.column_keys import keys_of_run

    if columns and not data:
        raise RequestError("--column: names the columns of a file; add --data FILE")
    names = names_of(columns, keys_of_run(RunFolder(runs[0])), data) if columns else {}
    return evaluated(
        runs,
        data=[str(file) for file in data] or None,
        split=split,
        columns=names or None,
        limit=limit,
        device=device,
    )


def _loss_chart(comparison: "Comparison") -> Iterator[str]:
    """Yield a chart of training and validation loss, if there is one run and it has logged several."""
    from heedful.cli.charts import line_chart

    losses = comparison.runs[0].losses
    if len(comparison.runs) > 1 or len({update for points in losses.values() for update, _ in points}) < 2:
        return
    yield ""
    yield from line_chart(losses, min(WIDEST, terminal_width()), "update", "")


def _draw(comparison: "Comparison", metric: str | None, out: Path) -> None:
    """Plot the metric over updates and over minutes, since steps may differ in cost.

    Of one run, plot its losses beside the metric.
    """
    from heedful.explain.drawing.heat_map import save
    from heedful.lab.drawing import draw

    if metric is None:
        raise RequestError("--out: nothing to plot: no run has a validation yet")
    over_updates = _panel(comparison, metric, minutes=False)
    if len(comparison.runs) == 1:
        panels = _loss_panel(comparison), over_updates
    else:
        panels = over_updates, _panel(comparison, metric, minutes=True)
    save(draw(*panels), out)


def _loss_panel(comparison: "Comparison") -> "Curves":
    from heedful.lab.drawing import Curves

    losses = {
        name: ([update for update, _ in points], [loss for _, loss in points])
        for name, points in comparison.runs[0].losses.items()
        if points
    }
    return Curves("loss over updates", "updates", "loss", losses)


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

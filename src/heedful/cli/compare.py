"""``heedful compare``."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from heedful.cli.options import Json
from heedful.cli.output import check_out, columns, json_result, log, result
from heedful.errors import RequestError, escaped

if TYPE_CHECKING:
    from heedful.lab.drawing import Curves
    from heedful.runs.comparing import Comparison, Learned

SUFFIXES = (".svg", ".png")
MOST = 12
"""Validations of a run that are printed; of more, some are passed over."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("compare", short_help="Put runs side by side: settings, learning curves, scores.")(compare)


def compare(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN RUN...", help="Folders of runs; their training may still go on."
    ),
    metric: str = typer.Option(
        None, metavar="NAME", help="The curve that is shown; by default what chooses the first run's best."
    ),
    out: Path = typer.Option(
        None, metavar="FILE", help="Draw the curves, over updates and over minutes: .svg or .png."
    ),
    as_json: Json = False,
) -> None:
    """Put runs side by side: settings that differ, validation scores, learning curves."""
    from heedful.runs.comparing import compare as read

    if len(runs) < 2:
        raise RequestError("compare takes two runs or more")
    check_out(out, SUFFIXES, "a picture")
    found = read(runs)
    shown = found.shared_metric(metric) if metric or found.metrics() else None
    if out is not None:
        _draw(found, shown, out)
        log(f"drawn: {out}")
    if as_json:
        json_result(found.to_dict())
        return
    for line in _told(found, shown):
        result(line)
    for note in found.notes:
        log(f"note: {note}")


def _told(found: "Comparison", metric: str | None) -> Iterator[str]:
    """Three tables: results, settings, the curve."""
    names = [run.name for run in found.runs]
    measured = found.metrics()
    head = ("run", "updates", "minutes", "ended by", "best at", *measured)
    yield from columns(
        [head, *(_reached(run, measured) for run in found.runs)], right={1, 2, *range(4, len(head))}
    )
    yield ""
    if found.differences:
        rows = [[key, *map(_setting, values)] for key, values in found.differences.items()]
        yield from columns([["set otherwise", *names], *rows])
    else:
        yield "all settings are the same"
    if metric is not None:
        yield ""
        yield from columns(_curve(found, metric), right=set(range(len(names) + 1)))


def _reached(run: "Learned", metrics: Sequence[str]) -> list[str]:
    best = run.reached
    scores = {} if best is None else best.metrics
    return [
        run.name,
        f"{run.updates:,}",
        f"{run.seconds / 60:.1f}",
        run.ended or "not yet",
        "–" if best is None else f"{best.update:,}",
        *(_number(scores.get(name)) for name in metrics),
    ]


def _curve(found: "Comparison", metric: str) -> list[list[str]]:
    """The metric of every run after the same updates; of many, about as many as are read with pleasure."""
    own = [{v.update: v.metrics.get(metric) for v in run.curve} for run in found.runs]
    updates = sorted({update for curve in own for update in curve})
    step = -(-len(updates) // MOST)
    kept = updates[::-1][::step][::-1] if updates else []
    head = [f"{metric} after update", *(run.name for run in found.runs)]
    return [head, *([f"{update:,}", *(_number(curve.get(update)) for curve in own)] for update in kept)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _setting(value: Any) -> str:
    """As in a recipe."""
    from heedful.runs.comparing import ABSENT

    return str(value) if value is ABSENT else json.dumps(value, ensure_ascii=False).strip('"')


def _draw(found: "Comparison", metric: str | None, out: Path) -> None:
    """Over updates and over minutes: what learns faster a step need not learn faster."""
    from heedful.explain.picture import save
    from heedful.lab.drawing import draw

    if metric is None:
        raise RequestError("there is nothing to draw: nothing is validated yet")
    save(draw(_panel(found, metric, minutes=False), _panel(found, metric, minutes=True)), out)


def _panel(found: "Comparison", metric: str, *, minutes: bool) -> "Curves":
    from heedful.lab.drawing import Curves

    lines = {
        escaped(run.name): (
            [v.seconds / 60 if minutes else v.update for v in run.curve if metric in v.metrics],
            [v.metrics[metric] for v in run.curve if metric in v.metrics],
        )
        for run in found.runs
    }
    title = f"{metric} over {'minutes' if minutes else 'updates'}"
    return Curves(title, "minutes" if minutes else "updates", f"{metric} on validation data", lines)

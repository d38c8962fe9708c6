"""The command ``heedful lab``."""

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Json
from heedful.cli.output import json_result, log, result

if TYPE_CHECKING:
    from heedful.lab.experiment import Experiment, Result


def lab(
    names: list[str] = typer.Argument(
        None, metavar="[NAME]...", help="Experiments to run; without names, list all."
    ),
    every: bool = typer.Option(False, "--all", help="Run all experiments."),
    short: bool = typer.Option(
        False,
        "--short",
        help="Take seconds instead of up to a few minutes each: same verdicts, simpler figures.",
    ),
    control: bool = typer.Option(
        False, "--control", help="Also run the controls, which must give a different verdict."
    ),
    out: Path = typer.Option(
        None,
        metavar="FOLDER",
        help="Also run the controls, and write HTML pages with figures; open index.html.",
    ),
    as_json: Json = False,
) -> None:
    """Test claims of the lectures: each experiment prints a claim, its measurements and a verdict.

    The exit status is 1 if a verdict differs from the expected one.
    """
    from heedful.errors import RequestError, WorkError
    from heedful.lab.experiment import as_dict
    from heedful.lab.registry import experiment, experiments

    if every and names:
        raise RequestError("--all runs every experiment; remove the names")
    selected = (
        list(experiments().values()) if every else [experiment(name) for name in dict.fromkeys(names or [])]
    )
    if not selected:
        if out is not None or control or short:
            raise RequestError("no experiment given: expected names or --all; heedful lab lists the names")
        _list(list(experiments().values()), as_json)
        return
    if out is not None:
        from heedful.lab.gallery import check_folder

        check_folder(out)
    results = []
    for chosen_experiment in selected:
        for of_control in (False, True) if control or out is not None else (False,):
            outcome = chosen_experiment.run("short" if short else "long", control=of_control)
            results.append(outcome)
            _show(outcome, full=not (every or as_json), to_stderr=as_json)
    if out is not None:
        from heedful.lab.gallery import write_gallery

        log(f"open in a browser: {write_gallery(results, out)}")
    if as_json:
        json_result(as_dict(selected, results))
    if unexpected := [outcome.name for outcome in results if not outcome.as_expected]:
        raise WorkError(f"unexpected verdict: {', '.join(unexpected)}")


def _list(experiments: "list[Experiment]", as_json: bool) -> None:
    from heedful.lab.experiment import as_dict
    from heedful.lab.text import listing

    if as_json:
        json_result(as_dict(experiments))
        return
    result(listing(experiments))
    log("run one:  heedful lab NAME      run all and write HTML pages:  heedful lab --all --out gallery")


def _show(outcome: "Result", *, full: bool, to_stderr: bool) -> None:
    """Print a full report or a one-line summary, optionally to standard error."""
    from heedful.lab.text import report, verdict

    if full:
        result(report(outcome, get_terminal_size((80, 24)).columns) + "\n")
    else:
        (log if to_stderr else result)(f"{outcome.name}: {verdict(outcome)} ({outcome.seconds:.1f} s)")

"""``heedful lab``."""

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import typer

from heedful.cli.options import Json
from heedful.cli.output import json_result, log, result

if TYPE_CHECKING:
    from heedful.lab.experiment import Experiment
    from heedful.lab.result import Result


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("lab", short_help="Check what the lectures claim, by experiments.")(lab)


def lab(
    names: list[str] = typer.Argument(None, metavar="[NAME]...", help="Make these; without any, list them."),
    every: bool = typer.Option(False, "--all", help="Make all of them."),
    short: bool = typer.Option(
        False,
        "--short",
        help="Seconds instead of up to a few minutes each: the same verdicts, plainer pictures.",
    ),
    control: bool = typer.Option(
        False, "--control", help="Make the controls too, under which another verdict must come out."
    ),
    out: Path = typer.Option(
        None, metavar="FOLDER", help="Make the controls too, and write pages with pictures: open index.html."
    ),
    as_json: Json = False,
) -> None:
    """Check what the lectures claim: each experiment prints a claim, what it measured, and a verdict on it.

    The exit status is 1 where a verdict is not the one that must come out.
    """
    from heedful.errors import RequestError, WorkError
    from heedful.lab.registry import experiment, experiments
    from heedful.lab.result import as_dict, perform

    if every and names:
        raise RequestError("--all makes every experiment: name none beside it")
    chosen = (
        list(experiments().values()) if every else [experiment(name) for name in dict.fromkeys(names or [])]
    )
    if not chosen:
        if out is not None or control or short:
            raise RequestError("which experiments? name some, or say --all; heedful lab lists them")
        _list(list(experiments().values()), as_json)
        return
    if out is not None:
        from heedful.lab.gallery import check_folder

        check_folder(out)
    results = []
    for each in chosen:
        for of_control in (False, True) if control or out is not None else (False,):
            made = perform(each, "short" if short else "long", control=of_control)
            results.append(made)
            _show(made, whole=not (every or as_json), aside=as_json)
    if out is not None:
        from heedful.lab.gallery import write_gallery
        from heedful.lab.registry import parts

        log(f"to be read in a browser: {write_gallery(results, out, parts())}")
    if as_json:
        json_result(as_dict(chosen, results))
    if others := [made.name for made in results if not made.as_expected]:
        raise WorkError(f"another verdict than expected: {', '.join(others)}")


def _list(experiments: "list[Experiment]", as_json: bool) -> None:
    """All there are."""
    from heedful.lab.registry import parts
    from heedful.lab.result import as_dict
    from heedful.lab.text import listing

    if as_json:
        json_result(as_dict(experiments))
        return
    result(listing(experiments, parts()))
    log("make one with:  heedful lab NAME      all, as pages with pictures:  heedful lab --all --out gallery")


def _show(made: "Result", *, whole: bool, aside: bool) -> None:
    """An outcome in words, or in one line where there are many; beside JSON, to standard error."""
    from heedful.lab.text import report, verdict

    if whole:
        result(report(made, get_terminal_size((80, 24)).columns) + "\n")
    else:
        (log if aside else result)(f"{made.name}: {verdict(made)} ({made.seconds:.1f} s)")

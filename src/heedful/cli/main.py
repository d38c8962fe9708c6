"""The command. Verbs import what they need when they run, so that help is quick."""

import errno
import os
import sys
import warnings
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from heedful import __version__
from heedful.cli import (
    compare,
    demo,
    describe,
    evaluate,
    explain,
    exporting,
    importing,
    lab,
    predict,
    recipes,
    train,
)
from heedful.errors import HeedfulError
from heedful.memory import ask_for_large_pages

app = typer.Typer(
    name="heedful",
    help="Trains, runs and looks inside Transformers on the machine you have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

for verb in (demo, train, predict, evaluate, explain, describe, recipes, lab, compare, importing, exporting):
    verb.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    pass


# typer has click inside from 0.26 on, and beside it before: this is the right one's class.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> NoReturn:
    """Run the command; every expected failure becomes one message and an exit status.

    0: done; 1: the work failed; 2: the request was wrong; 130: stopped by Ctrl-C, or asked to stop.
    """
    warnings.showwarning = _warn  # type: ignore[assignment]
    ask_for_large_pages()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", newline="\n")
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has left; that is their right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise
        status = _failed(_of_the_system(error), 1)
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """The exit status of the command with these arguments."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("heedful", arguments) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    except HeedfulError as error:
        return _failed(str(error), error.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        return _failed("stopped", 130)
    except _ClickException as error:
        error.show()
        return error.exit_code
    return 0


_FULL = (errno.ENOSPC, errno.EDQUOT)


def _of_the_system(error: OSError) -> str:
    """What the operating system would not do, in one line."""
    if error.errno in _FULL:
        return f"{error.filename or 'the disk'}: there is no space left"
    return f"{error.filename}: {error.strerror}"


def _warn(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """A warning without the place in the code that gave it; deprecations are not for users."""
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        print(f"heedful: warning: {message}", file=sys.stderr)


def _failed(message: str, status: int) -> int:
    print(f"heedful: {message}", file=sys.stderr)
    return status

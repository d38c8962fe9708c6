"""The command. Verbs import what they need when they run, so that help is quick."""

import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from types import FrameType
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
from heedful.cli.output import log
from heedful.cli.streams import STANDARD_ERROR, OutputClosedError, open_streams
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

    0: done, or nobody reads standard output any more; 1: the work failed; 2: the request was wrong; 130:
    stopped by Ctrl-C, or asked to stop. A broken standard error changes nothing.
    """
    _stop_cleanly()
    warnings.showwarning = _warn  # type: ignore[assignment]
    ask_for_large_pages()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its remarks are for developers
    open_streams()
    status = _status_of(lambda: _run(sys.argv[1:]))
    flushed = _status_of(sys.stdout.flush)
    sys.exit(status or flushed)


def _stop_cleanly() -> None:
    """Let Ctrl-C end the process at once while a verb imports what it needs: torch may lose an exception."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        with suppress(OSError):
            os.write(STANDARD_ERROR, b"heedful: stopped\n")
        os._exit(130)
    signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    """Whether the outermost import that is under way was begun by a verb: it has done nothing yet."""
    importer = ""
    while frame is not None:
        before = frame.f_back
        if before is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
            importer = before.f_globals.get("__name__", "")
        frame = before
    return importer.startswith("heedful.cli.")


def _run(arguments: list[str]) -> None:
    """Run the command with these arguments."""
    command = typer.main.get_command(app)
    with command.make_context("heedful", arguments) as context:
        command.invoke(context)


def _status_of(work: Callable[[], None]) -> int:
    """Do the work, and return the exit status; an expected failure becomes one message."""
    try:
        work()
    except typer.Exit as leave:
        return leave.exit_code
    except OutputClosedError:
        return 0  # that is the reader's right
    except HeedfulError as error:
        return _failed(str(error), error.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        return _failed("stopped", 130)
    except _ClickException as error:
        shown = StringIO()
        error.show(shown)
        log(shown.getvalue().removesuffix("\n"))
        return error.exit_code
    except OSError as error:
        if error.filename is None and error.errno not in (*_FULL, errno.EPIPE):
            raise
        return _failed(_of_the_system(error), 1)
    return 0


_FULL = (errno.ENOSPC, errno.EDQUOT)


def _of_the_system(error: OSError) -> str:
    """What the operating system would not do, in one line."""
    if error.errno in _FULL:
        return f"{error.filename or 'the disk'}: there is no space left"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def _warn(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """A warning without the place in the code that gave it; deprecations are not for users."""
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        log(f"heedful: warning: {message}")


def _failed(message: str, status: int) -> int:
    log(f"heedful: {message}")
    return status

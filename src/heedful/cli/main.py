"""Entry point of the command line. Commands import their dependencies on execution, so help is fast."""

import errno
import gc
import os
import platform
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from io import StringIO
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

import typer

from heedful import __version__
from heedful.cli.compare import compare
from heedful.cli.convert import export, import_
from heedful.cli.demo import demo
from heedful.cli.describe import describe
from heedful.cli.embed import embed
from heedful.cli.evaluate import evaluate
from heedful.cli.explain import EPILOG, explain
from heedful.cli.lab import lab
from heedful.cli.options import expand_option_groups
from heedful.cli.output import (
    STANDARD_ERROR,
    OutputClosedError,
    is_verbose,
    log,
    notify,
    open_streams,
    set_detail,
)
from heedful.cli.pack import clean, pack
from heedful.cli.predict import predict
from heedful.cli.recipes import recipes
from heedful.cli.score import score
from heedful.cli.serve import serve
from heedful.cli.train import train
from heedful.errors import HeedfulError, RequestError
from heedful.memory import keep_freed_memory
from heedful.plugins import allow_plugins

app = typer.Typer(
    name="heedful",
    help="Train, run and explain Transformers on your own machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

for name, verb, short_help in (
    ("demo", demo, "Train a small translator and show its attention."),
    ("train", train, None),
    ("predict", predict, "Predict with a run: one output per input."),
    ("score", score, "Print the log-probability of given texts."),
    ("evaluate", evaluate, "Evaluate a run on test data."),
    ("explain", explain, "Explain an answer: words that decided, attention, other views."),
    ("embed", embed, "Compute a vector of each input (embeddings)."),
    ("serve", serve, "Serve runs over HTTP."),
    ("describe", describe, None),
    ("recipes", recipes, "List the shipped recipes."),
    ("lab", lab, "Test claims of the lectures by experiment."),
    ("compare", compare, "Compare runs: settings, learning curves, scores."),
    ("pack", pack, "Copy a run without what only training needs."),
    ("clean", clean, "Remove checkpoints and tokenised data of a run."),
    ("import", import_, "Convert a Hugging Face transformers model to a run."),
    ("export", export, "Export a run for Hugging Face transformers."),
):
    app.command(name, short_help=short_help, epilog=EPILOG if verb is explain else None)(
        expand_option_groups(verb)
    )


def _version(requested: bool) -> None:
    if requested:
        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    plugin: list[str] | None = typer.Option(
        None,
        metavar="PACKAGE",
        help="Installed package (my_package) or file (./my_parts.py) whose classes recipes may name; may be "
        "repeated, also after the command.",
    ),
    quiet: bool = typer.Option(
        False, "--quiet", help="Print only results, warnings and errors; also after the command."
    ),
    verbose: bool = typer.Option(
        False,
        "--verbose",
        help="Also print versions, times and where an error was raised; also after the command.",
    ),
    show_version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    if quiet and verbose:
        raise RequestError("--quiet and --verbose: expected one of them")
    set_detail("quiet" if quiet else "verbose" if verbose else "usual")
    if verbose:
        log(
            f"heedful {__version__}: {platform.python_implementation()} {platform.python_version()}, "
            f"torch {version('torch')}, {platform.platform()}, {os.cpu_count()} cores"
        )
    allow_plugins(plugin or ())


# typer bundles click since 0.26 and depends on it before; take the class that this typer uses.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


_NoSuchOption: Any = vars(sys.modules[_ClickException.__module__])["NoSuchOption"]


def _refuse_setting_as_option(option: str, arguments: list[str]) -> None:
    """Raise `RequestError` if an unknown option of ``heedful train`` is the name of a setting."""
    from heedful.recipes.suggestions import other_toolkits
    from heedful.training.settings import TrainingConfig

    if "train" not in arguments:
        return
    name = option.lstrip("-")
    toolkit_name = name.replace("-", "_").lower()
    keys = [name] if "." in name else [s.key for s in other_toolkits() if s.key and s.name == toolkit_name]
    if not keys and toolkit_name in TrainingConfig.model_fields:
        keys = [f"training.{toolkit_name}"]
    if keys:
        values = [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
        values += [b for a, b in pairwise(arguments) if a == option and not b.startswith("-")]
        value = values[0] if values else "VALUE"
        written = " or ".join(f"{key}={value}" for key in keys)
        raise RequestError(f"{option}: no such option; settings are written without dashes: {written}")


GARBAGE = 20_000
"""Number of new objects from which Python searches them for garbage (by default 700).

An import of torch creates hundreds of thousands that stay; searching them takes a fifth of its time.
"""


def main() -> NoReturn:
    """Run the command; report every expected failure as one message and an exit status.

    0: success, or standard output was closed by its reader; 1: failure; 2: invalid request; 130: interrupted
    by Ctrl-C or a signal. A broken standard error does not affect the status.
    """
    _stop_cleanly()
    warnings.showwarning = _warn  # type: ignore[assignment]
    keep_freed_memory()
    gc.set_threshold(GARBAGE)
    open_streams()
    status = _status_of(lambda: _run(sys.argv[1:]))
    flushed = _status_of(sys.stdout.flush)
    gc.freeze()  # else Python, as it exits, searches all objects of torch for garbage: half a second
    sys.exit(status or flushed)


def _stop_cleanly() -> None:
    """Exit at once on Ctrl-C while a command imports: importing torch may swallow KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        with suppress(OSError):
            os.write(STANDARD_ERROR, b"heedful: interrupted\n")
        os._exit(130)
    signal.default_int_handler(number, frame)


def _imports(frame: FrameType | None) -> bool:
    """Return whether the outermost running import was started by a command, before it did any work."""
    importer = ""
    while frame is not None:
        caller = frame.f_back
        if caller is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
            importer = caller.f_globals.get("__name__", "")
        frame = caller
    return importer.startswith("heedful.cli.")


def _run(arguments: list[str]) -> None:
    command = typer.main.get_command(app)
    if "_HEEDFUL_COMPLETE" in os.environ:  # a shell asks for completions (--install-completion)
        command.main(arguments, prog_name="heedful")
    with command.make_context("heedful", _common_options_first(arguments)) as context:
        try:
            command.invoke(context)
        except _NoSuchOption as error:
            _refuse_setting_as_option(error.option_name, arguments)
            raise


_FLAGS = {"--quiet", "--verbose"}


def _common_options_first(arguments: list[str]) -> list[str]:
    """Move the options of all commands (``--plugin PACKAGE``, ``--quiet``, ``--verbose``) to the front."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    common: list[str] = []
    others: list[str] = []
    remaining = iter(arguments[:end])
    for argument in remaining:
        if argument == "--plugin":
            common += [argument, *([value] if (value := next(remaining, None)) is not None else [])]
        else:
            (common if argument in _FLAGS or argument.startswith("--plugin=") else others).append(argument)
    return [*common, *others, *arguments[end:]]


def _status_of(work: Callable[[], None]) -> int:
    """Call `work` and return the exit status; report an expected failure as one message."""
    try:
        work()
    except typer.Exit as exit_request:
        return exit_request.exit_code
    except OutputClosedError:
        return 0  # closing the pipe early is legitimate, as in `heedful ... | head`
    except HeedfulError as error:
        if is_verbose():
            notify("".join(traceback.format_exception(error)).removesuffix("\n"))
        return _failed(str(error), error.exit_status)
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted", 130)
    except _ClickException as error:
        message = StringIO()
        error.show(message)
        notify(message.getvalue().removesuffix("\n"))
        return error.exit_code
    except OSError as error:
        if error.filename is None and error.errno not in (*_FULL, errno.EPIPE):
            raise
        return _failed(_os_error_message(error), 2 if error.errno == errno.ENAMETOOLONG else 1)
    return 0


_FULL = (errno.ENOSPC, errno.EDQUOT)


def _os_error_message(error: OSError) -> str:
    """Describe an operating system error in one line."""
    if error.errno in _FULL:
        return f"{error.filename or 'the disk'}: no space left on device"
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def _warn(message: Warning | str, category: type[Warning], *location: object) -> None:
    """Log a warning without its code location; ignore deprecations, which users cannot act on."""
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        notify(f"heedful: warning: {message}")


def _failed(message: str, status: int) -> int:
    notify(f"heedful: {message}")
    return status

"""The command. Verbs import what they need when they run, so that help is quick."""

import errno
import os
import sys
from typing import NoReturn

import click
import typer

from heedful import __version__
from heedful.cli import evaluate, predict, recipes, train
from heedful.errors import HeedfulError

app = typer.Typer(
    name="heedful",
    help="Trains, runs and looks inside Transformers on the machine you have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

for verb in (train, predict, evaluate, recipes):
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


def main() -> NoReturn:
    """Run the command; every expected failure becomes one message and an exit status."""
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except HeedfulError as error:
        _fail(str(error), error.exit_status)
    except click.exceptions.Abort:
        _fail("stopped", 130)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has left; that is their right.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _fail(f"{error.filename or 'the disk'}: there is no space left", 1)
        if error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}", 1)
        raise


def _fail(message: str, status: int) -> NoReturn:
    print(f"heedful: {message}", file=sys.stderr)
    sys.exit(status)

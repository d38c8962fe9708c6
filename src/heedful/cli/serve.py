"""The command ``heedful serve``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import Device, Precision
from heedful.cli.output import log
from heedful.errors import RequestError, WorkError

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]RUN[=en:ta]…",
        help="Folders of runs; a name is that of the folder. "
        "en:ta are its languages, which LibreTranslate's clients need.",
    ),
]
Languages = tuple[str, str] | None
Host = Annotated[str, typer.Option(help="Address on which the service listens.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of engine processes, shared by the runs. [default: processors - 1, at least one a run]",
        show_default=False,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with a key in each line; clients send one of them."),
]
NoAuth = Annotated[
    bool,
    typer.Option("--no-auth", help="Listen beyond this machine without keys: whoever reaches it uses it."),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Name under which clients address the service; may be repeated.",
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.1, help="Seconds without a step after which a busy engine is replaced.")
]
RequestSeconds = Annotated[
    float, typer.Option(min=0.1, help="Seconds until a request, or a stream, is given up.")
]
QueueSeconds = Annotated[
    float,
    typer.Option(min=0.1, help="Seconds that requests to a run may take together; more are refused (429)."),
]
SendSeconds = Annotated[
    float, typer.Option(min=0.1, help="Seconds that a client may leave an answer unread.")
]
Delay = Annotated[
    float, typer.Option(min=0, help="Seconds between not being ready and not listening, after SIGTERM.")
]
Drain = Annotated[float, typer.Option(min=1, help="Seconds that requests have to finish after SIGTERM.")]


def serve(
    runs: Runs,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = None,
    api_key_file: KeyFile = None,
    no_auth: NoAuth = False,
    allowed_host: AllowedHosts = None,
    engine_timeout: Seconds = 30.0,
    request_timeout: RequestSeconds = 60.0,
    send_timeout: SendSeconds = 30.0,
    queue_seconds: QueueSeconds = 2.0,
    drain_delay: Delay = 0.0,
    drain_timeout: Drain = 60.0,
    precision: Precision = "auto",
    device: Device = "auto",
) -> None:
    """Serve runs over HTTP, until the process is interrupted.

    POST /v1/runs/NAME/predict, /score, /embed, /explain and /stream answer {"inputs": […]} with the options
    of the commands; GET /v1/runs, /v1/limits, /health, /metrics and /openapi.json describe the service.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RequestError(f"serve: {error.name} is not installed; pip install 'heedful[serve]'") from None
    from heedful.serve.engines import ServedRun, StartError
    from heedful.serve.protection import LOOPBACK
    from heedful.serve.server import Settings
    from heedful.serve.server import serve as serve_until_stopped
    from heedful.serve.service import Limits

    keys = [] if api_key_file is None else _keys(api_key_file)
    if host not in LOOPBACK and not keys and not no_auth:
        raise RequestError(
            f"--host {host}: whoever reaches this address could use the service; give --api-key-file FILE, "
            "or --no-auth if that is intended"
        )
    for name in allowed_host or ():
        if not name or any(sign in name for sign in "/ @") or (":" in name and not name.startswith("[")):
            raise RequestError(f"--allowed-host {name}: expected a name alone, as in translate.example.org")
    served = [
        ServedRun(name, str(path), precision, device, languages)
        for name, (path, languages) in _named(runs).items()
    ]
    settings = Settings(
        host,
        port,
        _shared(workers, len(served)),
        engine_timeout=engine_timeout,
        drain_delay=drain_delay,
        drain_timeout=drain_timeout,
        hosts=allowed_host or (),
        keys=keys,
        limits=Limits(seconds=request_timeout, send_seconds=send_timeout, queue=queue_seconds),
    )
    try:
        serve_until_stopped(served, settings, log)
    except StartError as error:
        raise WorkError(str(error)) from None
    except OSError as error:
        raise WorkError(f"{host}:{port}: cannot listen: {error.strerror}") from None


def _named(runs: Sequence[str]) -> dict[str, tuple[Path, Languages]]:
    """Return the folders and the languages, if any are given, by the names of the runs.

    Raises:
        RequestError: a name is used twice or is not valid in a URL, or a folder is not a run.
    """
    from heedful.artifacts.run_folder import RunFolder

    named: dict[str, tuple[Path, Languages]] = {}
    for given in runs:
        rest, languages = _with_languages(given)
        name, separator, path = rest.partition("=")
        if not separator or "/" in name:
            name, path = Path(rest).resolve().name, rest
        if (
            not name
            or not all(letter.isalnum() or letter in "-_." for letter in name)
            or name.startswith(".")
        ):
            raise RequestError(f"{given}: a name has letters, digits, '-', '_' and '.'; give NAME={path}")
        if name in named:
            raise RequestError(f"{name}: two runs have this name; give NAME=RUN")
        folder = RunFolder(path)
        if ":" in path.rpartition("=")[2] and not folder.path.exists():
            raise RequestError(
                f"{given}: no such run; languages are codes, as in {path.rpartition('=')[0]}=en:ta"
            )
        if not folder.is_unfinished:
            folder.read_card()
        named[name] = folder.path.resolve(), languages
    return named


def _with_languages(given: str) -> tuple[str, Languages]:
    """Return an argument without the codes of languages at its end, and these."""
    code = r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*"
    if found := re.fullmatch(rf"(.+)=({code}):({code})", given, re.DOTALL | re.ASCII):
        return found[1], (found[2], found[3])
    return given, None


def _shared(workers: int | None, n_runs: int) -> list[int]:
    """Return the number of engines of each run.

    Raises:
        RequestError: there are fewer than runs.
    """
    from heedful.serve.engines import usable_processors

    total = max(n_runs, usable_processors() - 1) if workers is None else workers
    if total < n_runs:
        raise RequestError(f"--workers {total}: at least one for each of {n_runs} runs")
    return [total // n_runs + (i < total % n_runs) for i in range(n_runs)]


def _keys(file: Path) -> list[str]:
    """Return the keys in a file.

    Raises:
        RequestError: it cannot be read, has none, or a short one.
    """
    try:
        keys = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{file}: cannot read the keys: {error}") from None
    if not keys:
        raise RequestError(f"{file}: no key in it")
    if any(len(key) < 16 or not key.isascii() for key in keys):
        raise RequestError(f"{file}: a key has at least 16 ASCII characters")
    return keys

"""Start a service, and shut it down gracefully: what was admitted is answered first."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from heedful.memory import gibibytes, machine_memory
from heedful.serve.app import app_of
from heedful.serve.balancing import FRONT_BYTES, Balancer
from heedful.serve.connections import connections_with
from heedful.serve.engines import Engines, ServedRun, StartError
from heedful.serve.metrics import Metrics
from heedful.serve.protection import LOOPBACK
from heedful.serve.service import Limits, Service, served_run

Log = Callable[[str], None]
"""Writes a line for the person who started the service."""

_STOPS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Settings:
    """How a service runs.

    Args:
        host, port: where it listens; port 0: any free one.
        workers: number of engines for each run.
        engine_timeout: seconds without a step after which a busy engine is replaced.
        drain_delay: seconds between not being ready and not listening any more.
        drain_timeout: seconds that requests then have to finish.
        hosts: further names under which the service is addressed.
        keys: keys of clients; empty: none is needed.
        limits: what requests may need.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: Sequence[int] = ()
    engine_timeout: float = 30.0
    drain_delay: float = 0.0
    drain_timeout: float = 60.0
    hosts: Sequence[str] = ()
    keys: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the service is addressed; empty: any, for it listens beyond this machine."""
        if self.host in LOOPBACK or self.hosts:
            return (*LOOPBACK, *self.hosts)
        return ()


class _Server(uvicorn.Server):
    """A server that leaves the signals alone: uvicorn's own would end the process by the signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(runs: Sequence[ServedRun], settings: Settings, log: Log) -> None:
    """Serve runs until the process gets SIGTERM or SIGINT; then finish what was admitted, and return.

    Raises:
        StartError: a run cannot be loaded.
        OSError: the port cannot be used.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(runs, settings, log))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the quicker event loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(runs: Sequence[ServedRun], settings: Settings, log: Log) -> None:
    groups = [Engines(run, n, settings.engine_timeout) for run, n in zip(runs, settings.workers, strict=True)]
    available = machine_memory()
    cache_memory = cache_memory_of(groups, available)
    listener = _listener(settings)
    limits, metrics = settings.limits, Metrics()
    runs_by_name = {group.run.name: served_run(group, limits, metrics) for group in groups}
    service = Service(runs_by_name, limits, metrics)
    for group in groups:
        group.log, group.cache_memory = log, cache_memory
        group.on_batch = metrics.batch_rows.labels(group.run.name).observe
    balancer = Balancer([*service.runs.values()], available)
    config = uvicorn.Config(
        app_of(service, settings.names, settings.keys),
        log_config=None,
        log_level="critical",  # its messages may have texts of clients
        access_log=False,
        lifespan="off",
        ws="none",
        http=connections_with(settings.limits.send_seconds),
        server_header=False,
        timeout_graceful_shutdown=int(settings.drain_timeout) or None,
    )
    server = _Server(config)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOPS:
        loop.add_signal_handler(number, stopped.set)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.gather(*(group.start() for group in groups))
        _say_where(listener, groups, log)
        await _until(stopped, serving, asyncio.gather(*(group.ready() for group in groups)))
        if not stopped.is_set():
            log("heedful: ready")
            balancing = asyncio.ensure_future(balancer.watch())
            await _until(stopped, serving)
            balancing.cancel()
        service.is_closing = True
        if settings.drain_delay:
            await asyncio.sleep(settings.drain_delay)
        service.is_draining = True
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        await asyncio.gather(*(group.stop() for group in groups))
    log("heedful: stopped")


async def _until(
    stopped: asyncio.Event, serving: "asyncio.Future[None]", work: "asyncio.Future[Any] | None" = None
) -> None:
    """Wait until the service is to stop, its server has ended, or the work is done; raise its error."""
    stopping = asyncio.ensure_future(stopped.wait())
    awaited: set[asyncio.Future[Any]] = {stopping, serving}
    if work is not None:
        awaited.add(work)
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if serving.done() and not stopped.is_set():
        serving.result()
        stopped.set()
    if work is not None:
        if work.done():
            work.result()
        else:
            work.cancel()


def cache_memory_of(groups: Sequence[Engines], available: int | None) -> int | None:
    """Return the bytes that each engine may take for keys and values: half of what is left; None: not known.

    Raises:
        StartError: the engines do not fit in memory.
    """
    if available is None:
        return None
    needed = FRONT_BYTES + sum(group.n * group.run.memory for group in groups)
    n = sum(group.n for group in groups)
    if needed > available:
        raise StartError(
            f"--workers {n}: the engines need about {gibibytes(needed)}, and {gibibytes(available)} are "
            "available; start fewer, or serve fewer runs"
        )
    return (available - needed) // (2 * n)


def _listener(settings: Settings) -> socket.socket:
    """Return a socket that is bound to the address of the service."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        for level, option, value in _dead_peers(settings.limits.send_seconds):
            listener.setsockopt(level, option, value)
        listener.bind((settings.host, settings.port))
    except OSError:
        listener.close()
        raise
    return listener


def _dead_peers(seconds: float) -> Iterator[tuple[int, int, int]]:
    """Yield options of a listener, which its connections inherit, by which peers that are gone are noticed.

    Without them, a machine that fell off the network keeps its connection for a quarter of an hour.
    """
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    for name, value in (
        ("TCP_KEEPIDLE", max(1, int(seconds))),
        ("TCP_KEEPINTVL", max(1, int(seconds / 3))),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(1000 * seconds)),
    ):
        if (option := getattr(socket, name, None)) is not None:  # not on every system
            yield socket.IPPROTO_TCP, option, value


def _say_where(listener: socket.socket, groups: Sequence[Engines], log: Log) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    log(f"heedful: http://{shown}:{port} (a page for browsers; programs: /v1/runs/NAME/predict)")
    for group in groups:
        engines = f"{group.n} engine{'s' * (group.n > 1)}"
        log(f"heedful: {group.run.name}: {group.run.path} ({engines})")

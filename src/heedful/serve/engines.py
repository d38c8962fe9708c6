"""The engines of the service as its front sees them: started, watched, replaced."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

from heedful.artifacts.run_folder import RunFolder
from heedful.serve.admission import RefusedError, out_of_time
from heedful.serve.frames import BrokenStreamError, Frame, Unpacker
from heedful.typing import JsonObject

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds before a lost engine is started again: the first time, and at most; twice as many each time."""

ENGINE_BYTES, WEIGHT_COPIES = 320 << 20, 3
"""Memory of an engine: of its libraries (300 MiB were measured), and of its weights, which it has as read, as
those of a module, and as those of the native engine."""

STOP_SECONDS = 5.0
"""Seconds that an engine has to end when the service does."""

LOST = "the engine that computed this answer was lost; try again"


def usable_processors(root: Path = Path("/")) -> int:
    """Return how many processors this process may use, with those limits of a container that can be seen.

    Args:
        root: root of the file system in which the control group is looked up.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # not on every system; "max": no limit
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        usable = min(usable, max(1, int(quota) // int(period)))
    return usable


class StartError(Exception):
    """A run cannot be loaded."""


@dataclass(frozen=True)
class ServedRun:
    """A run of the service.

    Args:
        name: in the addresses of the service.
        path: its folder.
        precision, device: as everywhere. Plugins are in the environment (`heedful.plugins`).
        languages: codes of the source and the target language; None: as the recipe says.
    """

    name: str
    path: str
    precision: str = "auto"
    device: str = "cpu"
    languages: tuple[str, str] | None = None

    @property
    def memory(self) -> int:
        """About how many bytes an engine of this run takes before the first request."""
        weights = RunFolder(self.path).weights  # not there before the first checkpoint of a training
        return ENGINE_BYTES + (WEIGHT_COPIES * weights.stat().st_size if weights.is_file() else 0)


@dataclass(eq=False)
class Pending:
    """A request in the hands of an engine, and what has come of it so far.

    Args:
        cost, read, positions: its expected, read and total tokens (`heedful.serve.requests.Cost`).
        explains: whether it is an explanation.
        frames: what the engine sent.
        taken: called when the engine begins.
        counted: the tokens that it counts for in `heedful.serve.admission.Admission`.
        is_taken, is_answered, is_over: how far it is.
    """

    cost: int
    read: int
    positions: int
    explains: bool
    frames: "asyncio.Queue[Frame]" = field(default_factory=asyncio.Queue)
    taken: Callable[[], None] = lambda: None
    counted: float = 0.0
    is_taken: bool = False
    is_answered: bool = False
    is_over: bool = False

    async def next_frame(self) -> Frame:
        """Return the next piece of a stream, or the answer, which is the last frame.

        Raises:
            RefusedError: the request is invalid, its engine is lost, or its time is over (`expire`).
        """
        frame = await self.frames.get()
        match frame.header:
            case {"late": True}:
                raise out_of_time()
            case {"lost": True}:
                self.is_over = True
                raise RefusedError(LOST, 503, "lost", 1)
            case {"refused": _, "status": status, "message": message}:
                self.is_over = True
                raise RefusedError(message, status, "invalid")
            case {"answer": _}:
                self.is_answered = self.is_over = True
        return frame

    def expire(self) -> None:
        """Note that the time for the request is over."""
        self.frames.put_nowait(Frame({"late": True}))


class _Connection(asyncio.Protocol):
    """Passes frames on; writes the frames of a turn of the event loop together."""

    def __init__(self, received: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        self._received, self._lost, self._unpacker = received, lost, Unpacker()
        self._unwritten: list[bytes] = []
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # that of uvloop inherits from none

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._unpacker.feed(data):
                self._received(frame)
        except BrokenStreamError:
            assert self.transport is not None
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def write(self, frame: Frame) -> None:
        """Write a frame at the end of this turn."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten.append(frame.packed())

    def _write(self) -> None:
        assert self.transport is not None
        data, self._unwritten = b"".join(self._unwritten), []
        if not self.transport.is_closing():
            self.transport.write(data)


class EngineProcess:
    """One engine process; lost when it ends, for whatever reason.

    Args:
        run: the run that it loads.
        on_lost: called once when it is lost or has failed to start.
        on_batch: called with the number of requests that it begins together.
        cache_memory: the bytes that it may take for keys and values; None: not limited.
    """

    _numbers = count(1)

    def __init__(
        self,
        run: ServedRun,
        on_lost: "Callable[[EngineProcess], None]",
        on_batch: Callable[[int], None] = lambda n: None,
        cache_memory: int | None = None,
    ) -> None:
        self.run, self._on_lost, self._on_batch, self.cache_memory = run, on_lost, on_batch, cache_memory
        self.pending: dict[int, Pending] = {}
        self.cost = 0
        """The tokens of the requests in its hands."""
        self.description: JsonObject | None = None
        self.failure: str | None = None
        self.is_lost = False
        self.started = asyncio.Event()
        """Set when the engine is ready, or lost."""
        self._beats: tuple[object, object] = (None, None)
        self._last_beat = self._last_step = self._last_explained = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether it answers requests."""
        return self.description is not None and not self.is_lost

    async def start(self) -> None:
        """Start the process; `started` is set later."""
        own, other = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with other:
            # Its name is for people who look at processes.
            command = [sys.executable, "-P", "-m", "heedful.serve.engine", str(other.fileno()), self.run.name]
            self.process = subprocess.Popen(
                command,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the front, which drains
            )
        own.setblocking(False)
        loop = asyncio.get_running_loop()
        _, self.connection = await loop.connect_accepted_socket(
            lambda: _Connection(self._receive, self._lose), own
        )
        run = {
            "run": self.run.path,
            "precision": self.run.precision,
            "device": self.run.device,
            "cache_memory": self.cache_memory,
        }
        self.connection.write(Frame({"start": run}))

    def _receive(self, frame: Frame) -> None:
        header = frame.header
        match header:
            case {"beat": steps, "explained": explained}:
                self._hear(steps, explained)
            case {"ready": description}:
                self.description = description
                self._last_beat = self._last_step = self._last_explained = time.monotonic()
                self.started.set()
            case {"failed": message}:
                self.failure = message
            case {"taken": numbers}:
                self._on_batch(len(numbers))
                for number in numbers:
                    if pending := self.pending.get(number):
                        pending.taken()
            case {"piece": number} | {"answer": number} | {"refused": number}:
                if pending := self.pending.get(number):
                    pending.frames.put_nowait(frame)

    def _hear(self, steps: object, explained: object) -> None:
        now = self._last_beat = time.monotonic()
        if steps != self._beats[0] or all(pending.explains for pending in self.pending.values()):
            self._last_step = now
        if explained != self._beats[1] or not any(pending.explains for pending in self.pending.values()):
            self._last_explained = now
        self._beats = (steps, explained)

    def silent_for(self) -> float:
        """Return for how many seconds the engine has not computed although it should."""
        return time.monotonic() - min(self._last_beat, self._last_step, self._last_explained)

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()

    def _lose(self) -> None:
        """Fail all pending requests."""
        self.is_lost = True
        self.started.set()
        for pending in self.pending.values():
            pending.frames.put_nowait(Frame({"lost": True}))
        self._on_lost(self)

    @contextlib.contextmanager
    def request(self, verb: str, payload: bytes, pending: Pending, *, stream: bool = False) -> Iterator[None]:
        """Send a request, whose frames come to ``pending``; at the end, cancel it if it is not over."""
        number = next(self._numbers)
        self.pending[number] = pending
        self.cost += pending.cost
        header = {"request": number, "verb": verb, "cost": pending.cost, "stream": stream}
        self.connection.write(Frame(header, payload))
        try:
            yield
        finally:
            del self.pending[number]
            self.cost -= pending.cost
            if not pending.is_over and not self.is_lost:
                self.connection.write(Frame({"cancel": number}))

    async def stop(self) -> None:
        """Close the connection, at which the process ends; kill it if it does not."""
        if self.connection.transport is not None:
            self.connection.transport.close()
        try:
            await asyncio.to_thread(self.process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


class Engines:
    """The engines of one run. A lost one is replaced.

    Args:
        run: the run.
        n: number of engines.
        timeout: seconds without a step after which an engine that has requests is replaced.
    """

    def __init__(self, run: ServedRun, n: int, timeout: float) -> None:
        self.run, self.n, self.timeout = run, n, timeout
        self.engines: list[EngineProcess] = []
        self.restarts = 0
        self.on_batch: Callable[[int], None] = lambda n: None
        """Called with the number of requests that an engine begins together."""
        self.cache_memory: int | None = None
        """The bytes that each engine may take for keys and values; None: not known."""
        self.log: Callable[[str], None] = lambda line: None
        """Writes a line for the person who started the service."""
        self._lost_description: JsonObject = {}
        """That of an engine that was lost, while no other one is ready."""
        self._failures_in_a_row = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def start(self) -> None:
        """Start all engines, without waiting until they are ready."""
        for _ in range(self.n):
            await self._start_one()
        self._in_background(self._watch())

    async def ready(self) -> None:
        """Wait until an engine is ready.

        Raises:
            StartError: the run cannot be loaded.
        """
        await asyncio.wait(
            [asyncio.ensure_future(engine.started.wait()) for engine in self.engines],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if failures := [engine.failure for engine in self.engines if engine.failure]:
            raise StartError(failures[0])
        if not self.is_ready:
            raise StartError(f"{self.run.name}: the engine ended before it was ready")

    @property
    def is_ready(self) -> bool:
        """Whether an engine answers."""
        return any(engine.is_ready for engine in self.engines)

    @property
    def description(self) -> JsonObject:
        """What the run can do; empty before the first engine is ready."""
        return next(
            (engine.description for engine in self.engines if engine.description), self._lost_description
        )

    def least_loaded(self) -> EngineProcess:
        """Return the engine with the fewest tokens in its hands.

        Raises:
            RefusedError: none is ready.
        """
        ready = [engine for engine in self.engines if engine.is_ready]
        if not ready:
            raise RefusedError(f"{self.run.name}: no engine is ready; try again", 503, "engine", 1)
        return min(ready, key=lambda engine: engine.cost)

    async def add(self) -> None:
        """Start one engine more."""
        self.n += 1
        await self._start_one()

    async def remove(self) -> bool:
        """Stop an engine that has no requests; return whether there is one, and another that is ready."""
        ready = [engine for engine in self.engines if engine.is_ready]
        idle = next((engine for engine in ready if not engine.pending), None)
        if idle is None or len(ready) < 2:
            return False
        self.n -= 1
        self.engines.remove(idle)
        await idle.stop()
        return True

    async def _start_one(self) -> None:
        """Start an engine.

        Raises:
            StartError: the system refuses a process.
        """
        engine = EngineProcess(self.run, self._replace, self.on_batch, self.cache_memory)
        self.engines.append(engine)
        try:
            await engine.start()
        except OSError as error:
            self.engines.remove(engine)
            raise StartError(f"{self.run.name}: an engine cannot be started: {error.strerror}") from None

    def _replace(self, lost: EngineProcess) -> None:
        """Start another engine for one that is lost, later if it was never ready."""
        if lost in self.engines and not self._stopping and (lost.failure is None or self.restarts):
            self.engines.remove(lost)
            self._lost_description = lost.description or self._lost_description
            self.restarts += 1
            self.log(f"heedful: an engine of {self.run.name} was lost; another one starts")
            self._failures_in_a_row = 0 if lost.description else self._failures_in_a_row + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures_in_a_row)
            self._in_background(self._start_after(0.0 if lost.description else pause))
        with contextlib.suppress(ProcessLookupError):
            lost.process.kill()
        self._in_background(asyncio.to_thread(lost.process.wait))

    async def _start_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._stopping:
            return
        try:
            await self._start_one()
        except StartError:
            self._in_background(self._start_after(LONGEST_PAUSE))

    async def _watch(self) -> None:
        """Replace engines that have requests but make no steps."""
        while not self._stopping:
            await asyncio.sleep(min(1.0, self.timeout / 4))
            for engine in [*self.engines]:
                if engine.is_ready and engine.silent_for() > self.timeout:
                    engine.kill()

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop all engines."""
        self._stopping = True
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*(engine.stop() for engine in self.engines))

"""A service in a process of its own, as its operator sees it: its log, its metrics, its processes."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
"""Seconds in which a service must be ready."""

STAND_IN = Path(__file__).with_name("stand_in.py")


class Service:
    """A service, and what can be seen of it from outside.

    Args:
        runs: folders by name.
        options: of ``heedful serve``.
        stand_in: kind of engine in place of heedful's (`serving.stand_in`); None: heedful's.
    """

    def __init__(self, runs: Mapping[str, Path], options: Sequence[str] = (), stand_in: str | None = None):
        program = ["-m", "heedful"] if stand_in is None else [str(STAND_IN), "front", stand_in]
        named = [f"{name}={path}" for name, path in runs.items()]
        self.port = free_port()
        command = [sys.executable, *program, "serve", *named, "--port", str(self.port), *options]
        self.log = tempfile.TemporaryFile(mode="w+b")  # noqa: SIM115 - closed by `close`
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log
        )

    # Life --------------------------------------------------------------------------------------------------

    def wait_for(self, path: str, pause: float = 0.005) -> float:
        """Wait until an address answers 200; return the seconds since the start of the process."""
        end = time.perf_counter() + START_SECONDS
        while True:
            with suppress(OSError, http.client.HTTPException):
                if self.get(path)[0] == 200:
                    return time.perf_counter() - self.begun
            if self.process.poll() is not None or time.perf_counter() > end:
                raise RuntimeError(f"the service does not start: {self.text()[-2000:]}")
            time.sleep(pause)

    def end(self, timeout: float = 90) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self.process.poll() is None:
            try:
                self.end(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    # Answers -----------------------------------------------------------------------------------------------

    def get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def described(self, run: str) -> dict[str, Any]:
        """Return what a run can do."""
        runs = json.loads(self.get("/v1/runs")[1])["runs"]
        return next(each for each in runs if each["name"] == run)

    def gauge(self, name: str, run: str) -> float:
        """Return a number of ``/metrics``."""
        return gauge(self.get("/metrics")[1], name, run)

    # The log -----------------------------------------------------------------------------------------------

    def position(self) -> int:
        """Return the length of the log."""
        return os.fstat(self.log.fileno()).st_size

    def text(self, start: int = 0) -> str:
        """Return the log from a position on."""
        size = self.position() - start
        return os.pread(self.log.fileno(), max(0, size), start).decode("utf-8", "replace")

    def lines(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the lines of requests from a position on."""
        return [json.loads(line) for line in self.text(start).splitlines() if line.startswith("{")]

    def wait_for_lines(
        self, start: int, holds: Callable[[list[dict[str, Any]]], bool], timeout: float
    ) -> list[dict[str, Any]]:
        """Return the lines from a position on, as soon as something holds for them, or the time is over."""
        end = time.perf_counter() + timeout
        while not holds(found := self.lines(start)) and time.perf_counter() < end:
            time.sleep(0.05)
        return found

    # Processes ---------------------------------------------------------------------------------------------

    @property
    def front(self) -> int:
        """Its process id."""
        return self.process.pid

    def engines(self) -> list[int]:
        """Return the process ids of the engines."""
        return children(self.front)

    def resident(self) -> dict[str, float]:
        """Return the memory of the front and of all engines in MiB."""
        return {
            "front": resident(self.front) / 2**20,
            "engines": sum(resident(pid) for pid in self.engines()) / 2**20,
        }


@contextmanager
def serving(
    runs: Mapping[str, Path], *options: str, stand_in: str | None = None, ready: bool = True
) -> Iterator[Service]:
    """Run a service for a while."""
    service = Service(runs, options, stand_in)
    try:
        if ready:
            service.wait_for("/health/ready", 0.05)
        yield service
    finally:
        service.close()


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
        return port


def gauge(metrics: bytes, name: str, run: str) -> float:
    """Return a number of the text of ``/metrics``."""
    found = re.search(rf'^{name}{{run="{re.escape(run)}"}} (\S+)$', metrics.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process, of the user and of the system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 of one that has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process that run."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [pid for pid in map(int, found.stdout.split()) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z"

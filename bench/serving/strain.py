"""What the service does with more load than it bears, with clients that leave, and without its engines."""

import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from serving.bench import Bench
from serving.clients import Exchange, closed_loop, get, open_loop, poisson, post, quantile
from serving.costs import rate
from serving.figures import Section
from serving.service import Service, gauge, is_alive, serving

# Overload ---------------------------------------------------------------------------------------------------

PROBE = 0.25
"""Seconds between two looks at the metrics."""

REFUSED = 0.01
"""Seconds in which a request must be refused, by the server's clock."""

ROOM = 64
"""Requests that differ; the others repeat them."""


@dataclass
class Loaded:
    """What came of an open loop.

    Args:
        answered, refused: seconds of the requests with status 200 and 429, by the server's clock.
        waited: seconds of the answered ones by the clients' clock.
        late: how long after its time each was sent, by the clients.
        statuses: how many requests have each status.
        most_requests, most_tokens: the most that was seen in the service at a time.
        begun, ended, done: when the first and the last request was sent, and when the last answer came.
    """

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    most_requests: float = 0.0
    most_tokens: float = 0.0
    begun: float = float("inf")
    ended: float = 0.0
    done: float = 0.0


def _open_loop(
    service: Service, name: str, requests: list[bytes], per_second: float, seconds: float
) -> Loaded:
    """Send requests at this mean rate, whatever becomes of them, and look at the metrics meanwhile."""
    own = [(at, requests[n % len(requests)]) for n, at in enumerate(poisson(per_second, seconds))]
    probes = [(n * PROBE, get("/metrics")) for n in range(int(seconds / PROBE))]
    planned = sorted(own + probes, key=lambda each: each[0])
    times, sent = [at for at, _ in planned], [request for _, request in planned]
    start, found = service.position(), Loaded()
    for exchange in open_loop(service.port, sent, times):
        if sent[exchange.number].startswith(b"GET"):
            both = ("heedful_requests_running", "heedful_requests_waiting")
            n = sum(gauge(exchange.body, gauge_name, name) for gauge_name in both)
            found.most_requests = max(found.most_requests, n)
            tokens = gauge(exchange.body, "heedful_queued_tokens", name)
            found.most_tokens = max(found.most_tokens, tokens)
            continue
        found.statuses[exchange.status] += 1
        found.late.append(exchange.sent - exchange.due)
        found.begun, found.ended = min(found.begun, exchange.sent), max(found.ended, exchange.sent)
        found.done = max(found.done, exchange.done)
        if exchange.status == 200:
            found.waited.append(exchange.seconds)
    for line in service.lines(start):
        if line["status"] == 200:
            found.answered.append(line["seconds"])
        elif line["status"] == 429:
            found.refused.append(line["seconds"])
    return found


def _seconds_until_normal(service: Service, request: bytes, alone: float, since: float) -> float:
    """Send single requests until three in a row are about as quick as alone; return how long that took.

    Nothing is left of the load before, so if that took long, the result is at least as much.
    """
    quick: list[Exchange] = []
    end = time.perf_counter() + 30
    while time.perf_counter() < end:
        (exchange,) = closed_loop(service.port, [request], 1, tries_again=False)
        is_quick = exchange.status == 200 and exchange.seconds < 2 * alone + 0.02
        quick = [*quick, exchange] if is_quick else []
        if len(quick) == 3:
            return max(0.0, quick[0].sent - since)
        time.sleep(0.02)
    return float("inf")


def measure_overload(bench: Bench) -> Section:
    """Send more than the service bears, in an open loop."""
    section = Section("Overload")
    seconds = bench.amounts.overload_seconds
    with serving({"tiny": bench.path("tiny")}, stand_in="no-op") as service:
        requests = bench.requests("tiny", ROOM, seed=2)
        spent = bench.amounts.round_seconds
        no_op = rate(closed_loop(service.port, requests, bench.amounts.clients, seconds=spent, repeats=True))
    section.notes.append(
        f"An open loop of {seconds:.0f} s with the default limits: requests of one input come independently "
        "of each other, whatever becomes of those before. What the service bears is measured first, with "
        f"{bench.amounts.clients} clients. Times of refusals and of admitted requests are the server's, from "
        "its log. Normal again: three single requests in a row take less than twice what one takes alone."
    )
    for name in ("base", "tiny"):
        with serving({name: bench.path(name)}, "--precision", bench.precision) as service:
            requests = bench.requests(name, ROOM, seed=2)
            capacity = rate(
                closed_loop(service.port, requests, bench.amounts.clients, seconds=spent, repeats=True)
            )
            alone = statistics.median(e.seconds for e in closed_loop(service.port, requests[:12], 1))
            normal = _open_loop(service, name, requests, 0.8 * capacity, seconds / 2)
            before = sum(service.resident().values())
            offered = 10 * capacity if name == "base" else 0.7 * no_op
            found = _open_loop(service, name, requests, offered, seconds)
            again = _seconds_until_normal(service, requests[0], alone, found.ended)
            time.sleep(min(5.0, seconds / 6))
            grown = sum(service.resident().values()) - before
        n = sum(found.statuses.values())
        p99 = quantile(found.answered, 0.99)
        what = name.capitalize()
        why = "ten times what it bears" if name == "base" else "70 % of what the front alone bears"
        section.add(f"{what}: requests per second that it bears", capacity, "1/s")
        section.add(f"{what}: requests per second that were sent, {why}", n / seconds, "1/s")
        section.add(f"{what}: refused (429)", 100 * found.statuses[429] / n, "%")
        section.add(f"{what}: answered per second", found.statuses[200] / (found.done - found.begun), "1/s")
        section.add(f"{what}: other statuses", n - found.statuses[200] - found.statuses[429], at_most=0)
        section.add(f"{what}: most requests in the service", found.most_requests, at_most=256)
        section.add(f"{what}: most tokens in the service", found.most_tokens)
        if found.refused:
            late = 1000 * quantile(found.refused, 0.99)
            section.add(f"{what}: time to a refusal, p99", late, "ms", at_most=1000 * REFUSED)
            section.add(f"{what}: time to a refusal, the longest", 1000 * max(found.refused), "ms")
        section.add(f"{what}: admitted, p99", 1000 * p99, "ms")
        section.add(f"{what}: admitted, p99 at 80 % load", 1000 * quantile(normal.answered, 0.99), "ms")
        ratio = p99 / quantile(normal.answered, 0.99) if normal.answered else float("nan")
        section.add(f"{what}: admitted, p99, compared with 80 % load", ratio, "times", at_most=2.0)
        section.add(f"{what}: p99 by the clients' clock", 1000 * quantile(found.waited, 0.99), "ms")
        section.add(f"{what}: how late the clients sent, p99", 1000 * quantile(found.late, 0.99), "ms")
        section.add(f"{what}: normal again after", again, "s", at_most=5.0)
        section.add(f"{what}: memory afterwards, compared with before", grown, "MiB", at_most=32.0)
    return section


# Clients that leave -----------------------------------------------------------------------------------------

LONG, ENDLESS, GROUP = 1_600, 100_000, 8
"""Tokens of a stream that nobody reads to its end, of which a group is admitted at a time, or one alone. Each
of a group has one more than the one before, by which its line of the log is found."""


def _long(run: str, n: int) -> bytes:
    decoding = {"kind": "greedy", "min_length": n}
    return post(run, "stream", {"inputs": ["w1 w2 w3"], "max_new_tokens": n, "decoding": decoding})


def _leave(own: socket.socket, *, resets: bool) -> float:
    """Close a connection by FIN or RST; return when, by the clock of the log."""
    if resets:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    now = time.time()
    own.close()
    return now


def measure_leavers(bench: Bench) -> Section:
    """Let clients vanish while others wait for their answers."""
    section = Section("Clients that leave")
    options = ("--send-timeout", str(bench.amounts.send_timeout), "--request-timeout", "240")
    n = bench.amounts.leavers
    with serving({"lm": bench.path("lm")}, *options) as service:
        decoding = {"kind": "greedy", "min_length": 12}
        settings = {"max_new_tokens": 12, "decoding": decoding}
        others = bench.requests("lm", 40, seed=4, **settings)
        wanted = {e.number: e.body for e in closed_loop(service.port, others, 1)}
        alone = statistics.median(e.seconds for e in closed_loop(service.port, others[:10], 1))
        neighbours: list[Exchange] = []
        seconds: dict[bool, list[float]] = {False: [], True: []}
        free: list[float] = []
        for resets in (False, True):
            for first in range(0, n, GROUP):
                lengths = [LONG + i for i in range(min(GROUP, n - first))]
                left, freed = _group(service, lengths, others, neighbours, resets=resets)
                seconds[resets] += left
                free.append(freed - alone)
        is_idle = service.gauge("heedful_queued_tokens", "lm") == 0
        silent = _silent(service, bench.amounts.silent)
    changed = sum(e.status != 200 or e.body != wanted[e.number] for e in neighbours)
    section.notes.append(
        f"Clients open long streams and vanish, {GROUP} at a time: by closing the connection (FIN), by "
        "resetting it (RST), or by reading nothing more, with `--send-timeout "
        f"{bench.amounts.send_timeout:g}`. Between them, others ask for short answers of the same run. "
        "Measured until the line of the log that says that the request is out of the service; "
        f"{bench.described('lm')}. The system buffers what nobody reads, so a stream that stalls is noticed "
        "only after its buffers are full."
    )
    for which, resets in (("FIN", False), ("RST", True)):
        section.add(f"{which}: out of the service", len(seconds[resets]), f"of {n}", at_least=n)
        section.add(f"{which}: after, p50", 1000 * quantile(seconds[resets], 0.5), "ms")
        section.add(f"{which}: after, the longest", 1000 * max(seconds[resets], default=float("nan")), "ms")
    section.add(
        "a short request right afterwards, beyond its time alone", [1000 * each for each in free], "ms"
    )
    section.add("tokens left in the service", 0.0 if is_idle else 1.0, at_most=0)
    section.add("neighbours asked", len(neighbours))
    section.add("neighbours whose answer changed", changed, at_most=0)
    section.add("stopped reading: out of the service", len(silent), f"of {bench.amounts.silent}",
                at_least=bench.amounts.silent)  # fmt: skip
    if silent:
        section.add("stopped reading: after", silent, "s")
    return section


def _group(
    service: Service, lengths: list[int], others: list[bytes], neighbours: list[Exchange], *, resets: bool
) -> tuple[list[float], float]:
    """Open streams and leave them; return the seconds until each is out, and those of a request then."""
    start, sockets = service.position(), []
    for length in lengths:
        own = socket.create_connection(("127.0.0.1", service.port), timeout=60)
        own.sendall(_long("lm", length))
        sockets.append(own)
    sockets[0].recv(1 << 16)  # the first has begun; others run or wait
    loading = threading.Thread(
        target=lambda: neighbours.extend(closed_loop(service.port, others[:8], 4)), daemon=True
    )
    loading.start()
    time.sleep(0.05)
    times = [_leave(own, resets=resets) for own in sockets]
    (probe,) = closed_loop(service.port, others[-1:], 1)
    probe.number = len(others) - 1
    neighbours.append(probe)
    loading.join()
    lines = service.wait_for_lines(start, lambda found: len(_gone(found)) >= len(lengths), 20)
    # The cost of a stream is the length of its prompt and of its longest output.
    gone = sorted((line["tokens"], line["time"]) for line in _gone(lines))
    left = sorted(zip(lengths, times, strict=True))
    if len(gone) < len(left):
        return [], probe.seconds
    return [max(0.0, out - at) for (_, out), (_, at) in zip(gone, left, strict=True)], probe.seconds


def _gone(lines: list[dict[str, float]]) -> list[dict[str, float]]:
    return [line for line in lines if line["status"] == 499 and line["tokens"] >= LONG]


def _silent(service: Service, n: int) -> list[float]:
    """Stop reading streams at their beginning; return the seconds until each is out of the service."""
    found = []
    for _ in range(n):
        start = service.position()
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            own.settimeout(60)
            own.connect(("127.0.0.1", service.port))
            own.sendall(_long("lm", ENDLESS))
            own.recv(16)
            begun = time.time()
            lines = _gone(service.wait_for_lines(start, lambda lines: bool(_gone(lines)), 90))
        if lines:
            found.append(lines[0]["time"] - begun)
    return found


# Engines that are lost, and the end -------------------------------------------------------------------------

HANG_SECONDS = 2.0
"""``--engine-timeout`` of the measured service."""


@contextmanager
def _load(service: Service, requests: list[bytes], clients: int) -> Iterator[list[Exchange]]:
    """Have clients ask while something happens; yield the exchanges, which grow."""
    done: list[Exchange] = []
    stop = threading.Event()

    def on_done(exchange: Exchange) -> None:
        done.append(exchange)
        if exchange.status == 503:
            time.sleep(0.01)

    def run() -> None:
        closed_loop(
            service.port, requests, clients, repeats=True, tries_again=False, stopped=stop.is_set,
            on_done=on_done,
        )  # fmt: skip

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(90)


def engine_start_seconds(bench: Bench, name: str) -> float:
    """Start an engine by itself; return the seconds until it is ready."""
    from heedful.serve.frames import Frame, Unpacker

    own, other = socket.socketpair()
    begun = time.perf_counter()
    command = [sys.executable, "-P", "-m", "heedful.serve.engine", str(other.fileno())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with own, subprocess.Popen(command, pass_fds=[other.fileno()], env=environment) as process:
        other.close()
        run = {
            "run": str(bench.path(name)),
            "precision": bench.precision,
            "device": "cpu",
            "cache_memory": None,
        }
        own.sendall(Frame({"start": run}).packed())
        unpacker = Unpacker()
        while data := own.recv(1 << 16):
            if any("ready" in frame.header for frame in unpacker.feed(data)):
                seconds = time.perf_counter() - begun
                own.shutdown(socket.SHUT_RDWR)
                process.wait(30)
                return seconds
    raise RuntimeError("the engine does not start")


def measure_engines(bench: Bench) -> Section:
    """Kill and stop engines, and end services, while clients ask."""
    section = Section("Engines that are lost, and the end")
    starts = [engine_start_seconds(bench, "tiny") for _ in range(min(3, bench.amounts.starts))]
    start = statistics.median(starts)
    section.notes.append(
        f"8 clients ask all the time; {bench.described('tiny')}; one engine, "
        f"`--engine-timeout {HANG_SECONDS:g}`. Answers again: from the signal to the first answer to a "
        "request that was sent after it. Aims are the time to notice, the start of an engine (measured "
        "alone) and a second."
    )
    section.add("start of an engine, alone", starts, "s")
    options = ("--precision", bench.precision, "--workers", "1", "--engine-timeout", str(HANG_SECONDS))
    statuses: Counter[int] = Counter()
    with serving({"tiny": bench.path("tiny")}, *options) as service:
        requests = bench.requests("tiny", ROOM, seed=6)
        for which, number, n, notice in (
            ("killed", signal.SIGKILL, bench.amounts.kills, 0.0),
            ("stopped (SIGSTOP)", signal.SIGSTOP, bench.amounts.hangs, HANG_SECONDS * 1.25),
        ):
            times = []
            with _load(service, requests, 8) as done:
                for _ in range(n):
                    times.append(_lose(service, number, done))
                    time.sleep(0.3)
            statuses += Counter(e.status for e in done)
            section.add(f"{which}, {n} times: answers again", times, "s", at_most=notice + start + 1)
            section.add(f"{which}, {n} times: the longest", max(times), "s", at_most=notice + start + 1)
        section.add("requests answered meanwhile", statuses[200])
        section.add("requests that got 503", statuses[503])
        others = sum(statuses.values()) - statuses[200] - statuses[503] - statuses[429]
        section.add("requests with another end", others, at_most=0)
    _add_ends(bench, section)
    return section


def _lose(service: Service, number: signal.Signals, done: list[Exchange]) -> float:
    """Send a signal to the engine; return the seconds until the service answers again."""
    (engine,) = service.engines()
    since = time.perf_counter()
    os.kill(engine, number)
    end = since + 60
    while time.perf_counter() < end:
        again = [e.done for e in done[-400:] if e.sent > since and e.status == 200]
        # What was computed before a signal took effect does not count.
        if again and engine not in service.engines():
            return min(again) - since
        time.sleep(0.05)
    return float("inf")


def _add_ends(bench: Bench, section: Section) -> None:
    """Add what becomes of requests when services get SIGTERM, several services at a time."""
    counted: Counter[str] = Counter()
    times: list[float] = []
    n = bench.amounts.ends
    for first in range(0, n, bench.amounts.together):
        group = min(bench.amounts.together, n - first)
        with ExitStack() as stack:
            services = [
                stack.enter_context(serving({"lm": bench.path("lm")}, ready=False)) for _ in range(group)
            ]
            for service in services:
                service.wait_for("/health/ready", 0.05)
            _end(bench, services, counted, times)
    section.add(f"SIGTERM under load, {n} times: exit status 0", counted["exit 0"], f"of {n}", at_least=n)
    section.add("SIGTERM: time to the end", times, "s")
    section.add("SIGTERM: requests answered by the services", counted["answered"])
    section.add("SIGTERM: of these not received whole", counted["answered"] - counted["received"], at_most=0)
    section.add("SIGTERM: admitted requests that failed", counted["failed"], at_most=0)
    section.add("SIGTERM: processes left", counted["left"], at_most=0)


def _end(bench: Bench, services: list[Service], counted: Counter[str], times: list[float]) -> None:
    decoding = {"kind": "greedy", "min_length": 60}
    prompts = bench.inputs("lm", ROOM, seed=8)
    requests = [
        post("lm", "predict" if n % 2 else "stream",
             {"inputs": [prompt], "max_new_tokens": 60, "decoding": decoding})
        for n, prompt in enumerate(prompts)
    ]  # fmt: skip
    engines = [pid for service in services for pid in service.engines()]
    with ExitStack() as stack:
        loads = [stack.enter_context(_load(service, requests, 4)) for service in services]
        time.sleep(0.5)
        begun = time.perf_counter()
        for service in services:
            service.process.send_signal(signal.SIGTERM)
        for service in services:
            with suppress(subprocess.TimeoutExpired):
                counted["exit 0"] += service.process.wait(90) == 0
                times.append(time.perf_counter() - begun)
    for service, done in zip(services, loads, strict=True):
        lines = service.lines()
        counted["answered"] += sum(line["status"] == 200 for line in lines)
        counted["received"] += sum(e.status == 200 and _is_whole(e) for e in done)
        # What is refused has no tokens in its line: they are counted on admission.
        counted["failed"] += sum(line["status"] not in (200, 429) and line["tokens"] > 0 for line in lines)
    counted["left"] += sum(map(is_alive, [*engines, *(service.front for service in services)]))


def _is_whole(exchange: Exchange) -> bool:
    """Return whether an answer is complete."""
    try:
        return len(exchange.predictions()) == 1
    except (ValueError, KeyError):
        return False

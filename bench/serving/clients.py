"""Many clients in one thread: sockets of this machine that stay open, and answers that are read, not parsed.

They are cheap, because they share the processors with the service. Each has one request in its hands at a
time. Two forms of load:

- `closed_loop`: so many clients, each of which sends its next request when it has its answer;
- `open_loop`: requests at given times, whatever has become of those before.
"""

import heapq
import json
import random
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds after which a client that was refused tries again: the first time, and at most; twice as many each
time."""

PIECE = b"event: piece"
"""How a piece of a stream begins."""


def post(run: str, verb: str, body: Any) -> bytes:
    """Return a request as it is sent."""
    payload = json.dumps(body, ensure_ascii=False).encode()
    head = f"POST /v1/runs/{run}/{verb} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def get(path: str) -> bytes:
    """Return a request without a body."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


@dataclass
class Exchange:
    """A request and what came of it. Times are those of `time.perf_counter`.

    Args:
        number: of the request in the list that was sent.
        due: when it was to be sent.
        sent: when it was sent.
        first: when the first byte of the body of the answer came, for a stream its first event.
        done: when the answer was complete.
        status: of HTTP; 0: the connection was lost before the answer was complete.
        body: of the answer; a stream without the framing of chunks.
        refusals: how often it was refused (429, 503) before, and sent again.
    """

    number: int
    due: float
    sent: float = 0.0
    first: float = 0.0
    done: float = 0.0
    status: int = 0
    body: bytes = b""
    refusals: int = 0

    @property
    def seconds(self) -> float:
        """From the request to the whole answer."""
        return self.done - self.sent

    @property
    def pieces(self) -> int:
        """The number of pieces of a stream."""
        return self.body.count(PIECE)

    def predictions(self) -> list[dict[str, Any]]:
        """Return the predictions of the answer; of a stream, the one at its end."""
        if self.body.startswith(b"event: "):
            events = [block.split("\n", 1) for block in self.body.decode().strip("\n").split("\n\n")]
            (kind, text), pieces = events[-1], [json.loads(text[6:])["text"] for _, text in events[:-1]]
            last: dict[str, Any] = json.loads(text[6:])
            if kind != "event: end" or "".join(pieces) != last["output"]:
                raise ValueError(f"not a whole stream: {kind}")
            return [last]
        found: list[dict[str, Any]] = json.loads(self.body)["predictions"]
        return found


@dataclass(eq=False)
class _Connection:
    """A client: a socket, and the request in its hands."""

    port: int
    exchange: Exchange | None = None
    own: socket.socket | None = None
    received: bytearray = field(default_factory=bytearray)
    head: int = 0
    length: int | None = None
    is_chunked: bool = False

    def send(self, exchange: Exchange, request: bytes) -> None:
        """Send a request. The buffers of the system take it whole: answers are awaited in between."""
        self.exchange, self.head, self.length, self.is_chunked = exchange, 0, None, False
        self.received.clear()
        if self.own is None:
            self.own = socket.create_connection(("127.0.0.1", self.port), timeout=30)
            self.own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        exchange.sent = time.perf_counter()
        self.own.sendall(request)

    @property
    def is_stale(self) -> bool:
        """Whether the service has closed the connection, as it may between two requests."""
        if self.own is None:
            return False
        try:
            self.own.setblocking(False)
            return not self.own.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.own.setblocking(True)

    def receive(self) -> bool:
        """Read what has come; return whether the answer is complete, or the connection lost."""
        assert self.own is not None
        assert self.exchange is not None
        try:
            data = self.own.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.close()
            self.exchange.done = time.perf_counter()
            return True
        self.received += data
        if not self.head and not self._read_head():
            return False
        if not self.exchange.first and len(self.received) > self.head:
            self.exchange.first = time.perf_counter()
        if self.is_chunked:
            is_complete = self.received.endswith(b"0\r\n\r\n", self.head) and (
                len(self.received) == self.head + 5 or self.received.endswith(b"\r\n0\r\n\r\n")
            )
        else:
            is_complete = len(self.received) >= self.head + (self.length or 0)
        if is_complete:
            self.exchange.done = time.perf_counter()
            self.exchange.status = int(self.received[9:12])
            body = bytes(self.received[self.head :])
            self.exchange.body = b"".join(_chunks(body)) if self.is_chunked else body
            if b"\r\nconnection: close" in self.received[: self.head]:
                self.close()
        return is_complete

    def _read_head(self) -> bool:
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head = end + 4
        for line in self.received[:end].lower().split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                self.length = int(value)
            elif name == b"transfer-encoding":
                self.is_chunked = b"chunked" in value
        return True

    def close(self) -> None:
        """Close the socket; the next request gets another."""
        if self.own is not None:
            self.own.close()
            self.own = None


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the chunks of a body."""
    start = 0
    while True:
        end = body.index(b"\r\n", start)
        size = int(body[start:end], 16)
        if not size:
            return
        yield body[end + 2 : end + 2 + size]
        start = end + 4 + size


class _Clients:
    """Connections, those that wait for an answer, and those that are free."""

    def __init__(self, port: int, n: int) -> None:
        self.selector = selectors.DefaultSelector()
        self.free = [_Connection(port) for _ in range(n)]
        self.busy = 0

    def send(self, exchange: Exchange, request: bytes) -> None:
        """Send a request by a free connection; if it cannot be sent, the connection was lost."""
        connection = self.free.pop()
        if connection.is_stale:
            self.selector.unregister(connection.own)  # type: ignore[arg-type]
            connection.close()
        known = connection.own
        try:
            connection.send(exchange, request)
        except OSError:
            if known is not None:
                self.selector.unregister(known)
            connection.close()
            exchange.done = time.perf_counter()
            self.free.append(connection)
            return
        self.busy += 1
        if connection.own is not known:
            assert connection.own is not None
            self.selector.register(connection.own, selectors.EVENT_READ, connection)

    def complete(self, timeout: float) -> Iterator[Exchange]:
        """Wait for so long at most; yield what is complete."""
        for key, _ in self.selector.select(max(0.0, timeout)):
            connection: _Connection = key.data
            if connection.exchange is None:  # closed by the service between two requests
                self.selector.unregister(key.fileobj)
                connection.close()
            elif connection.receive():
                if connection.own is None:
                    self.selector.unregister(key.fileobj)
                exchange, connection.exchange = connection.exchange, None
                self.busy -= 1
                self.free.append(connection)
                yield exchange

    def close(self) -> None:
        """Close all connections."""
        for key in [*self.selector.get_map().values()]:
            key.data.close()
        self.selector.close()


def closed_loop(
    port: int,
    requests: Sequence[bytes],
    clients: int,
    *,
    seconds: float | None = None,
    repeats: bool = False,
    tries_again: bool = True,
    stopped: Callable[[], bool] = lambda: False,
    on_done: Callable[[Exchange], None] = lambda exchange: None,
    timeout: float = 300.0,
) -> list[Exchange]:
    """Send requests by so many clients, each of which waits for its answer; return the exchanges.

    Args:
        port: of the service.
        requests: what is sent, in this order.
        clients: how many there are.
        seconds: no request is sent after so long; None: whatever it takes.
        repeats: begin again after the last request; then ``seconds`` or ``stopped`` ends it.
        tries_again: whether a request that was refused (429, 503) is sent again after a pause.
        stopped: no request is sent once this is true.
        on_done: called with each exchange when it is complete.
        timeout: seconds after which the measurement fails.
    """
    own, done, number = _Clients(port, clients), [], 0
    waiting: list[tuple[float, int, Exchange]] = []
    """Those that are sent again, by time."""
    begun = time.perf_counter()
    try:
        while True:
            now = time.perf_counter()
            if now > begun + timeout:
                raise TimeoutError(f"no answer to {own.busy} requests after {timeout:.0f} s")
            may_send = (seconds is None or now < begun + seconds) and not stopped()
            while own.free and may_send:
                if waiting and waiting[0][0] <= now:
                    exchange = heapq.heappop(waiting)[2]
                elif number < len(requests) or repeats:
                    # Those that wait keep their clients.
                    if len(own.free) <= len(waiting):
                        break
                    exchange, number = Exchange(number, now), number + 1
                else:
                    break
                own.send(exchange, requests[exchange.number % len(requests)])
                if exchange.done:  # could not be sent
                    on_done(exchange)
                    done.append(exchange)
                    if stopped():
                        break
                    time.sleep(0.01)
            if not own.busy and (not may_send or (number >= len(requests) and not repeats and not waiting)):
                return done
            pause = min((waiting[0][0] - now if waiting else 0.1), 0.1)
            for exchange in own.complete(pause):
                if tries_again and exchange.status in (429, 503):
                    again = Exchange(exchange.number, exchange.due, refusals=exchange.refusals + 1)
                    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(exchange.refusals, 9))
                    heapq.heappush(waiting, (time.perf_counter() + pause, again.number, again))
                else:
                    on_done(exchange)
                    done.append(exchange)
    finally:
        own.close()


def open_loop(
    port: int, requests: Sequence[bytes], times: Sequence[float], most: int = 1500, timeout: float = 90.0
) -> list[Exchange]:
    """Send requests at given times; return the exchanges.

    Args:
        port: of the service.
        requests: what is sent, one for each time.
        times: seconds from now, in order.
        most: maximum number of connections; what is due while all are busy is sent when one is free, and
            its `Exchange.due` says when it should have been sent.
        timeout: seconds that answers may take after the last request.
    """
    own, done, number = _Clients(port, most), [], 0
    begun = time.perf_counter()
    try:
        while number < len(times) or own.busy:
            now = time.perf_counter() - begun
            while number < len(times) and times[number] <= now and own.free:
                exchange = Exchange(number, begun + times[number])
                own.send(exchange, requests[number])
                if exchange.done:
                    done.append(exchange)
                number += 1
            if now > (times[-1] if times else 0.0) + timeout:
                raise TimeoutError(f"no answer to {own.busy} requests {timeout:.0f} s after the last")
            pause = times[number] - now if number < len(times) and own.free else 0.1
            done += own.complete(min(pause, 0.1))
        return done
    finally:
        own.close()


def poisson(rate: float, seconds: float, seed: int = 0) -> list[float]:
    """Return the times of requests that come independently of each other, at a mean rate."""
    draw, now, times = random.Random(seed), 0.0, []
    while (now := now + draw.expovariate(rate)) < seconds:
        times.append(now)
    return times


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all do not exceed; not a number if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

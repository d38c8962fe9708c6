"""Connections with bounds: clients that send or read too slowly, or not at all, are cut off.

uvicorn bounds neither the time nor the size of the headers of a request, and waits for ever for a client that
does not read its answer.
"""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 64 << 10
"""Maximum size of the headers of a request; more are answered with 431."""

HEADER_SECONDS = 10.0
"""Seconds in which the headers of a request must arrive."""

ABORT = "heedful.abort"
"""The extension of ASGI with which an application cuts its connection off at once."""

ON_LEFT = "heedful.on_left"
"""The extension of ASGI whose functions are called when the client leaves; an application adds its own."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def connections_with(send_seconds: float) -> type[HttpToolsProtocol]:
    """Return the protocol of connections whose clients may leave an answer unread for so many seconds."""

    class Connection(_BoundedConnection):
        pass

    Connection.send_seconds = send_seconds
    return Connection


class _BoundedConnection(HttpToolsProtocol):
    send_seconds: float
    _reading: asyncio.TimerHandle | None = None
    _unsent: asyncio.TimerHandle | None = None
    _n_read = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._on_left: set[Callable[[], None]] = set()
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        self._n_read += len(data)
        super().data_received(data)
        if self._reading is not None and self._n_read > HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort, ON_LEFT: self._on_left}  # type: ignore[dict-item]
        self._expect_headers()

    def on_headers_complete(self) -> None:
        self._stop_reading()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_reader(self.transport.get_write_buffer_size())

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading()
        if self._unsent is not None:
            self._unsent.cancel()
        super().connection_lost(exc)
        for leave in [*self._on_left]:
            leave()

    def _expect_headers(self) -> None:
        if self._reading is None:
            self._n_read = 0
            self._reading = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _expect_reader(self, unsent: int) -> None:
        """Abort if nothing of the answer is read for too long."""
        if unsent:
            self._unsent = self.loop.call_later(self.send_seconds, self._abort_if_unread, unsent)

    def _abort_if_unread(self, unsent: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= unsent:
            self.transport.abort()
        else:
            self._expect_reader(left)

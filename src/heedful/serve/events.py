"""Server-sent events, closed as soon as nobody reads them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from heedful.serve.admission import RefusedError
from heedful.serve.connections import ABORT
from heedful.typing import JsonObject


def event_of(kind: str, data: "JsonObject | bytes") -> bytes:
    """Return an event in the format of the protocol; ``data`` is JSON."""
    text = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    return b"event: " + kind.encode() + b"\ndata: " + text + b"\n\n"


async def ending_with(
    events: AsyncGenerator[bytes, None], event_of_error: Callable[[RefusedError], bytes]
) -> AsyncGenerator[bytes, None]:
    """Yield events; after an error, the event of it. An error before the first event is raised.

    Raises:
        RefusedError: the request is refused, while the status of the response is not sent.
    """
    has_begun = False
    async with aclosing(events):
        try:
            async for event in events:
                has_begun = True
                yield event
        except RefusedError as error:
            if not has_begun:
                raise
            yield event_of_error(error)


async def client_left(receive: Receive) -> None:
    """Return when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events; closed at once when the client leaves, or leaves an event unread for too long.

    Args:
        first: the first event, in the format of the protocol.
        events: the others.
        send_seconds: seconds that sending one may take.
    """

    media_type = "text/event-stream"

    def __init__(self, first: bytes, events: AsyncGenerator[bytes, None], send_seconds: float) -> None:
        super().__init__()
        self.first, self.events, self.send_seconds = first, events, send_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        sending, leaving = (
            asyncio.ensure_future(self._send(send, scope["extensions"][ABORT])),
            asyncio.ensure_future(client_left(receive)),
        )
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self.events.aclose()

    async def _send(self, send: Send, abort: Callable[[], None]) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        event: bytes | None = self.first
        while event is not None:
            try:
                async with asyncio.timeout(self.send_seconds):
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            except TimeoutError:
                abort()
                return
            event = await anext(self.events, None)
        await send({"type": "http.response.body", "body": b""})

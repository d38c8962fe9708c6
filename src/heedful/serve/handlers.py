"""What a service does with a request: it reads it, lets it in, passes it to an engine, and sends the answer.

It never imports torch, so that it starts at once and stays small.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from heedful.serve.admission import RefusedError
from heedful.serve.bodies import RequestBody
from heedful.serve.connections import ON_LEFT
from heedful.serve.engines import Pending
from heedful.serve.events import EventStream, ending_with, event_of
from heedful.serve.frames import Frame
from heedful.serve.protection import error_body
from heedful.serve.requests import GoneError, cost_of, parsed, read
from heedful.serve.service import Served, Service
from heedful.typing import JsonObject

T = TypeVar("T")


@dataclass
class Asked:
    """A request in the hands of the front.

    Args:
        name: of the run.
        verb: what is asked for; ``page`` is an explanation as a page.
        begun: when it came.
        tokens: its cost, once it is known.
    """

    name: str
    verb: str
    begun: float = field(default_factory=time.perf_counter)
    tokens: int = 0


async def first_of(work: Awaitable[T], request: Request) -> T:
    """Return the result of some work, unless the client leaves before.

    Raises:
        GoneError: it did.
    """
    task, has_left = asyncio.current_task(), False
    assert task is not None

    def leave() -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    on_left: set[Callable[[], None]] = request.scope["extensions"][ON_LEFT]
    on_left.add(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left:
            task.uncancel()
            raise GoneError from None
        raise
    finally:
        on_left.discard(leave)


def json_response(content: object) -> Response:
    """Return a response with JSON."""
    return Response(json.dumps(content, ensure_ascii=False), media_type="application/json")


class Handlers:
    """Answers the requests of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    # heedful's own interface --------------------------------------------------------------------------------

    async def answer(self, name: str, verb: str, request: Request) -> Response:
        """Return the answer of a run to a request of one verb; what the client leaves is abandoned."""
        try:
            with self.noted(Asked(name, verb)) as asked:
                served = self.service.find(name)
                payload, body = await self.read(served, verb, request)
                answer = await first_of(self.answer_to(asked, served, payload, body), request)
        except (RefusedError, GoneError) as error:
            return self.refusal(error)
        return Response(answer, media_type="text/html" if verb == "page" else "application/json")

    async def stream(self, name: str, request: Request) -> Response:
        """Return the answer to one input as server-sent events: ``piece`` …, and ``end`` or ``error``."""
        asked = Asked(name, "stream")
        try:
            with self.noted(asked, only_errors=True):
                served = self.service.find(name)
                payload, body = await self.read(served, "stream", request)
        except (RefusedError, GoneError) as error:
            return self.refusal(error)
        events = self._events(self.pieces(asked, served, payload, body))
        return await self.sent(ending_with(events, self._error_event), request)

    async def _events(self, pieces: "AsyncGenerator[str | bytes, None]") -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream."""
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, str):
                    yield event_of("piece", {"text": piece})
                else:
                    yield event_of("end", piece)

    @staticmethod
    def _error_event(error: RefusedError) -> bytes:
        return event_of("error", {"status": error.status, "message": str(error)})

    def runs(self) -> JsonObject:
        """Return what is served."""
        return {
            "runs": [
                {
                    "name": name,
                    "ready": served.engines.is_ready,
                    "engines": served.engines.n,
                    **served.engines.description,
                }
                for name, served in self.service.runs.items()
            ]
        }

    # What every interface needs -----------------------------------------------------------------------------

    async def read(self, served: Served, verb: str, request: Request) -> tuple[bytes, RequestBody]:
        """Return a body in heedful's own format, as it is and as it was understood.

        Raises:
            RefusedError: the service is stopping, or the body is not valid.
            GoneError: the client left.
        """
        self.refuse_if_draining()
        return await read(request, "explain" if verb == "page" else verb, served, self.service.limits)

    def refuse_if_draining(self) -> None:
        """Raise `RefusedError` if the service takes no requests any more."""
        if self.service.is_draining:
            raise RefusedError("the service is stopping", 503, "draining", 1)

    async def ask(self, asked: Asked, content: JsonObject, request: Request) -> JsonObject:
        """Return the answer to a request that was translated from another interface.

        Raises:
            RefusedError: it is not valid, or not let in.
            GoneError: the client left.
        """
        payload = json.dumps(content, allow_nan=False).encode()
        body, served = parsed(payload, asked.verb), self.service.find(asked.name)
        found: JsonObject = json.loads(await first_of(self.answer_to(asked, served, payload, body), request))
        return found

    def pieces_of(self, asked: Asked, content: JsonObject) -> "AsyncGenerator[str | bytes, None]":
        """Return the pieces of the answer to a request that was translated from another interface.

        Raises:
            RefusedError: it is not valid.
        """
        payload = json.dumps(content, allow_nan=False).encode()
        return self.pieces(asked, self.service.find(asked.name), payload, parsed(payload, "stream"))

    async def answer_to(self, asked: Asked, served: Served, payload: bytes, body: RequestBody) -> bytes:
        """Return the body of the answer to a request.

        Raises:
            RefusedError: it is not let in, not valid, not in time, or its engine was lost.
        """
        with self._asking(asked, served, payload, body) as pending:
            return (await self._next_frame(pending)).payload

    async def pieces(
        self, asked: Asked, served: Served, payload: bytes, body: RequestBody
    ) -> "AsyncGenerator[str | bytes, None]":
        """Yield the pieces of an answer while it is written, and last the body of the whole answer.

        Raises:
            RefusedError: as of `answer_to`.
        """
        has_begun = False
        with self.noted(asked), self._asking(asked, served, payload, body) as pending:
            while not pending.is_over:
                frame = await self._next_frame(pending)
                if pending.is_over:
                    yield frame.payload
                    continue
                if not has_begun:
                    has_begun = True
                    served.metrics.first_piece_seconds.observe(time.perf_counter() - asked.begun)
                yield frame.payload.decode()

    @contextmanager
    def _asking(self, asked: Asked, served: Served, payload: bytes, body: RequestBody) -> Iterator[Pending]:
        """Let a request in, and pass it to an engine; see `Pending.next_frame` for what comes back.

        Raises:
            RefusedError: it is not let in.
        """
        pending = self._admit(asked, served, body)
        deadline = asyncio.get_running_loop().call_later(self.service.limits.seconds, pending.expire)
        is_stream = asked.verb == "stream"
        verb = "predict" if is_stream else asked.verb
        try:
            with served.engines.least_loaded().request(verb, payload, pending, stream=is_stream):
                yield pending
        finally:
            deadline.cancel()
            self._release(served, pending)

    async def _next_frame(self, pending: Pending) -> Frame:
        """Return the next frame of a request; the tokens of an answer are counted."""
        frame = await pending.next_frame()
        if pending.is_over:
            self.service.metrics.tokens_read.inc(pending.read)
            self.service.metrics.tokens_written.inc(frame.header.get("written", 0))
        return frame

    async def sent(self, events: AsyncGenerator[bytes, None], request: Request) -> Response:
        """Return a response with these events.

        An invalid request is refused by the engine; only with the first event is the status known.
        """
        try:
            first = await first_of(anext(events), request)
        except (RefusedError, GoneError) as error:
            return self.refusal(error)
        return EventStream(first, events, self.service.limits.send_seconds)

    def refusal(self, error: RefusedError | GoneError) -> Response:
        """Return the response to a request that is not answered."""
        if isinstance(error, GoneError):
            return Response(status_code=499)
        self.service.metrics.refused.labels(error.reason).inc()
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.closes:
            headers["connection"] = "close"
        if error.reason == "deadline":  # OpenAI's clients would try again what cannot be done in time
            headers["x-should-retry"] = "false"
        return Response(error_body(str(error)), error.status, headers, "application/json")

    # Admission and metrics ----------------------------------------------------------------------------------

    def _admit(self, asked: Asked, served: Served, body: RequestBody) -> Pending:
        """Let a request in; `_release` follows.

        Raises:
            RefusedError: it is not let in.
        """
        metrics, cost = served.metrics, cost_of(served, asked.verb, body, self.service.limits)
        asked.tokens = cost.expected
        pending = Pending(cost.expected, cost.read, cost.total, asked.verb in ("explain", "page"))
        pending.counted = served.bounds(pending).admit(cost.expected, at_least=max(1, served.slots))
        metrics.waiting.inc()
        self._note_tokens(served, pending, 1)

        def taken() -> None:
            if not pending.is_taken:
                pending.is_taken = True
                metrics.waiting.dec()
                metrics.running.inc()
                metrics.queue_seconds.observe(time.perf_counter() - asked.begun)

        pending.taken = taken
        return pending

    def _release(self, served: Served, pending: Pending) -> None:
        (served.metrics.running if pending.is_taken else served.metrics.waiting).dec()
        self._note_tokens(served, pending, -1)
        served.bounds(pending).release(pending.counted, pending.cost if pending.is_answered else 0)

    def _note_tokens(self, served: Served, pending: Pending, sign: int) -> None:
        served.metrics.queued_tokens.inc(sign * pending.cost)
        served.metrics.cache_bytes.inc(sign * pending.positions * served.cache_bytes)

    @contextmanager
    def noted(self, asked: Asked, *, only_errors: bool = False) -> Iterator[Asked]:
        """Count a request and write a line of the log at its end, also if it is refused or abandoned."""
        try:
            yield asked
        except RefusedError as error:
            self._note(asked, error.status)
            raise
        except (GoneError, GeneratorExit, asyncio.CancelledError):
            self._note(asked, 499)
            raise
        except BaseException:
            self._note(asked, 500)
            raise
        if not only_errors:
            self._note(asked, 200)

    def _note(self, asked: Asked, status: int) -> None:
        """Count a request, and write a line of the log, which has no text of a client."""
        metrics, seconds = self.service.metrics, time.perf_counter() - asked.begun
        known = asked.name if asked.name in self.service.runs else "unknown"
        metrics.requests_of(known, asked.verb, status).inc()
        if status == 200:
            metrics.request_seconds_of(known, asked.verb).observe(seconds)
        line = {"run": known, "verb": asked.verb, "status": status}
        numbers = {"seconds": round(seconds, 6), "tokens": asked.tokens}
        print(json.dumps({"time": round(time.time(), 3), **line, **numbers}), file=sys.stderr, flush=True)

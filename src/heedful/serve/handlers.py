"""What a service does with a request: it reads it, lets it in, passes it to an engine, and sends the answer.

It never imports torch, so that it starts at once and stays small.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

from fastapi import Request
from fastapi.responses import Response

from heedful.serve.admission import RefusedError
from heedful.serve.engines import Pending
from heedful.serve.events import EventStream, client_left, event_of
from heedful.serve.frames import Frame
from heedful.serve.protection import error_body
from heedful.serve.requests import GoneError, cost_of, read
from heedful.serve.service import Served, Service
from heedful.typing import JsonObject


async def _next_before(deadline: float, frames: AsyncGenerator[Frame, None]) -> Frame | None:
    """Return the next frame, or None after the last.

    Raises:
        RefusedError: there is none before the deadline.
    """
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(frames, None)
    except TimeoutError:
        raise RefusedError("the time for this request is over", 503, "deadline", 1) from None


class Handlers:
    """Answers the requests of a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def answer(self, name: str, verb: str, request: Request) -> Response:
        """Return the answer of a run to a request of one verb; what the client leaves is abandoned."""
        service, begun = self.service, time.perf_counter()
        status, tokens = 500, 0
        try:
            served = service.find(name)
            payload, pending = await self._admitted(served, verb, request, begun)
            tokens = pending.cost
            try:
                body = await self._first_of(self._only(served, verb, payload, pending), request)
            finally:
                self._release(served, pending)
            status = 200
            kind = "text/html; charset=utf-8" if verb == "page" else "application/json"
            return Response(body, media_type=kind)
        except RefusedError as error:
            status = error.status
            return self._refusal(error)
        except GoneError:
            status = 499
            return Response(status_code=499)
        finally:
            self._note(name, verb, status, time.perf_counter() - begun, tokens)

    async def _admitted(
        self, served: Served, verb: str, request: Request, begun: float
    ) -> tuple[bytes, Pending]:
        """Read a request and let it in.

        Raises:
            RefusedError: it is not let in.
        """
        service = self.service
        if service.is_draining:
            raise RefusedError("the service is stopping", 503, "draining", 1)
        payload, body = await read(request, "explain" if verb == "page" else verb, served, service.limits)
        cost = cost_of(served, body, service.limits)
        pending = Pending(cost.total, cost.read, explains=verb in ("explain", "page"))
        served.bounds(pending).admit(cost.total)
        name = served.name
        waiting, running = service.metrics.waiting.labels(name), service.metrics.running.labels(name)
        waiting.inc()
        self._note_tokens(served, cost.total)

        def taken() -> None:
            if not pending.is_taken:
                pending.is_taken = True
                waiting.dec()
                running.inc()
                service.metrics.queue_seconds.labels(name).observe(time.perf_counter() - begun)

        pending.taken = taken
        return payload, pending

    def _note_tokens(self, served: Served, added: int) -> None:
        metrics, name = self.service.metrics, served.name
        metrics.queued_tokens.labels(name).inc(added)
        metrics.cache_bytes.labels(name).inc(added * served.cache_bytes)

    def _release(self, served: Served, pending: Pending) -> None:
        metrics, name = self.service.metrics, served.name
        (metrics.running if pending.is_taken else metrics.waiting).labels(name).dec()
        self._note_tokens(served, -pending.cost)
        served.bounds(pending).release(pending.cost, answered=pending.is_answered)

    async def _only(self, served: Served, verb: str, payload: bytes, pending: Pending) -> bytes:
        deadline = asyncio.get_running_loop().time() + self.service.limits.seconds
        engine = served.engines.least_loaded()
        async with aclosing(engine.request(verb, payload, pending)) as frames:
            frame = await _next_before(deadline, frames)
            assert frame is not None, "an engine answers or refuses"
            self._note_answer(pending, frame)
            return frame.payload

    def _note_answer(self, pending: Pending, frame: Frame) -> None:
        pending.is_answered = True
        self.service.metrics.tokens.labels("read").inc(pending.read)
        self.service.metrics.tokens.labels("written").inc(frame.header.get("written", 0))

    async def _first_of(self, work: Awaitable[bytes], request: Request) -> bytes:
        """Return the result of some work, unless the client leaves before.

        Raises:
            GoneError: it did.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(client_left(request.receive))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise GoneError
        finally:
            for task in (working, leaving):
                task.cancel()

    async def stream(self, name: str, request: Request) -> Response:
        """Return the answer to one input as server-sent events: ``piece`` …, and ``end`` or ``error``."""
        service, begun = self.service, time.perf_counter()
        try:
            served = service.find(name)
            payload, pending = await self._admitted(served, "stream", request, begun)
        except RefusedError as error:
            self._note(name, "stream", error.status, time.perf_counter() - begun, 0)
            return self._refusal(error)
        except GoneError:
            self._note(name, "stream", 499, time.perf_counter() - begun, 0)
            return Response(status_code=499)
        events = self._events(served, payload, pending, begun)
        try:
            # An invalid request is refused by the engine; only then is the status of the response known.
            first = await self._first_of(anext(events), request)
        except RefusedError as error:
            return self._refusal(error)
        except GoneError:
            return Response(status_code=499)
        return EventStream(first, events, service.limits.send_seconds)

    async def _events(
        self, served: Served, payload: bytes, pending: Pending, begun: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream.

        Raises:
            RefusedError: the request is refused before the first event.
        """
        service, name, status, has_begun = self.service, served.name, 499, False
        deadline = asyncio.get_running_loop().time() + service.limits.seconds
        try:
            engine = served.engines.least_loaded()
            async with aclosing(engine.request("predict", payload, pending, stream=True)) as frames:
                while (frame := await _next_before(deadline, frames)) is not None:
                    if "piece" not in frame.header:
                        self._note_answer(pending, frame)
                        status = 200
                        yield event_of("end", frame.payload)
                        continue
                    if not has_begun:
                        has_begun = True
                        seconds = time.perf_counter() - begun
                        service.metrics.first_piece_seconds.labels(name).observe(seconds)
                    yield event_of("piece", {"text": frame.payload.decode()})
        except RefusedError as error:
            status = error.status
            if not has_begun:
                raise
            yield event_of("error", {"status": error.status, "message": str(error)})
        finally:
            self._release(served, pending)
            self._note(name, "stream", status, time.perf_counter() - begun, pending.cost)

    def _refusal(self, error: RefusedError) -> Response:
        self.service.metrics.refused.labels(error.reason).inc()
        headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
        if error.closes:
            headers["connection"] = "close"
        return Response(error_body(str(error)), error.status, headers, "application/json")

    def _note(self, name: str, verb: str, status: int, seconds: float, tokens: int) -> None:
        """Count a request, and write a line of the log, which has no text of a client."""
        metrics = self.service.metrics
        known = name if name in self.service.runs else "unknown"
        metrics.requests.labels(known, verb, str(status)).inc()
        if status == 200:
            metrics.request_seconds.labels(known, verb).observe(seconds)
        line = {"run": known, "verb": verb, "status": status, "seconds": round(seconds, 6), "tokens": tokens}
        print(json.dumps({"time": round(time.time(), 3), **line}), file=sys.stderr, flush=True)

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

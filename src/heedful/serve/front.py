"""The HTTP interface of a service: it reads, admits and passes on; it computes nothing.

It never imports torch, so that it starts at once and stays small.
"""

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from heedful.artifacts.run_folder import RunFolder
from heedful.errors import nearest
from heedful.serve.admission import Admission, RefusedError
from heedful.serve.engines import Engines, Pending
from heedful.serve.metrics import Metrics
from heedful.serve.protection import App, Protection, error_body
from heedful.tasks.prediction import BATCH_TOKENS
from heedful.text.tokenizer import Tokenizer
from heedful.typing import JsonObject

SIDES = ("source", "text")
"""Tokenizers that inputs are counted with; images count as one token each."""

EXPLANATIONS = 4
"""Maximum number of explanations of a run that wait or are computed; each takes a slot of its own."""


@dataclass(frozen=True)
class Limits:
    """What a request, and all together, may need.

    Args:
        body: bytes of a body.
        inputs: inputs of a request.
        tokens: tokens of a request, with all hypotheses.
        requests: requests of a run that wait or are computed.
        queue: seconds that all of them may take together, by the measured rate.
        seconds: seconds until a request is given up.
        send_seconds: seconds that a client may leave a piece of a stream unread.
    """

    body: int = 4 << 20
    inputs: int = 256
    tokens: int = 65_536
    requests: int = 256
    queue: float = 1.0
    seconds: float = 60.0
    send_seconds: float = 30.0


class RequestBody(BaseModel):
    """The body of a request: inputs, and the options of the verb."""

    model_config = ConfigDict(extra="allow", strict=True)

    inputs: Annotated[list[str | list[str] | dict[str, Any]], Field(min_length=1)]


@dataclass
class Served:
    """A run as the front sees it."""

    engines: Engines
    admission: Admission
    explanations: Admission
    tokenizer: Tokenizer | None = None
    noted_restarts: int = 0

    def bounds(self, pending: Pending) -> Admission:
        """Return the bounds that a request is let in by."""
        return self.explanations if pending.explains else self.admission

    @property
    def name(self) -> str:
        """Its name in addresses."""
        return self.engines.run.name


@dataclass
class Service:
    """The state of a service.

    Args:
        runs: by name.
        limits: what requests may need.
        metrics: what is counted.
        is_closing: whether it is going to stop: it is not ready, but still answers.
        is_draining: whether it takes no requests any more.
    """

    runs: Mapping[str, Served]
    limits: Limits
    metrics: Metrics = field(default_factory=Metrics)
    is_closing: bool = False
    is_draining: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether every run answers requests."""
        return not self.is_closing and all(served.engines.is_ready for served in self.runs.values())

    def find(self, name: str) -> Served:
        """Return a run.

        Raises:
            RefusedError: there is none of this name.
        """
        if served := self.runs.get(name):
            return served
        raise RefusedError(f"no run of this name{nearest(name, [*self.runs])}", 404, "unknown")


def served_run(engines: Engines, limits: Limits) -> Served:
    """Return a run for the front, with the tokenizer that counts its inputs."""
    folder = RunFolder(engines.run.path)
    path = next((path for side in SIDES if (path := folder.tokenizer(side)).is_file()), None)
    return Served(
        engines,
        Admission(limits.requests, limits.queue, least_tokens=2 * BATCH_TOKENS * engines.n),
        Admission(EXPLANATIONS, math.inf, least_tokens=0),
        None if path is None else Tokenizer.load(path),
    )


# Reading a request ------------------------------------------------------------------------------------------


async def body_of(request: Request, limit: int) -> bytes:
    """Return the body.

    Raises:
        RefusedError: it is larger than the limit; the rest is not read.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise RefusedError(f"the body has more than {limit:,} bytes", 413, "body", closes=True)
        parts.append(part)
    return b"".join(parts)


def parsed(payload: bytes) -> RequestBody:
    """Return the content of a body.

    Raises:
        RefusedError: it is not such a JSON object. The message has nothing of its content.
    """
    try:
        found = from_json(payload, allow_inf_nan=False)
    except ValueError as error:
        raise RefusedError(f"not JSON: {error}", 422, "invalid") from None
    if not _is_finite(found):
        raise RefusedError("not JSON: a number is infinite", 422, "invalid")
    try:
        return RequestBody.model_validate(found)
    except ValidationError as error:
        where = [".".join(str(part) for part in problem["loc"][:2]) for problem in error.errors()]
        message = "expected texts, lists of texts, or objects"
        raise RefusedError(f"{where[0] or 'body'}: {message}", 422, "invalid") from None


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def cost_of(served: Served, body: RequestBody, limits: Limits) -> int:
    """Return the tokens of a request: of its inputs, times the hypotheses of each.

    Raises:
        RefusedError: it exceeds a limit.
    """
    if len(body.inputs) > limits.inputs:
        raise RefusedError(f"inputs: at most {limits.inputs:,}, got {len(body.inputs):,}", 413, "inputs")
    texts = [text for value in body.inputs for text in _texts(value)]
    tokenizer = served.tokenizer
    is_image = bool(served.engines.description.get("images"))
    n = len(texts) if tokenizer is None or is_image else sum(map(len, tokenizer.encode_batch(texts)))
    options = body.model_extra or {}
    hypotheses = _number(options, "beam", "n_best", *_decoding_numbers(options, served))
    cost = max(1, (n + len(texts)) * hypotheses)
    if new := options.get("max_new_tokens"):
        cost += new * hypotheses * len(body.inputs) if isinstance(new, int) else 0
    if cost > limits.tokens:
        message = f"at most {limits.tokens:,} tokens with all hypotheses, got {cost:,}"
        raise RefusedError(message, 413, "tokens")
    return cost


def _decoding_numbers(options: Mapping[str, Any], served: Served) -> list[int]:
    own = served.engines.description.get("decoding") or {}
    given = options.get("decoding")
    settings = {**own, **given} if isinstance(given, dict) else own
    return [settings[name] for name in ("beam", "n") if isinstance(settings.get(name), int)]


def _number(options: Mapping[str, Any], *names: "str | int") -> int:
    values = [options.get(name) if isinstance(name, str) else name for name in names]
    return max([1, *(value for value in values if isinstance(value, int))])


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for part in value.values() for text in _texts(part)]
    return [text for part in value for text in _texts(part)] if isinstance(value, list) else []


# Answering --------------------------------------------------------------------------------------------------


class Front:
    """The routes of a service."""

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
        except _GoneError:
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
        payload = await body_of(request, service.limits.body)
        cost = cost_of(served, parsed(payload), service.limits)
        pending = Pending(cost, explains=verb in ("explain", "page"))
        served.bounds(pending).admit(cost)
        name = served.name
        waiting, running = service.metrics.waiting.labels(name), service.metrics.running.labels(name)
        waiting.inc()
        service.metrics.queued_tokens.labels(name).inc(cost)

        def taken() -> None:
            if not pending.is_taken:
                pending.is_taken = True
                waiting.dec()
                running.inc()
                service.metrics.queue_seconds.labels(name).observe(time.perf_counter() - begun)

        pending.taken = taken
        return payload, pending

    def _release(self, served: Served, pending: Pending) -> None:
        metrics, name = self.service.metrics, served.name
        (metrics.running if pending.is_taken else metrics.waiting).labels(name).dec()
        metrics.queued_tokens.labels(name).dec(pending.cost)
        served.bounds(pending).release(pending.cost, answered=pending.is_answered)

    async def _only(self, served: Served, verb: str, payload: bytes, pending: Pending) -> bytes:
        engine = served.engines.least_loaded()
        try:
            async with asyncio.timeout(self.service.limits.seconds):
                async with aclosing(engine.request(verb, payload, pending)) as frames:
                    async for frame in frames:
                        pending.is_answered = True
                        return frame.payload
        except TimeoutError:
            raise RefusedError("the time for this request is over", 503, "deadline", 1) from None
        raise AssertionError("an engine answers or refuses")

    async def _first_of(self, work: Awaitable[bytes], request: Request) -> bytes:
        """Return the result of some work, unless the client leaves before.

        Raises:
            _GoneError: it did.
        """
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_left(request.receive))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise _GoneError
        finally:
            for task in (working, leaving):
                task.cancel()

    async def stream(self, name: str, request: Request) -> Response:
        """Return the answer to one input as server-sent events: ``piece`` …, and ``end`` or ``error``."""
        service, begun = self.service, time.perf_counter()
        try:
            served = service.find(name)
            payload, pending = await self._admitted(served, "predict", request, begun)
        except RefusedError as error:
            self._note(name, "stream", error.status, time.perf_counter() - begun, 0)
            return self._refusal(error)
        events = self._events(served, payload, pending, begun)
        try:
            # An invalid request is refused by the engine; only then is the status of the response known.
            first = await self._first_of(anext(events), request)
        except RefusedError as error:
            return self._refusal(error)
        except _GoneError:
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
        try:
            engine = served.engines.least_loaded()
            async with aclosing(engine.request("predict", payload, pending, stream=True)) as frames:
                async for frame in frames:
                    if "piece" not in frame.header:
                        pending.is_answered, status = True, 200
                        yield _event("end", frame.payload)
                        continue
                    if not has_begun:
                        has_begun = True
                        seconds = time.perf_counter() - begun
                        service.metrics.first_piece_seconds.labels(name).observe(seconds)
                    yield _event("piece", {"text": frame.payload.decode()})
        except RefusedError as error:
            status = error.status
            if not has_begun:
                raise
            yield _event("error", {"status": error.status, "message": str(error)})
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
            metrics.tokens.labels("read").inc(tokens)
        line = {"run": known, "verb": verb, "status": status, "seconds": round(seconds, 6), "tokens": tokens}
        print(json.dumps({"time": round(time.time(), 3), **line}), file=sys.stderr, flush=True)

    def runs(self) -> JsonObject:
        """Return what is served."""
        return {
            "runs": [
                {"name": name, "ready": served.engines.is_ready, **served.engines.description}
                for name, served in self.service.runs.items()
            ]
        }


class _GoneError(Exception):
    """The client closed the connection."""


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
        sending, leaving = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self.events.aclose()

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        event: bytes | None = self.first
        while event is not None:
            async with asyncio.timeout(self.send_seconds):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            event = await anext(self.events, None)
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    """Return when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(kind: str, data: "JsonObject | bytes") -> bytes:
    text = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    return b"event: " + kind.encode() + b"\ndata: " + text + b"\n\n"


_SCHEMA = RequestBody.model_json_schema()
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {"message": {"type": "string"}}}},
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
    for status, text in (
        (401, "no key"),
        (404, "no such run"),
        (413, "too large"),
        (422, "invalid"),
        (429, "too much at a time"),
        (503, "starting, stopping, or no engine"),
    )
}


def app_of(service: Service, hosts: Sequence[str] = (), keys: Sequence[str] = ()) -> App:
    """Return the application of a service; see `Protection` for ``hosts`` and ``keys``."""
    front = Front(service)
    app = FastAPI(title="heedful", docs_url=None, redoc_url=None, openapi_url="/openapi.json")

    def add(verb: str, summary: str, answer: Callable[[str, Request], Awaitable[Response]]) -> None:
        app.add_api_route(
            f"/v1/runs/{{name}}/{verb}",
            answer,
            methods=["POST"],
            summary=summary,
            responses=_REFUSALS,
            response_class=Response,
            openapi_extra=_BODY,
            name=verb,
        )

    def with_verb(verb: str) -> Callable[[str, Request], Awaitable[Response]]:
        async def answer(name: str, request: Request) -> Response:
            return await front.answer(name, verb, request)

        return answer

    async def explain(name: str, request: Request) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        return await front.answer(name, "page" if wants_page else "explain", request)

    async def stream(name: str, request: Request) -> Response:
        return await front.stream(name, request)

    add("predict", "The answer to each input", with_verb("predict"))
    add("score", "The log-probability of each token of given texts", with_verb("score"))
    add("embed", "A vector of each input", with_verb("embed"))
    add("explain", "Why a run answers one input as it does: JSON, or a page (Accept: text/html)", explain)
    add("stream", "The answer to one input, piece by piece, as server-sent events", stream)

    @app.get("/v1/runs", summary="What is served")
    async def runs() -> JsonObject:
        return front.runs()

    @app.get("/v1/limits", summary="What a request may need")
    async def limits() -> JsonObject:
        return vars(service.limits)

    @app.get("/health/live", summary="The service runs")
    async def live() -> JsonObject:
        return {"status": "live"}

    @app.get("/health", summary="Every run answers", responses={503: {"description": "not ready"}})
    @app.get("/health/ready", summary="Every run answers", responses={503: {"description": "not ready"}})
    async def ready() -> Response:
        states = {name: served.engines.is_ready for name, served in service.runs.items()}
        body = json.dumps({"ready": service.is_ready, "runs": states}).encode()
        return Response(body, 200 if service.is_ready else 503, media_type="application/json")

    @app.get("/metrics", summary="Counters for Prometheus")
    async def metrics() -> Response:
        for name, served in service.runs.items():
            counter = service.metrics.restarts.labels(name)
            counter.inc(served.engines.restarts - served.noted_restarts)
            served.noted_restarts = served.engines.restarts
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return Response(error_body(str(error.detail)), error.status_code, error.headers, "application/json")

    return Protection(app, hosts, keys)  # type: ignore[arg-type]

"""The HTTP interface of a service: its routes, described by ``/openapi.json``."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from heedful.serve.handlers import Handlers
from heedful.serve.libretranslate import add_libretranslate
from heedful.serve.openai import add_openai
from heedful.serve.openapi import answer_of, body_of, refusals
from heedful.serve.pages import EXPLANATION_POLICY, add_page
from heedful.serve.protection import App, Keys, Protection, Receive, Scope, Send, error_body
from heedful.serve.service import Service
from heedful.typing import JsonObject

Answer = Callable[[str, Request], Awaitable[Response]]
"""Answers a request to the run of a name."""

TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}


def app_of(service: Service, hosts: Sequence[str] = (), keys: Sequence[str] = ()) -> App:
    """Return the application of a service; see `Protection` for ``hosts`` and ``keys``."""
    handlers, known = Handlers(service), Keys(keys)
    # A redirect would name the address of this process, not that of a proxy before it.
    app = FastAPI(title="heedful", docs_url=None, redoc_url=None, redirect_slashes=False)
    verbs = add_verbs(app, handlers)
    add_reports(app, handlers)
    add_openai(app, handlers)
    add_libretranslate(app, handlers, known)
    add_page(app)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return Response(error_body(str(error.detail)), error.status_code, error.headers, "application/json")

    if keys:
        described = app.openapi()  # made once, and kept by the application
        scheme = {"key": {"type": "http", "scheme": "bearer"}}
        described.setdefault("components", {})["securitySchemes"] = scheme
        described["security"] = [{"key": []}]
    return Protection(Verbs(app, verbs), hosts, known)


class Verbs:
    """Answers the verbs of runs, and passes all other requests on.

    The routes of FastAPI describe the verbs, but take as long as the rest of the front.

    Args:
        app: the application.
        answers: by verb, functions of the name of a run and a request.
    """

    def __init__(self, app: FastAPI, answers: Mapping[str, Answer]) -> None:
        self.app, self.answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        match scope["path"].split("/") if is_post else ():
            case ["", "v1", "runs", name, verb] if name and verb in self.answers:
                response = await self.answers[verb](name, Request(scope, receive))
                await response(scope, receive, send)
            case _:
                await self.app(scope, receive, send)


def add_verbs(app: FastAPI, handlers: Handlers) -> Mapping[str, Answer]:
    """Add the routes of the verbs of a run; return what answers them."""
    answers: dict[str, Answer] = {}

    def add(verb: str, summary: str, answer: Answer) -> None:
        answers[verb] = answer
        app.add_api_route(
            f"/v1/runs/{{name}}/{verb}",
            answer,
            methods=["POST"],
            summary=summary,
            responses={**refusals(), 200: answer_of(verb)},
            response_class=Response,
            openapi_extra=body_of(verb),
            name=verb,
        )

    def with_verb(verb: str) -> Answer:
        async def answer(name: str, request: Request) -> Response:
            return await handlers.answer(name, verb, request)

        return answer

    async def explain(name: str, request: Request) -> Response:
        wants_page = "text/html" in request.headers.get("accept", "")
        response = await handlers.answer(name, "page" if wants_page else "explain", request)
        if wants_page:
            response.headers["content-security-policy"] = EXPLANATION_POLICY
        return response

    add("predict", "The answer to each input", with_verb("predict"))
    add("score", "The log-probability of each token of given texts", with_verb("score"))
    add("embed", "A vector of each input", with_verb("embed"))
    add("explain", "Why a run answers one input as it does: JSON, or a page (Accept: text/html)", explain)
    add("stream", "The answer to one input, piece by piece, as server-sent events", handlers.stream)
    return answers


def add_reports(app: FastAPI, handlers: Handlers) -> None:
    """Add the routes that report what is served, and its state."""
    service = handlers.service

    @app.get("/v1/runs", summary="What is served")
    async def runs() -> JsonObject:
        return handlers.runs()

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

    for path, check in (("/health", ready), ("/health/live", live), ("/health/ready", ready)):
        app.add_api_route(path, check, methods=["HEAD"], include_in_schema=False)

    @app.get("/metrics", summary="Counters for Prometheus", responses=TEXT, response_class=Response)
    async def metrics() -> Response:
        for name, served in service.runs.items():
            counter = service.metrics.restarts.labels(name)
            counter.inc(served.engines.restarts - served.noted_restarts)
            served.noted_restarts = served.engines.restarts
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

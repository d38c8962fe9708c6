"""The interface of OpenAI's clients: completions, embeddings, models.

| path | |
|---|---|
| ``GET /v1/models`` | the runs |
| ``POST /v1/completions`` | a language model continues one prompt, or several |
| ``POST /v1/embeddings`` | vectors of texts |
| ``POST /v1/chat/completions`` | 404: models of heedful are not trained on conversations |

What is not supported is refused by name, unless it has the value that changes nothing.
"""

import json
import secrets
import struct
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from heedful.serve.admission import RefusedError
from heedful.serve.events import ending_with
from heedful.serve.handlers import Asked, Handlers, json_response
from heedful.serve.openapi import refusals
from heedful.serve.requests import GoneError, content_of
from heedful.serve.service import Served
from heedful.typing import JsonObject

NO_CHAT = (
    "heedful has no chat completions: its models are not trained on conversations; "
    "use /v1/completions with a prompt"
)

NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "dimensions": (),
    "service_tier": ("auto", "default"),
}
"""Settings that are not supported, with the values that change nothing."""

IGNORED = ("user", "metadata")
"""What only names the caller."""

SEEDS = 1 << 31


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class Completions(BaseModel):
    """The body of a request for completions."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    prompt: str | Annotated[list[str], Field(min_length=1)]
    max_tokens: Annotated[int | None, Field(ge=0)] = 16
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logprobs: Annotated[int | None, Field(ge=0, le=5)] = None
    echo: bool | None = None


class Embeddings(BaseModel):
    """The body of a request for embeddings."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    input: Annotated[str | list[str], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None


def refuse_unsupported(body: BaseModel) -> None:
    """Refuse what would be ignored.

    Raises:
        RefusedError: a setting is not supported, and has a value that would change something.
    """
    for name, value in (body.model_extra or {}).items():
        if value is not None and name not in IGNORED and value not in NEUTRAL.get(name, ()):
            raise RefusedError(f"{name}: not supported", 422, "invalid")


def decoding_of(body: Completions, own: JsonObject) -> JsonObject:
    """Return the decoding settings of a request.

    Without temperature and top_p, those of the run hold. What is sampled without a seed differs each time.
    """
    if body.temperature == 0:
        return {"kind": "greedy"}
    if body.temperature is None and body.top_p is None and own.get("kind") != "sample":
        return own
    given = {"temperature": body.temperature, "top_p": body.top_p}
    chosen = {name: value for name, value in given.items() if value is not None}
    seed = secrets.randbelow(SEEDS) if body.seed is None else abs(body.seed) % SEEDS
    return {**(own if own.get("kind") == "sample" else {"kind": "sample"}), **chosen, "seed": seed}


class OpenAI:
    """Translates requests of OpenAI's clients to those of heedful, and its answers back."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers

    def models(self) -> JsonObject:
        """Return the runs as models."""
        return {"object": "list", "data": [self.model(name) for name in self.handlers.service.runs]}

    def model(self, name: str) -> JsonObject:
        """Return a run as a model.

        Raises:
            RefusedError: there is none of this name.
        """
        self.handlers.service.find(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": "heedful"}

    async def complete(self, request: Request) -> Response:
        """Answer a request for completions."""
        asked = Asked("", "complete")
        try:
            with self.handlers.noted(asked, only_errors=True):
                body = await content_of(request, Completions, self.handlers.service.limits)
                asked.name = body.model
                self.handlers.refuse_if_draining()
                served, content = self._completion_request(body)
            if body.stream:
                asked.verb = "stream"
                chunks = self._chunks(asked, served, body, content)
                return _with_400(await self.handlers.sent(ending_with(chunks, self._error_chunk), request))
            with self.handlers.noted(asked):
                found = await self.handlers.ask(asked, content, request)
        except (RefusedError, GoneError) as error:
            return _with_400(self.handlers.refusal(error))
        return json_response(self._completions(body, found["completions"]))

    def _completion_request(self, body: Completions) -> tuple[Served, JsonObject]:
        refuse_unsupported(body)
        served = self.handlers.service.find(body.model)
        description = served.engines.description
        if description and description.get("max_new_tokens") is None:
            message = f"this run does not continue texts; see /v1/runs/{served.name}/predict"
            raise RefusedError(message, 404, "unknown")
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        content: JsonObject = {
            "inputs": prompts,
            "decoding": decoding_of(body, description.get("decoding") or {}),
        }
        if body.max_tokens is not None:
            content["max_new_tokens"] = body.max_tokens
        if body.stop:
            content["stop"] = [body.stop] if isinstance(body.stop, str) else body.stop
        if body.stream:
            _check_stream(body, prompts)
        else:
            content |= {"echo": bool(body.echo), "n_candidates": body.logprobs}
        return served, content

    def _completions(self, body: Completions, found: list[JsonObject]) -> JsonObject:
        choices = [
            {
                "text": each["text"],
                "index": i,
                "logprobs": each.get("logprobs"),
                "finish_reason": "stop" if each["finished"] else "length",
                **notes_of(each),
            }
            for i, each in enumerate(found)
        ]
        numbers = [sum(each[f"{kind}_tokens"] for each in found) for kind in ("prompt", "completion")]
        return {**_head(body.model), "choices": choices, "usage": _usage(*numbers)}

    async def _chunks(
        self, asked: Asked, served: Served, body: Completions, content: JsonObject
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream."""
        head, has_begun = _head(body.model), False
        (prompt,) = content["inputs"]

        def chunk(text: str, reason: str | None = None, **notes: list[str]) -> bytes:
            choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason, **notes}
            return _data({**head, "choices": [choice]})

        async with aclosing(self.handlers.pieces_of(asked, content)) as pieces:
            async for piece in pieces:
                if not has_begun:
                    has_begun = True
                    if body.echo:
                        yield chunk(prompt)
                if isinstance(piece, str):
                    yield chunk(piece)
                    continue
                answer = json.loads(piece)
                yield chunk("", "stop" if answer.get("finished") else "length", **notes_of(answer))
                if body.stream_options is not None and body.stream_options.include_usage:
                    usage = _usage(served.n_tokens(prompt), len(answer.get("tokens") or ()))
                    yield _data({**head, "choices": [], "usage": usage})
                yield b"data: [DONE]\n\n"

    @staticmethod
    def _error_chunk(error: RefusedError) -> bytes:
        return _data({"error": {"message": str(error), "type": error.reason, "code": error.status}})

    async def embed(self, request: Request) -> Response:
        """Answer a request for embeddings."""
        asked = Asked("", "embed")
        try:
            with self.handlers.noted(asked):
                body = await content_of(request, Embeddings, self.handlers.service.limits)
                asked.name = body.model
                self.handlers.refuse_if_draining()
                refuse_unsupported(body)
                inputs = [body.input] if isinstance(body.input, str) else body.input
                found = await self.handlers.ask(asked, {"inputs": inputs}, request)
                if problem := next((each["error"] for each in found["embeddings"] if "error" in each), None):
                    raise RefusedError(problem, 422, "invalid")
        except (RefusedError, GoneError) as error:
            return _with_400(self.handlers.refusal(error))
        packs = body.encoding_format == "base64"
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": packed(each["vector"]) if packs else each["vector"],
                **notes_of(each),
            }
            for i, each in enumerate(found["embeddings"])
        ]
        usage = {"prompt_tokens": asked.tokens, "total_tokens": asked.tokens}
        return json_response({"object": "list", "model": body.model, "data": data, "usage": usage})


def _with_400(response: Response) -> Response:
    """Return a response with the status that OpenAI's service has for requests that are not valid."""
    if response.status_code == 422:
        response.status_code = 400
    return response


def notes_of(answer: JsonObject) -> dict[str, list[str]]:
    """Return what is unusual about an answer, such as a text that was cut, as an entry of OpenAI's objects.

    Theirs have none; clients pass unknown entries on.
    """
    notes = answer.get("notes") or ([answer["note"]] if "note" in answer else [])
    return {"notes": notes} if notes else {}


def packed(vector: list[float]) -> str:
    """Return a vector as float32, little-endian, in base64."""
    return b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _check_stream(body: Completions, prompts: list[str]) -> None:
    if len(prompts) != 1:
        raise RefusedError("stream: one prompt at a time", 422, "invalid")
    if body.logprobs is not None:
        raise RefusedError("logprobs: not supported in a stream", 422, "invalid")
    if body.max_tokens == 0:
        raise RefusedError("max_tokens: at least 1 in a stream", 422, "invalid")


def _head(model: str) -> JsonObject:
    created = int(time.time())
    return {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": created, "model": model}


def _usage(n_read: int, n_written: int) -> JsonObject:
    return {"prompt_tokens": n_read, "completion_tokens": n_written, "total_tokens": n_read + n_written}


def _data(content: JsonObject) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"


def add_openai(app: FastAPI, handlers: Handlers) -> None:
    """Add the routes of this interface."""
    openai = OpenAI(handlers)

    def body_of(model: type[BaseModel]) -> dict[str, Any]:
        content = {"application/json": {"schema": model.model_json_schema()}}
        return {"requestBody": {"required": True, "content": content}}

    @app.get("/v1/models", summary="The runs, as OpenAI's clients list them")
    async def models() -> JsonObject:
        return openai.models()

    @app.get("/v1/models/{name}", summary="A run", responses=refusals(), response_model=None)
    async def model(name: str) -> Response:
        try:
            return json_response(openai.model(name))
        except RefusedError as error:
            return handlers.refusal(error)

    for path, answer, body, summary in (
        ("completions", openai.complete, Completions, "Continuations of prompts"),
        ("embeddings", openai.embed, Embeddings, "Vectors of texts"),
    ):
        app.add_api_route(
            f"/v1/{path}",
            answer,
            methods=["POST"],
            summary=summary,
            responses={**refusals(), 200: {"content": {"application/json": {}, "text/event-stream": {}}}},
            response_class=Response,
            openapi_extra=body_of(body),
        )

    @app.post("/v1/chat/completions", include_in_schema=False)
    async def chat() -> Response:
        return handlers.refusal(RefusedError(NO_CHAT, 404, "unsupported"))

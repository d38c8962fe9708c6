"""What ``/openapi.json`` says of the verbs: the bodies of their requests, and their answers."""

from typing import Any

from heedful.serve.bodies import BODIES
from heedful.serve.frames import ENTRIES
from heedful.serve.requests import OPTIONS
from heedful.typing import JsonObject

ERROR: JsonObject = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {"message": {"type": "string"}}}},
    "required": ["error"],
}
REFUSALS = {
    400: "not HTTP",
    401: "no key",
    403: "of a page of another site",
    404: "no such run",
    408: "the body did not arrive in time",
    413: "too large",
    421: "another host",
    422: "invalid",
    429: "too much at a time; Retry-After says when to try again",
    499: "the client left",
    500: "failed",
    503: "starting, stopping, no engine, or not in time",
}


def refusals(schema: JsonObject = ERROR) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of the answers that are errors, whose bodies have this schema."""
    content = {"application/json": {"schema": schema}}
    return {status: {"description": text, "content": content} for status, text in REFUSALS.items()}


def answer_of(verb: str) -> dict[str, Any]:
    """Return the description of the answer of a verb."""
    if verb == "stream":
        return {"description": "Events: piece, …, end or error", "content": {"text/event-stream": {}}}
    if verb == "explain":
        described = {"schema": {"type": "object"}}
        return {"description": "JSON, or a page", "content": {"application/json": described, "text/html": {}}}
    entry = ENTRIES[verb]
    schema = {
        "type": "object",
        "properties": {entry: {"type": "array", "items": {"type": "object"}}},
        "required": [entry],
    }
    return {"description": "An answer to each input", "content": {"application/json": {"schema": schema}}}


def body_of(verb: str) -> JsonObject:
    """Return the description of the body of a request: JSON, or a form with parts for the inputs' columns."""
    schema = BODIES[verb].model_json_schema()
    form = {"type": "object", "properties": {OPTIONS: {"type": "string"}}}
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}

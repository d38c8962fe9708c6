"""The page of a service: static files, which are read once at its start.

They load nothing from elsewhere, and need no key: the page asks for one if the service needs it.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import PurePath

from fastapi import FastAPI, Request
from fastapi.responses import Response

INDEX, FRAME = "index.html", "frame.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
EXPLANATION_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Of documents with scripts of their own: the sandbox keeps them from the service and from the page."""


def path_of(name: str) -> str:
    """Return the path of a file of the page."""
    return "/" if name == INDEX else f"/page/{name}"


def add_page(app: FastAPI) -> None:
    """Add the routes of the page's files."""
    for file in sorted(files("heedful.serve").joinpath("page").iterdir(), key=lambda file: file.name):
        if kind := KINDS.get(PurePath(file.name).suffix):
            answer = _answering(file.read_bytes(), _headers(file.name, kind))
            methods = ["GET", "HEAD"]
            app.add_api_route(path_of(file.name), answer, methods=methods, include_in_schema=False)


def _headers(name: str, kind: str) -> dict[str, str]:
    headers = {"content-type": kind, "cache-control": "no-cache"}
    if name == FRAME:
        headers |= {"content-security-policy": EXPLANATION_POLICY, "x-frame-options": "SAMEORIGIN"}
    return headers


def _answering(content: bytes, headers: dict[str, str]) -> Callable[[Request], Awaitable[Response]]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    async def answer(request: Request) -> Response:
        is_known = tag in request.headers.get("if-none-match", "")
        return Response(b"" if is_known else content, 304 if is_known else 200, {**headers, "etag": tag})

    return answer

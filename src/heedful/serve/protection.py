"""What every request passes before it is read: host, origin, key, headers.

Pure ASGI: a middleware that wraps the body would hide that a client has left.
"""

import hmac
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "::1", "localhost")

OPEN_PATHS = ("/", "/health", "/health/live", "/health/ready", "/languages", "/detect", "/translate")
"""Paths that need no key in a header: what watches a service has none, the page asks for one, and the clients
of LibreTranslate send it in the body of a translation (`heedful.serve.libretranslate`)."""

OPEN_FILES = "/page/"
"""The beginning of the paths of the page's files, which need none either."""

# A response may have a header of its own instead.
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; frame-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
)


class Keys:
    """The keys of a service; without any, none is needed.

    Args:
        keys: one of them must be given.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def admit(self, given: str | bytes | None) -> bool:
        """Return whether a key is one of these; the time does not depend on which, nor how far it agrees."""
        own = (given or "").encode("utf-8", "replace") if not isinstance(given, bytes) else given
        equal = [hmac.compare_digest(own, key) for key in self._keys]
        return not self._keys or any(equal)

    def admit_header(self, authorization: bytes) -> bool:
        """Return whether a header ``Authorization: Bearer KEY`` has one of these keys."""
        kind, _, given = authorization.partition(b" ")
        return self.admit(given.strip() if kind.lower() == b"bearer" else None)


class Protection:
    """Refuses requests for other hosts, of foreign pages and without a key; adds headers to all responses.

    Args:
        app: the application.
        hosts: names under which the service is addressed; empty: any. A page of a foreign site that resolves
            its own name to this machine sends that name (DNS rebinding).
        keys: one of them must be sent as ``Authorization: Bearer KEY``.
    """

    def __init__(self, app: App, hosts: Collection[str], keys: Keys) -> None:
        self.app, self.hosts = app, {host.lower() for host in hosts}
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")

        has_begun = False

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                own = message.get("headers", [])
                names = {name.lower() for name, _ in own}
                others = [header for header in HEADERS if header[0] not in names]
                message = {**message, "headers": [*own, *others]}
            await send(message)

        host = host_of(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts and host not in self.hosts:
            await refuse(
                send_with_headers, 421, "this service has another name; start it with --allowed-host"
            )
        elif origin and self._is_foreign(origin, headers.get(b"host", b"").decode("latin-1")):
            await refuse(send_with_headers, 403, "pages of other sites cannot use this service")
        elif not is_open(scope["path"]) and not self.keys.admit_header(headers.get(b"authorization", b"")):
            await refuse(send_with_headers, 401, "a key is needed: Authorization: Bearer KEY")
        else:
            try:
                await self.app(scope, receive, send_with_headers)
            except Exception as error:  # a fault
                log_error(error, "the front")
                if not has_begun:
                    await refuse(send_with_headers, 500, FAILED)

    def _is_foreign(self, origin: str, host: str) -> bool:
        """Return whether a request comes from a page of another site; browsers say from which."""
        own = origin.partition("://")[2].lower()
        return own != host.lower() and host_of(own) not in self.hosts - {*LOOPBACK}


FAILED = "the request failed; the log of the service has the reason"
"""The message for an error in the code; its text may have parts of other requests."""


def log_error(error: Exception, where: str) -> None:
    """Write the type of an error and the code that led to it; its message may have texts of clients."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"heedful serve: {type(error).__name__} in {where}\n{frames}", file=sys.stderr, flush=True)


def is_open(path: str) -> bool:
    """Return whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(OPEN_FILES)


def host_of(header: str) -> str:
    """Return the name in a header ``Host``, in lower case, without port and brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


async def refuse(send: Send, status: int, message: str) -> None:
    """Send an error as JSON."""
    body = error_body(message)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(message: str) -> bytes:
    """Return the body of a response that is an error."""
    return json.dumps({"error": {"message": message}}, ensure_ascii=False).encode()

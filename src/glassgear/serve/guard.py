"""Which requests are let in: the page's own, and nobody else's.

A page of another origin can't read answers of this server, but it can send requests, and by DNS
rebinding it can make a browser believe that this server is its own. So the Host must be this server's
address, whatever the page says; what comes from another origin is refused; and bodies are JSON, which
no form of another origin can send unasked. Every answer forbids content from elsewhere.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from glassgear.serve import saying

__all__ = ["MOST_BYTES", "Guard", "is_loopback"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 1 << 20  # of a request's body
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
READING = ("GET", "HEAD")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _TooLarge(Exception):
    """A body went over the limit while it was read."""


class Guard:
    """The layer around the application.

    Args:
        app: what answers.
        host: the address that the server is bound to.
    """

    def __init__(self, app: App, host: str) -> None:
        self._app = app
        self._names = {"localhost", host.lower(), *(() if is_loopback(host) else _own_names())}
        # Names can be rebound, addresses can't: bound to all of them, any address will do.
        self._any_address = not is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            await _refuse(send, scope, *refusal)
            return
        await self._limited(scope, receive, send)

    def _refusal(self, method: str, headers: dict[bytes, str]) -> tuple[int, str] | None:
        host = headers.get(b"host", "")
        if not self._is_own(host):
            return 400, f"this server isn't called {host[:100]!r}: open it under the address that it printed"
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return 403, f"requests from {origin[:100]} are refused: only the page itself may ask"
        if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests from other sites are refused: only the page itself may ask"
        if method not in (*READING, "POST", "DELETE"):
            return 405, f"{method[:20]} isn't understood here"
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return 413, f"a request may have {MOST_BYTES:,} bytes"
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return 415, "the body must be JSON (Content-Type: application/json)"
        return None

    def _is_own(self, host: str) -> bool:
        name = _without_port(host.lower())
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any_address or (address.is_loopback and any(map(is_loopback, self._names)))

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken, begun, over = 0, False, False

        async def counted() -> Message:
            nonlocal taken, over
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                over = True
                raise _TooLarge
            return message

        async def guarded(message: Message) -> None:
            nonlocal begun
            if over and not begun:
                return  # what the application makes of it is another error
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        try:
            await self._app(scope, counted, guarded)
        except Exception:  # a fault has been answered, and said, when it comes out here
            if not begun and not over:
                raise
        if over and not begun:
            await _refuse(send, scope, 413, f"a request may have {MOST_BYTES:,} bytes")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _own_names() -> tuple[str, ...]:
    return (socket.gethostname().lower(),)


async def _refuse(send: Send, scope: Scope, status: int, why: str) -> None:
    words = saying.asked(scope["query_string"].decode("latin-1"))
    body = json.dumps({"error": words(why)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

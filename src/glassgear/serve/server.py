"""The port, the browser, and how the server ends."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from glassgear.errors import SettingError
from glassgear.serve.app import Service, create_app

__all__ = ["address", "bind", "serve", "shows_pages"]

PATIENCE = 0.3  # seconds that answers under way have when Ctrl-C comes


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        SettingError: the port is taken, or not ours to take, or the address isn't this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name != "nt":  # there it would let two servers share a port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(128)
    except OSError as trouble:
        found.close()
        raise SettingError(_why(host, port, trouble)) from trouble
    return found


def _why(host: str, port: int, trouble: OSError) -> str:
    free = "`--port 0` takes a free one"
    if isinstance(trouble, socket.gaierror):
        return f"there is no address called {host!r}: 127.0.0.1 is this machine"
    if trouble.errno == 98 or getattr(trouble, "winerror", 0) == 10048 or trouble.errno == 48:
        return f"port {port} of {host} is taken, perhaps by another `glassgear view`: {free}"
    if isinstance(trouble, PermissionError):
        return f"port {port} isn't open to this user: {free}"
    return f"{host} port {port} can't be used: {trouble.strerror or trouble}"


def address(listening: socket.socket) -> str:
    """What to type into a browser."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def shows_pages() -> bool:
    """Whether there is a screen that a browser could open on."""
    has_its_own = sys.platform in ("win32", "darwin")
    return has_its_own or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Server(uvicorn.Server):
    """Ends at the first Ctrl-C: a model in the middle of a step can't be told, so it isn't waited for."""

    code = 0  # that the process ends with

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Close what can be closed in a moment, then leave."""
        self.should_exit = self.force_exit = True
        self.code = 128 + sig
        timer = threading.Timer(PATIENCE, _leave, (self.code,))
        timer.daemon = True
        timer.start()


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def serve(
    service: Service,
    listening: socket.socket,
    *,
    browser: bool = True,
    opened: Callable[[str], Any] = webbrowser.open,
) -> None:
    """Answer requests until Ctrl-C, which leaves this process.

    Args:
        service: models and runs.
        listening: where.
        browser: whether to open the page.
        opened: opens an address in a browser.
    """
    host = listening.getsockname()[0]
    config = uvicorn.Config(
        create_app(service, host),
        log_level="critical",  # faults are said by `replies.py`, in a line
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        lifespan="off",
    )
    if browser:
        threading.Thread(target=opened, args=(address(listening),), daemon=True).start()
    server = _Server(config)
    server.run(sockets=[listening])
    if server.code:
        sys.exit(server.code)

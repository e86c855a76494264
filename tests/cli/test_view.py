"""`glassgear view`: the address, a taken port, Ctrl-C, and what isn't imported before it is used."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from glassgear.serve import server
from tests.cli.conftest import Call

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Ctrl-C can't be sent to one process there")


@contextmanager
def viewing(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    command = [sys.executable, "-m", "glassgear", "view", *arguments]
    env = {**os.environ, "NO_COLOR": "1", **environment}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "http://" not in said:
                line = process.stderr.readline()
                assert line, f"it ended: {said}"
                said += line
            found = re.search(r"http://\S+/", said)
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


def asked(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_it_answers_and_ends_at_ctrl_c_even_while_a_text_is_made(speaker: str) -> None:
    arguments = (speaker, "--backend", "reference", "--port", "0", "--no-browser")
    with viewing(*arguments) as (process, address):
        assert address.startswith("http://127.0.0.1:")
        about = asked(address, "api/about")
        assert about["models"][0]["name"] == speaker and about["models"][0]["loaded"]
        run = asked(address, "api/runs", {"model": speaker, "prompt": "L"})["run"]
        stream = urllib.request.urlopen(f"{address}api/runs/{run}/stream?count=400", timeout=30)
        assert stream.readline() == b"event: token\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_a_stream_that_nobody_reads_any_more_ends(speaker: str) -> None:
    with viewing(speaker, "--backend", "reference", "--port", "0", "--no-browser") as (_, address):
        run = asked(address, "api/runs", {"model": speaker, "prompt": "L"})["run"]
        stream = urllib.request.urlopen(f"{address}api/runs/{run}/stream?count=500", timeout=30)
        assert stream.readline() == b"event: token\n"
        stream.close()
        before = -1
        while before != (now := asked(address, f"api/runs/{run}")["tokens_run"]):
            before = now
            time.sleep(1)
        assert now < 450


def test_a_second_server_on_the_port_says_so(speaker: str, call: Call) -> None:
    with viewing("--port", "0", "--no-browser") as (_, address):
        port = address.rstrip("/").rpartition(":")[2]
        result = call("view", speaker, "--port", port, "--no-browser")
        assert result.exit_code == 1
        assert f"port {port} of 127.0.0.1 is taken" in result.stderr and "--port 0" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("view", "no-such-model", "--port", "0"), 1, "no-such-model"),
        (("view", "--port", "70000"), 2, "--port"),
        (("view", "--port", "0", "--host", "no.such.host.invalid"), 1, "no address called"),
        (("view", "--port", "0", "--memory", "0"), 2, "--memory"),
    ],
)
def test_mistakes(call: Call, arguments: tuple[str, ...], code: int, words: str) -> None:
    result = call(*arguments)
    assert result.exit_code == code and words in result.stderr


@pytest.mark.parametrize(("display", "opens"), [(":0", True), ("", False)])
def test_a_browser_opens_where_there_is_a_screen(
    monkeypatch: pytest.MonkeyPatch, display: str, opens: bool
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert server.shows_pages() == opens


def test_the_page_is_opened_at_the_address_that_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    there = threading.Event()
    monkeypatch.setattr(server._Server, "run", lambda self, sockets: there.wait(10))
    listening = server.bind("127.0.0.1", 0)
    with listening:
        port = listening.getsockname()[1]
        server.serve(server_service(), listening, opened=lambda at: (opened.append(at), there.set()))
    assert opened == [f"http://127.0.0.1:{port}/"]


def server_service() -> Any:
    from glassgear.serve.app import Service
    from glassgear.serve.limits import Limits
    from glassgear.serve.models import Models

    return Service(Models(), Limits())


def test_addresses_as_a_browser_takes_them() -> None:
    with server.bind("0.0.0.0", 0) as every:
        assert server.address(every) == f"http://127.0.0.1:{every.getsockname()[1]}/"
    if socket.has_ipv6:
        try:
            six = server.bind("::1", 0)
        except Exception:
            pytest.skip("this machine has no IPv6")
        with six:
            assert server.address(six) == f"http://[::1]:{six.getsockname()[1]}/"


def test_what_serves_the_page_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys, glassgear\nfrom glassgear.cli import main\n"
        "sys.argv = ['glassgear', 'view', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "names = ('fastapi', 'uvicorn', 'starlette', 'pydantic', 'numpy')\n"
        "print('heavy:', [m for m in names if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("heavy: []") and "--no-browser" in done.stdout

"""A real browser on the page, served from this process."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from glassgear.serve.app import Service, create_app
from glassgear.serve.errors import Gone
from glassgear.serve.models import Models
from glassgear.serve.runs import Limits

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright drives the browser: pip install playwright"
)

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PROMPT = "Once upon a time, there was a little girl"
READY = "html[data-ready]"
PATIENCE = 60  # seconds; a browser on a busy machine is slow
WATCH = """(() => {
  let answers = 0;
  const timers = new Set(), { fetch, setTimeout, clearTimeout } = window;
  const end = () => { answers--; };
  const during = (promise) => { answers++; promise.then(end, end); return promise; };
  window.fetch = (...given) => during(fetch(...given));
  for (const kind of ["json", "text", "arrayBuffer"]) {
    const read = Response.prototype[kind];
    Response.prototype[kind] = function () { return during(read.call(this)); };
  }
  window.setTimeout = (work, wait = 0, ...given) => {
    const timer = setTimeout(() => { timers.delete(timer); work(...given); }, wait);
    if (wait <= 1000) timers.add(timer);
    return timer;
  };
  window.clearTimeout = (timer) => { timers.delete(timer); clearTimeout(timer); };
  const idle = () => !answers && !timers.size && document.fonts.status === "loaded";
  window.watched = { frames: 0, settled: () => (watched.frames = idle() ? watched.frames + 1 : 0) > 3 };
})()"""
"""What the page waits for: answers of the server, and timers (the address follows 150 ms after a change)."""


def settled(page: Any) -> None:
    """Wait until nothing is on its way in the page, for some frames: all that was set off has been drawn."""
    page.evaluate("() => { watched.frames = 0; }")
    page.wait_for_function("() => watched.settled()")


@pytest.fixture(scope="session")
def stories(shared: Path) -> Models:
    """What the server has loaded: the 260 thousand parameters of stories260K. Tests may add to it."""
    models = Models()
    folder = shared / "data" / "llama2c"
    models.options = {"tokenizer": str(folder / "tok512.bin")}
    loaded = models.load(str(folder / "stories260K.bin"))
    loaded.name = "stories260K"
    models.entries = {"stories260K": loaded}
    return models


@pytest.fixture(scope="session")
def service(stories: Models) -> Service:
    """What the server knows."""
    return Service(stories, Limits(2048, 512 << 20))


@pytest.fixture(scope="session")
def address(service: Service) -> Iterator[str]:
    """Where the page is."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()  # who connects before the thread has begun waits for it
        app = create_app(service, "127.0.0.1")
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any, address: str, service: Service) -> Iterator[Callable[..., Any]]:
    """Opens the page at a link and waits until it is ready. Anything on the console fails the test."""
    said: list[str] = []
    contexts = []
    service.models.get("stories260K")  # used last: what a test loads takes the room of others

    def go(link: str = "", *, ready: bool = True, quiet: bool = True, **options: Any) -> Any:
        settings = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"} | options
        contexts.append(browser.new_context(**settings))
        contexts[-1].add_init_script(WATCH)
        page = contexts[-1].new_page()
        page.set_default_timeout(1000 * PATIENCE)
        if quiet:
            page.on(
                "console",
                lambda m: (
                    said.append(f"{m.text} {m.location.get('url', '')}")
                    if m.type in ("error", "warning")
                    else None
                ),
            )
        page.on("pageerror", lambda trouble: said.append(str(trouble)))
        page.on("dialog", lambda dialog: said.append(f"a dialog: {dialog.message}"))
        page.goto(address + link)
        if ready:
            page.wait_for_selector(READY)
        return page

    yield go
    for context in contexts:
        context.close()
    for run in list(service.runs.runs):  # their models may make room for those of the next test
        with suppress(Gone):  # the page has just ended it
            service.runs.close(run)
    assert not said


@pytest.fixture
def story(visit: Callable[..., Any]) -> Any:
    """The page with a story begun."""
    return visit(f"#m=stories260K&p={PROMPT.replace(' ', '+')}&s=t0")

"""Make the pictures of docs/see_inside.md: start the page, walk through it in a browser, photograph it.

    .venv/bin/python docs/make_pictures.py                   both languages, from smollm2-135m
    .venv/bin/python docs/make_pictures.py --language en --out /tmp/pictures

Needs Chromium, Playwright and Pillow (`pip install -e ".[dev]"`), and the model
(`glassgear pull smollm2-135m`).
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
PROMPT = "The opposite of hot is"
SIZE = {"width": 1280, "height": 800}
SHARPNESS = 1.5  # pixels of the picture for one of the page
COLOURS = 255  # a page has few more: a palette makes the files a third as large
MIDDLE = "#middle"

# A round number beside what the text speaks of. Made by script, since the page forbids styles in markup.
BADGE = """([selector, number, side]) => {
    const box = document.querySelector(selector).getBoundingClientRect(), badge = document.createElement("b");
    const middle = box.top + Math.min(box.height, 28) / 2 - 9;
    const [left, top] = {left: [box.left - 18, middle], right: [box.right + 5, middle],
        corner: [box.right - 10, box.top - 8], under: [box.left + box.width / 2 - 9, box.bottom - 10]}[side];
    Object.assign(badge.style, {position: "fixed", zIndex: 99, width: "18px", height: "18px",
        borderRadius: "50%",
        background: "#c2410c", color: "#fff", font: "700 11.5px/18px sans-serif", textAlign: "center",
        left: `${left}px`, top: `${top}px`});
    badge.className = "picture-badge"; badge.textContent = number;
    document.body.append(badge); }"""


class Walk:
    """One walk through the page.

    Args:
        page: with the prompt run.
        out: folder of the pictures.
    """

    def __init__(self, page: Page, out: Path) -> None:
        self.page, self.out = page, out

    def click(self, selector: str, seconds: float = 0.9) -> None:
        """Click, and wait for what comes of it."""
        self.page.click(selector)
        self.rest(seconds)

    def rest(self, seconds: float = 0.9) -> None:
        """Wait until nothing is loading, and a moment more for the drawing."""
        self.page.wait_for_function("() => document.body.getAttribute('aria-busy') !== 'true'")
        self.page.wait_for_timeout(1000 * seconds)

    def shoot(
        self, name: str, *marks: tuple[str, str], of: str | None = None, high: int | None = None
    ) -> None:
        """Take a picture.

        Args:
            name: of the file.
            marks: (selector, side) of what gets a number, from 1 on; side: left, right, corner or under.
            of: an element that is all of the picture; None: the page.
            high: cut off below so many pixels of it.
        """
        for number, (selector, side) in enumerate(marks, 1):
            self.page.evaluate(BADGE, [selector, str(number), side])
        options: dict[str, Any] = {}
        if of is not None:
            box = self.page.locator(of).bounding_box()
            assert box is not None, f"{of} isn't on the page"
            options["clip"] = {**box, "height": min(box["height"], high or box["height"])}
        picture = Image.open(io.BytesIO(self.page.screenshot(**options)))
        few = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(self.out / f"{name}.png", optimize=True)
        self.page.evaluate("document.querySelectorAll('.picture-badge').forEach((one) => one.remove())")


def whole_page(walk: Walk) -> None:
    """The three columns."""
    walk.shoot(
        "page", ("#zoom", "right"), ("[data-view=compare]", "right"), ("#text h2", "right"), ("#go", "corner")
    )


def previous_token(walk: Walk) -> None:
    """Question 1: which head reads the token before."""
    walk.click("[data-view=heads]")
    walk.click("[data-key='habit previous']")
    marks = (
        ("[data-view=heads]", "under"),
        ("[data-key='habit previous']", "corner"),
        (".ranking button", "left"),
    )
    walk.shoot("heads", *marks, of=MIDDLE, high=560)
    walk.click(".ranking button")
    walk.shoot("head", (".heads button[aria-pressed=true]", "left"), ("#readout", "right"), of=MIDDLE)


def hovered(walk: Walk) -> None:
    """A token of the text under the pointer."""
    walk.page.locator(".reading select").nth(1).select_option(str(walk.page.evaluate(HEAD)))
    walk.page.locator("#text > .chips .chip").last.hover()
    walk.rest(0.5)
    walk.shoot("hover", of="#text")
    walk.page.mouse.move(640, 400)


HEAD = "async () => (await import('/js/store.js')).state.head"


def deciding_layer(walk: Walk) -> None:
    """Question 2: which layer prefers the answer first."""
    walk.click("[data-view=lens]", 1.5)
    walk.shoot(
        "lens",
        ("[data-view=lens]", "under"),
        ("#view-other .headline", "left"),
        (".lens-mark", "left"),
        of=MIDDLE,
    )


def removed(walk: Walk) -> None:
    """Question 3: what top-p removed."""
    walk.click("[data-view=sampling]")
    marks = (
        ("[data-view=sampling]", "under"),
        ("[data-stage=top-p]", "left"),
        ("[data-stage=top-p] .removed", "left"),
    )
    walk.shoot("sampling", *marks, of=MIDDLE, high=470)


def by_hand(walk: Walk) -> None:
    """The worked example, a step of the tour."""
    walk.page.evaluate("async () => (await import('/js/tour.js')).go('worked')")
    walk.page.wait_for_selector("#tour .parts")
    walk.rest()
    walk.click("[data-key='part 1']", 1.5)
    walk.shoot("by_hand", ("[data-key='part 1']", "corner"), of=MIDDLE)


STEPS: tuple[Callable[[Walk], None], ...] = (
    whole_page,
    previous_token,
    hovered,
    deciding_layer,
    removed,
    by_hand,
)


@contextmanager
def served(model: str) -> Iterator[str]:
    """The page on a free port, as its command serves it; gives the address."""
    command = [sys.executable, "-m", "glassgear", "view", model, "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        said = ""
        while not (found := re.search(r"http://\S+/", said)):
            said = server.stdout.readline()
            if not said:
                raise SystemExit(f"`glassgear view {model}` ended before it said where the page is")
        yield found[0]
    finally:
        server.terminate()
        server.wait(10)


def make(language: str, address: str, browser: Any, model: str, out: Path) -> None:
    """All pictures in one language."""
    out.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport=SIZE, device_scale_factor=SHARPNESS, color_scheme="light")
    page = context.new_page()
    page.goto(f"{address}#m={model}&p={PROMPT.replace(' ', '+')}&l={language}")
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    walk = Walk(page, out)
    walk.rest(1.5)
    for step in STEPS:
        step(walk)
    context.close()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Make the pictures of docs/see_inside.md.")
    parser.add_argument("--model", default="smollm2-135m", help="a name that `glassgear list` shows")
    parser.add_argument("--language", choices=("en", "zh"), action="append", help="default: both")
    parser.add_argument("--out", type=Path, default=HERE / "images" / "see_inside", help="folder")
    given = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with served(given.model) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for language in given.language or ("en", "zh"):
            make(language, address, browser, given.model, given.out / language)
        browser.close()
    files = sorted(given.out.rglob("*.png"))
    print(f"{len(files)} pictures, {sum(one.stat().st_size for one in files) / 1e6:.2f} MB, in {given.out}")


if __name__ == "__main__":
    main()

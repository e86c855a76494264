"""How quickly the page answers: the first paint, and a click on every kind of number.

    python benchmarks/page.py smollm2-135m [--prompt TEXT] [--tokens 12] [--repeats 5] [--json]

Starts `glassgear view` as users do, and asks it as the page does. A click asks for a value's row and for
the explanation of one number in it, each time another one; what is printed is the first answer and the
median and worst of the others, in milliseconds. With Playwright and Chromium the first paint is
measured, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", default="Once upon a time, there was a little girl who lived in")
    parser.add_argument("--tokens", type=int, default=12, help="that are made after the prompt")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    command = [sys.executable, "-m", "glassgear", "view", options.model, "--port", "0", "--no-browser"]
    env = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            rows = measured(address_of(process), options)
        finally:
            process.kill()
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'':40} {'first':>8} {'median':>8} {'worst':>8}   ms")
    for name, times in rows.items():
        more = times[1:] or times
        print(f"{name:40} {times[0]:8.1f} {statistics.median(more):8.1f} {max(more):8.1f}")
    return 0


def address_of(process: subprocess.Popen[str]) -> str:
    said = ""
    assert process.stderr is not None
    while (found := re.search(r"http://\S+/", said)) is None:
        line = process.stderr.readline()
        if not line:
            sys.exit(said)
        said += line
    return found[0]


def measured(address: str, options: argparse.Namespace) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    rows |= in_browser(address, options)
    run = ask(address, "api/runs", {"model": options.model, "prompt": options.prompt})["run"]
    rows["a token"] = [
        timed(lambda: ask(address, f"api/runs/{run}/step", {"count": 1}))[1] for _ in range(options.tokens)
    ]
    shapes = ask(address, f"api/runs/{run}/summary?path=*")
    draw = random.Random(1)
    for path, shape in kinds(shapes).items():
        rows[f"click on {path}"] = [
            click(address, run, path, shape, draw) for _ in range(1 + options.repeats)
        ]
    vocab = next(entry["shape"][-1] for entry in shapes if entry["path"] == "head")
    last = shapes[0]["shape"][0] - 1
    explain = f"api/runs/{run}/explain?token={last - 1}&path="
    entries = [draw.randrange(vocab) for _ in range(1 + options.repeats)]
    rows["explain probability"] = [
        timed(lambda entry=entry: ask(address, f"{explain}probability&index={entry}"))[1] for entry in entries
    ]
    rows["explain sampled"] = [timed(lambda: ask(address, f"{explain}sampled"))[1] for _ in entries]
    for view in ("candidates?temperature=0.7&top_p=0.9", "lens", "growth", "heads", "habits"):
        rows[view.partition("?")[0]] = [
            timed(lambda view=view: ask(address, f"api/runs/{run}/{view}"))[1] for _ in range(3)
        ]
    return rows


def kinds(shapes: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """One path of each kind: that of the last block which has it, and the length of each axis but tokens."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    for entry in shapes:
        kind = re.sub(r"\.\d+", ".*", entry["path"])
        axes, shape = entry["axes"], entry["shape"]
        sizes = dict(zip(axes, shape, strict=True))
        found[kind] = (entry["path"], {axis: n for axis, n in sizes.items() if axis != "token"})
    return dict(found.values())


def click(address: str, run: str, path: str, shape: dict[str, int], draw: random.Random) -> float:
    token = draw.randrange(2, 10)
    index = [draw.randrange(token + 1 if axis == "seen" else n) for axis, n in shape.items()]
    place = f"&index={','.join(map(str, index))}" if index else ""
    _, row = timed(lambda: raw(address, f"api/runs/{run}/value?path={path}&token={token}"))
    _, number = timed(lambda: ask(address, f"api/runs/{run}/explain?path={path}&token={token}{place}"))
    return row + number


def timed(call: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    found = call()
    return found, 1000 * (time.perf_counter() - start)


def raw(address: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    url = address + urllib.parse.quote(path, safe="/?&=*,.%-")
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=120
    ) as answer:
        held: bytes = answer.read()
        return held


def ask(address: str, path: str, body: dict[str, Any] | None = None) -> Any:
    return json.loads(raw(address, path, body))


def in_browser(address: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """First paints, and clicks from the mouse's event to the explanation on the page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if chromium is None:
        return {}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        painted = []
        for _ in range(3):
            page = browser.new_page()
            page.goto(address)
            page.wait_for_function(f"{PAINT}.length")
            painted.append(float(page.evaluate(f"{PAINT}[0].startTime")))
            page.close()
        link = urllib.parse.urlencode({"m": options.model, "p": options.prompt})
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}#{link}")
        page.wait_for_selector("html[data-ready]")
        page.click("#machine .node[data-value='blocks.0.ffn.down']", timeout=60_000)
        page.wait_for_selector("#heat canvas")
        page.wait_for_timeout(2000)
        took = [float(page.evaluate(CLICK, i)) for i in range(1 + options.repeats)]
        browser.close()
    return {"first paint": painted, "click in the page": took}


PAINT = "performance.getEntriesByName('first-contentful-paint')"
# Click on another channel of the heatmap each time, and wait until the explanation names it.
CLICK = """async (i) => {
  const said = () => document.querySelector('#explain .trail button')?.innerText ?? '';
  const box = document.querySelector('#heat canvas').getBoundingClientRect(), before = said();
  const x = box.left + 100 + 20 * i, y = box.top + 60, began = performance.now();
  const done = new Promise((resolve) => new MutationObserver((_, self) => {
    if (said() !== before && document.querySelector('#explain .terms')) {
      self.disconnect(); resolve(performance.now() - began); }
  }).observe(document.querySelector('#explain'), {childList: true, subtree: true, attributes: true}));
  document.elementFromPoint(x, y).dispatchEvent(
    new MouseEvent('click', {clientX: x, clientY: y, bubbles: true}));
  const took = await done;
  await new Promise((resolve) => setTimeout(resolve, 200));
  return took;
}"""


if __name__ == "__main__":
    sys.exit(main())

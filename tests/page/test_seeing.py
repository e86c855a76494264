"""What a newcomer asks of the page: what a token reads, which head, which layer, what a stage removed."""

from __future__ import annotations

import re
import statistics
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from glassgear.lab.experiments.worked_example import TOKENS, printed
from glassgear.serve.models import Models
from tests.page.conftest import PROMPT, settled
from tests.page.test_page import CHIPS, Visit, state, texts, wait_until

AT = f"#m=stories260K&p={quote(PROMPT)}"
WEIGHTS = "attention.weights&token="  # in the address of what a token reads
SHADES = f"""() => [...document.querySelectorAll('{CHIPS}')].map((chip) => chip.style.background)"""


@pytest.fixture(scope="module")
def weights(stories: Models) -> list[np.ndarray]:
    """Attention weights of the prompt by layer, [head, token, seen]."""
    model = stories.entries["stories260K"].model
    trace = model.trace(PROMPT, select="blocks.*.attention.weights")
    return [trace[f"blocks.{i}.attention.weights"].array for i in range(len(model.gears.blocks))]


def quiet_chip(page: Any, i: int) -> Any:
    return page.locator(CHIPS).nth(i)


def reader(page: Any) -> int:
    """The token whose reading is shown; -1: none."""
    return int(page.evaluate(f"() => [...document.querySelectorAll('{CHIPS}')].findIndex((c) => "
                             "c.classList.contains('reader'))"))  # fmt: skip


# --- what a token reads -----------------------------------------------------------------------------


def test_a_token_under_the_pointer_shades_what_it_reads(story: Any, weights: list[np.ndarray]) -> None:
    settled(story)
    quiet_chip(story, 5).hover()
    wait_until(story, lambda: reader(story) == 5)
    settled(story)
    read = weights[0].mean(axis=0)[5]
    best = int(read.argmax())
    label = story.evaluate(f"async () => (await import('/js/pieces.js')).quoted({{text: (await "
                           f"import('/js/store.js')).state.texts[{best}]}})")  # fmt: skip
    assert re.search(rf"reads {re.escape(label)} {100 * read[best]:.0f} ?%", story.inner_text(".reading p"))
    expected = story.evaluate(
        f"""async () => {{ const scale = await import('/js/scale.js');
        const probe = document.createElement('i');
        return {[float(w) for w in [*read, *[0] * (len(texts(story)) - len(read))]]}.map((w) => {{
        probe.style.background = scale.css(scale.share(w, 'light')); return probe.style.background; }}); }}"""
    )
    shades = story.evaluate(SHADES)
    assert shades == expected, "what comes later has no weight"
    story.mouse.move(640, 400)
    wait_until(story, lambda: reader(story) == -1)
    settled(story)
    assert not any(story.evaluate(SHADES))


def test_head_and_layer_of_the_reading_are_chosen(story: Any, weights: list[np.ndarray]) -> None:
    story.locator(".reading select").nth(0).select_option("2")
    story.locator(".reading select").nth(1).select_option("3")
    settled(story)
    quiet_chip(story, 6).hover()
    wait_until(story, lambda: reader(story) == 6)
    settled(story)
    best = weights[2][3][6].max()
    assert re.search(rf"reads .*{100 * best:.0f} ?%", story.inner_text(".reading p"))
    assert state(story, "open") == 2


def test_focus_by_key_shows_the_same(story: Any) -> None:
    settled(story)
    quiet_chip(story, 3).focus()
    story.keyboard.press("Tab")
    wait_until(story, lambda: reader(story) == 4)
    settled(story)
    said = story.inner_text(".reading p")
    story.evaluate("document.activeElement.blur()")
    wait_until(story, lambda: reader(story) == -1)
    quiet_chip(story, 4).hover()
    wait_until(story, lambda: reader(story) == 4)
    settled(story)
    assert story.inner_text(".reading p") == said


def test_reading_is_one_small_request_and_is_kept(story: Any) -> None:
    asked: list[int] = []  # tokens; one that the pointer only passed over may be among them
    story.on("request", lambda request: asked.extend(map(int, re.findall(f"{WEIGHTS}(\\d+)", request.url))))
    settled(story)
    took = []
    for i in (2, 4, 6):
        began = story.evaluate("performance.now()")
        quiet_chip(story, i).hover()
        wait_until(story, lambda i=i: reader(story) == i)  # type: ignore[misc]
        took.append(story.evaluate("performance.now()") - began)
    assert [asked.count(i) for i in (2, 4, 6)] == [1, 1, 1], asked
    assert statistics.median(took) < 4000, took
    for i in (2, 4, 6):
        quiet_chip(story, i).hover()
        wait_until(story, lambda i=i: reader(story) == i)  # type: ignore[misc]
    assert [asked.count(i) for i in (2, 4, 6)] == [1, 1, 1], "what was asked once is kept"


def test_reading_is_forgotten_with_the_token(story: Any) -> None:
    count = len(texts(story))
    story.click("#step")
    story.wait_for_function(f"() => document.querySelectorAll('{CHIPS}').length === {count + 1}")
    quiet_chip(story, count).hover()
    wait_until(story, lambda: reader(story) == count)
    story.mouse.move(640, 400)
    story.click("#back")
    story.wait_for_function(f"() => document.querySelectorAll('{CHIPS}').length === {count}")
    settled(story)
    story.locator(".candidates button").nth(3).click()
    story.wait_for_function(f"() => document.querySelectorAll('{CHIPS}').length === {count + 1}")
    settled(story)
    asked: list[str] = []
    story.on("request", lambda request: asked.append(request.url) if WEIGHTS in request.url else None)
    quiet_chip(story, count).hover()
    wait_until(story, lambda: reader(story) == count)
    assert any(f"token={count}" in url for url in asked), "another token stands there now"


# --- which head, which layer, which stage -----------------------------------------------------------


def test_heads_that_read_the_previous_token_are_ranked(visit: Visit, weights: list[np.ndarray]) -> None:
    page = visit(f"{AT}&v=heads")
    page.click(".choices-row button >> nth=1")
    page.wait_for_selector(".ranking li")
    settled(page)
    at = np.arange(2, weights[0].shape[1])
    shares = {(layer, head): float(matrix[at, at - 1].mean()) for layer, all_ in enumerate(weights)
              for head, matrix in enumerate(all_)}  # fmt: skip
    best = sorted(shares, key=lambda place: -shares[place])[:5]
    rows = page.locator(".ranking li").all_inner_texts()
    for row, (layer, head) in zip(rows, best, strict=True):
        assert f"Layer {layer} · head {head}" in row and f"{100 * shares[layer, head]:.1f} %" in row
    assert f"Layer {best[0][0]}, head {best[0][1]} reads the previous token most" in page.inner_text(
        ".headline"
    )
    assert "y=previous" in page.evaluate("location.hash")
    page.click(".ranking button >> nth=0")
    page.wait_for_selector("#attention:not([hidden])")
    settled(page)
    assert (
        state(page, "head") == best[0][1] and state(page, "value") == f"blocks.{best[0][0]}.attention.weights"
    )
    wait_until(page, lambda: f"reads the previous token: {100 * shares[best[0]]:.1f} %"
               in page.inner_text("#readout"))  # fmt: skip


def test_lens_marks_the_layer_from_which_the_answer_stays(visit: Visit) -> None:
    page = visit(f"{AT}&v=lens&s=t0")
    page.wait_for_selector(".lens-big .lens-row.decided")
    settled(page)
    found = state(page, "lens")
    decided, final = found["decided"], found["final"]["id"]
    firsts = [layer["top"][0]["id"] for layer in found["layers"]]
    assert all(one == final for one in firsts[decided:]) and (decided == 0 or firsts[decided - 1] != final)
    assert f"From layer {decided} on" in page.inner_text("#view-other .headline")
    assert f"From layer {decided} on" in page.inner_text("#lens .lens-said")
    below = page.evaluate(
        "() => document.querySelector('.lens-mark')?.nextElementSibling.querySelector('.layer-no').innerText"
    )
    assert below == (str(decided) if decided else None)


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080)])
def test_rows_of_the_lens_are_high_where_there_are_few(visit: Visit, size: tuple[int, int]) -> None:
    page = visit(f"{AT}&v=lens&s=t0", viewport={"width": size[0], "height": size[1]})
    page.wait_for_selector(".lens-big .lens-row.decided")
    settled(page)
    top, bottom, inside = page.evaluate(
        """() => { const box = document.querySelector('#view-other'), edge = box.getBoundingClientRect();
        const end = box.lastElementChild.getBoundingClientRect().bottom;
        return [edge.top, edge.bottom, end].map(Math.round); }"""
    )
    assert (inside - top) / (bottom - top) > 2 / 3, "the lower third isn't empty"
    assert inside <= bottom, "nor has anybody to scroll"
    shown = page.locator(".lens-row.decided .token").first.locator(".share").inner_text()
    found = state(page, "lens")
    likeliest = found["layers"][found["decided"]]["top"][0]["probability"]
    assert float(shown.rstrip(" %")) == pytest.approx(100 * likeliest, abs=0.06)


def test_what_a_stage_removed_is_struck_through_with_its_name(visit: Visit) -> None:
    page = visit(f"{AT}&v=sampling&s=p0.6,m0,k5")
    page.wait_for_selector(".stage-card[data-stage=top-p] s")
    settled(page)
    found = state(page, "candidates")
    stage = next(one for one in found["stages"] if one["name"] == "top-p")
    card = page.inner_text(".stage-card[data-stage=top-p]")
    assert f"{stage['kept']} of 5 kept" in card and f"Removed {stage['removed_count']}" in card
    assert "add up to 0.6" in card
    gone = [one["removed_by"] for one in found["top"]]
    assert gone[: stage["kept"]] == [None] * stage["kept"]
    assert gone[stage["kept"] : 5] == ["top-p"] * stage["removed_count"] and set(gone[5:]) == {"top-k"}
    assert page.locator(".candidates .by").all_inner_texts() == [one for one in gone[:10] if one]
    rows = page.locator(".terms tbody tr.out")
    assert rows.count() == len([one for one in gone if one])
    assert "removed: top-p" in rows.first.inner_text()


# --- the worked example in the tour -----------------------------------------------------------------


def test_the_tour_opens_the_worked_example_and_comes_back(visit: Visit) -> None:
    page = visit(f"{AT}&u=activation")
    page.click("#tour nav .primary")
    page.wait_for_selector("#tour .parts")
    page.wait_for_selector("#explain:not([hidden]) .number")
    settled(page)
    assert state(page, "model") == "worked-example"
    assert texts(page) == list(TOKENS)
    assert page.input_value("#prompt") == "".join(TOKENS)
    assert state(page, "numbers")[0]["path"] == "blocks.0.attention_residual"
    assert page.inner_text("#explain .number").startswith("−1.182")
    page.click("#tour .parts button >> nth=1")
    wait_until(page, lambda: [n["path"] for n in state(page, "numbers")] == ["blocks.0.ffn.up"])
    settled(page)
    assert page.inner_text("#explain .number").startswith("0.400774")
    assert page.locator("#explain .terms tbody tr").count() == 4
    page.click("#tour .parts button >> nth=2")
    page.wait_for_selector("#explain", state="hidden")
    settled(page)
    assert state(page, "value") == "blocks.0" and state(page, "token") == 0
    page.click("#tour nav .primary")
    wait_until(page, lambda: state(page, "model") == "stories260K")
    settled(page)
    assert page.input_value("#prompt") == PROMPT
    assert state(page, "tour") == "stack"


def test_leaving_the_tour_leaves_the_example(visit: Visit) -> None:
    page = visit(f"{AT}&u=activation")
    page.click("#tour nav .primary")
    page.wait_for_selector("#tour .parts")
    page.click("#tour nav .icon")
    wait_until(page, lambda: state(page, "model") == "stories260K")
    assert page.locator("#tour:not([hidden])").count() == 0


@pytest.mark.parametrize("column", [0, 1])
def test_the_numbers_that_the_tour_says_are_the_engines(visit: Visit, stories: Models, column: int) -> None:
    page = visit(AT)
    said = page.evaluate(
        "async () => (await import('/js/tour_texts.js')).TOUR.worked.parts.map((p) => p.text)"
    )
    model = stories.load("worked-example").model
    trace = model.trace("".join(TOKENS))
    computed = [f"{float(trace[n.path].number(n.token, n.place)):.3f}" for n in printed() if not n.share]
    numbers = re.findall(r"[−-]?\d\.\d{3}", " ".join(text[column] for text in said))
    assert len(numbers) == 8
    assert set(n.replace("−", "-") for n in numbers) <= set(computed)


# --- looks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1280, 800), (1920, 1080)])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_is_cut_off_sideways(visit: Visit, size: tuple[int, int], language: str) -> None:
    page = visit(f"{AT}&l={language}", viewport={"width": size[0], "height": size[1]})
    for view in ("value", "prompt", "growth", "heads", "lens", "sampling", "cache", "compare"):
        page.evaluate(f"async () => (await import('/js/store.js')).set({{view: '{view}'}})")
        settled(page)
        wide = page.evaluate(
            """() => ['#middle', '#view-other', '#right', '#left', '.bar', '.heads'].map((at) =>
            document.querySelector(at)).filter((e) => e?.offsetParent && e.scrollWidth > e.clientWidth + 1)
            .map((e) => `${e.id || e.className} ${e.scrollWidth} > ${e.clientWidth}`)"""
        )
        assert wide == [], view
    words = re.sub(r"\S*[./]\S*", "", page.inner_text("body"))  # without paths
    assert not re.search(r"\b[a-z]+_[a-z_]+\b", words), "a key that has no text"

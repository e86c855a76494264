"""Numbers and words that the page puts side by side: candidates, comparisons, the seed, pieces, the tour."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest

from tests.page.conftest import PROMPT, settled
from tests.page.test_page import Visit, state, wait_until

AT = f"#m=stories260K&p={quote(PROMPT)}"
MOST = 2**53 - 1  # the largest whole number that a script's numbers tell from its neighbours
FLAT = [f"blocks.{n}.{part}" for n in range(1, 5) for part in ("attention", "ffn")]
FOCUSED = "document.activeElement.dataset.key ?? document.activeElement.id"


def shares(page: Any, selector: str) -> list[float]:
    """Percentages as numbers; what is below 0.01 % counts as nothing."""
    found = page.locator(selector).all_inner_texts()
    return [0.0 if "<" in one else float(one.split()[0]) for one in found]


# --- before and after a change ----------------------------------------------------------------------


def test_each_runs_own_favourites_are_in_the_comparison(visit: Visit) -> None:
    changes = "[" + ",".join(f'{{"op":"zero","path":"{path}"}}' for path in FLAT) + "]"
    page = visit(f"{AT}&v=compare&x={quote(changes)}")
    page.wait_for_selector("#view-other .terms tbody tr")
    settled(page)
    found = state(page, "comparison")["logits"]
    rows = page.locator("#view-other .terms tbody tr")
    listed = [one["id"] for one in found["candidates"]]
    likeliest = {one["id"] for side in "ab" for one in found[side][:5]}
    assert set(listed) >= likeliest and rows.count() == len(listed) == 10
    highest = [max(one["a"], one["b"]) for one in found["candidates"]]
    assert highest == sorted(highest, reverse=True)
    assert all(one["a"] < 1e-4 for one in found["candidates"] if one["id"] == found["b"][0]["id"])
    best = page.locator("#view-other .terms td.best")
    firsts = [page.evaluate("(share) => import('/js/format.js').then((f) => f.percent(share))",
              found[side][0]["probability"]) for side in "ab"]  # fmt: skip
    assert sorted(best.all_inner_texts()) == sorted(firsts)


# --- candidates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "names"), [("en", ["model", "draw"]), ("zh", ["模型", "抽取"])])
def test_a_candidates_two_numbers_stand_in_columns_of_their_own(
    visit: Visit, language: str, names: list[str]
) -> None:
    page = visit(f"{AT}&l={language}&s=t0.7,k4,p1,m0")
    page.wait_for_function("() => document.querySelectorAll('.candidates .out').length === 6")
    settled(page)
    assert page.locator(".candidates-head .n").all_inner_texts() == names
    top = state(page, "candidates")["top"][:10]
    model, drawn = shares(page, ".candidates .of-model"), shares(page, ".candidates .in-draw")
    assert model == sorted(model, reverse=True), "one scale, kept or not"
    assert model == pytest.approx([100 * one["probability"] for one in top], abs=0.06)
    assert drawn == pytest.approx([100 * one["final"] for one in top[:4]], abs=0.06)
    assert sum(drawn) == pytest.approx(100, abs=0.2)
    assert page.locator(".candidates .by").all_inner_texts() == ["top-k"] * 6
    edges = page.evaluate(
        """() => [['.candidates-head .n:nth-child(1)', '.of-model'], ['.candidates-head .n:nth-child(2)',
        '.in-draw, .candidates .by']].map((both) => both.map((at) => [...new Set([...document
        .querySelectorAll(at)].map((e) => Math.round(e.getBoundingClientRect().right)))]))"""
    )
    assert all(head == rows and len(rows) == 1 for head, rows in edges), edges


# --- the seed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", ["-5", "2.5", "", "abc", "1e3", str(MOST + 1), "99999999999999999999"])
def test_what_is_no_seed_is_said_and_taken_back(story: Any, typed: str) -> None:
    settled(story)
    story.fill("#s-seed", "7")
    wait_until(story, lambda: bool(state(story, "candidates")["seed"] == 7))
    story.fill("#s-seed", typed)
    assert story.locator("#seed-said").is_visible() == bool(typed)
    story.keyboard.press("Enter")
    assert story.input_value("#s-seed") == "7" and state(story, "sampling")["seed"] == 7
    assert story.inner_text("#seed-said") == f"A seed is a whole number from 0 to {MOST}. 7 is in use."
    settled(story)
    assert "s7" in story.evaluate("location.hash")
    story.fill("#s-seed", "8")
    assert story.locator("#seed-said").is_hidden() and state(story, "sampling")["seed"] == 8


def test_the_largest_seed_is_drawn_with_and_linked_exactly(story: Any, visit: Visit) -> None:
    settled(story)
    story.fill("#s-seed", str(MOST))
    wait_until(story, lambda: bool(state(story, "candidates")["seed"] == MOST))
    settled(story)
    link = story.evaluate("location.hash")
    assert f"s{MOST}" in link
    page = visit(link)
    settled(page)
    assert page.input_value("#s-seed") == str(MOST) and state(page, "candidates")["seed"] == MOST


@pytest.mark.parametrize("seed", ["-5", "2.5", "99999999999999999999", "x"])
def test_a_link_with_no_seed_leaves_the_usual_one(visit: Visit, seed: str) -> None:
    page = visit(f"{AT}&s=t0.5,s{seed}")
    settled(page)
    assert state(page, "sampling")["seed"] == 1 and state(page, "sampling")["temperature"] == 0.5
    assert page.locator("#trouble").is_hidden() and page.input_value("#s-seed") == "1"


def test_reset_takes_back_what_was_said_of_a_seed(story: Any) -> None:
    story.fill("#s-seed", "-5")
    story.click(".sliders button")
    assert story.locator("#seed-said").is_hidden() and story.input_value("#s-seed") == "1"


# --- pieces -----------------------------------------------------------------------------------------


def test_bytes_have_one_form_in_the_text_and_in_lists(visit: Visit) -> None:
    """As the server writes them: `shown` of trace/pipeline.py, each lone byte as `<F0>`."""
    page = visit(ready=False)
    pieces = [" <F0><9F>", "<90>", "<B6>", "<F0><9F><98>", "<80>", "é<E5><AE>"]
    chips, listed = page.evaluate(
        """async (given) => { const pieces = await import('/js/pieces.js');
        return [pieces.chips(given), given.map((text) => pieces.token({text}))]; }""",
        pieces,
    )
    shown = [" <F0 9F>", "<90>", "<B6>", "<F0 9F 98>", "<80>", "é<E5 AE>"]
    assert [chip["text"] for chip in chips] == listed == shown
    assert [chip["part"]["glyph"] for chip in chips] == [None, None, " 🐶", None, "😀", None]


def test_emoji_are_shown_alike_everywhere(visit: Visit) -> None:
    page = visit(f"#m=stories260K&p={quote('a 🐶')}&v=prompt")
    page.wait_for_selector(".piece")
    settled(page)
    parts = [one.replace(" 🐶", "").strip() for one in page.locator("#text .chip.part").all_inner_texts()]
    named = [one.split("\n")[0].replace(" 🐶", "") for one in page.locator(".piece").all_inner_texts()]
    assert len(parts) == 4 and parts == named[-4:] == ["<F0>", "<9F>", "<90>", "<B6>"]


# --- the tour at the keyboard -----------------------------------------------------------------------


def begin_tour(page: Any, way: str) -> None:
    if way == "key":
        page.keyboard.press("t")
    else:
        page.click("#tour-open")
    page.wait_for_selector("#tour:not([hidden])")


@pytest.mark.parametrize("way", ["key", "button"])
def test_the_tour_has_the_focus_and_gives_it_back(story: Any, way: str) -> None:
    settled(story)
    story.locator("#text .chip").nth(2).focus()
    token = state(story, "token")
    begin_tour(story, way)
    assert story.evaluate(FOCUSED) == "tn"
    for key, step in (("Enter", "embedding"), ("ArrowRight", "block"), ("ArrowLeft", "embedding"),
                      ("ArrowLeft", "tokens")):  # fmt: skip
        story.keyboard.press(key)
        wait_until(story, lambda step=step: bool(state(story, "tour") == step))  # type: ignore[misc]
        settled(story)
        assert story.evaluate(FOCUSED) == "tn"
    assert state(story, "token") == token, "within the strip arrows are the tour's"
    story.keyboard.press("Shift+Tab")  # Back is off at the first step: what comes before is outside
    story.keyboard.press("Tab")
    story.keyboard.press("Escape")
    wait_until(story, lambda: bool(state(story, "tour") == ""))
    settled(story)
    assert story.evaluate(FOCUSED) == ("chip 2" if way == "key" else "tour-open")


def test_the_focus_stays_in_the_tour_through_the_example(visit: Visit) -> None:
    page = visit(AT)
    settled(page)
    begin_tour(page, "key")
    page.evaluate("async () => (await import('/js/tour.js')).go('activation')")
    settled(page)
    page.keyboard.press("Enter")
    wait_until(page, lambda: bool(state(page, "model") == "worked-example" and state(page, "numbers")))
    settled(page)
    assert page.evaluate(FOCUSED) == "tn"
    page.keyboard.press("Escape")
    wait_until(page, lambda: bool(state(page, "model") == "stories260K"))
    settled(page)
    assert state(page, "tour") == "" and page.evaluate("document.activeElement === document.body")
    page.keyboard.press("n")
    wait_until(page, lambda: bool(state(page, "made") == 1))


def test_an_arrow_that_is_not_for_the_tour_stays_what_it_is(story: Any) -> None:
    settled(story)
    begin_tour(story, "key")
    story.evaluate("document.activeElement.blur()")
    at = state(story, "token")
    story.keyboard.press("ArrowLeft")
    assert state(story, "token") == at - 1 and state(story, "tour") == "tokens"


def test_a_link_into_the_tour_leaves_the_focus_alone(visit: Visit) -> None:
    page = visit(f"{AT}&u=rope")
    page.wait_for_selector("#tour:not([hidden])")
    settled(page)
    assert page.evaluate("document.activeElement === document.body")


def test_lines_of_the_tour_answer_nobody(visit: Visit) -> None:
    """They stand by themselves: a reader hasn't seen what somebody else claimed."""
    page = visit(ready=False)
    lines = page.evaluate(
        "async () => Object.values((await import('/js/tour_texts.js')).TOUR).map((step) => step.right ?? [])"
    )
    said = [text for both in lines for text in both]
    assert len(said) == 18
    found = [text for text in said if re.search(r"\bnot \d|\bNor\b|therefore|而不是|不是 \d", text)]
    assert found == []


def test_figures_of_the_tour_are_those_of_llama_3_8b(visit: Visit) -> None:
    """From its sizes: 4,096 channels, 8 of 32 heads of 128 for keys and values, 14,336 within the network."""
    page = visit(ready=False)
    said = page.evaluate("async () => (await import('/js/tour_texts.js')).TOUR")
    dim, hidden, shared = 4096, 14336, 8 * 128
    ratio = 3 * dim * hidden / (2 * dim * dim + 2 * dim * shared)
    for column in (0, 1):
        assert f"{2 * dim:,}" in said["norm"]["right"][column]
        assert f"{ratio:.1f}" in said["ffn"]["right"][column] and "8/3" in said["ffn"]["right"][column]
    assert 3 * 8 / 3 == 2 * 4, "matrices times width, with a gate and without"


# --- small screens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_overlaps_on_a_phone(visit: Visit, language: str) -> None:
    page = visit(f"{AT}&l={language}&s=t1,k9", viewport={"width": 360, "height": 800})
    for view in ("prompt", "growth", "heads", "lens", "sampling", "cache", "compare"):
        page.evaluate(f"async () => (await import('/js/store.js')).set({{view: '{view}'}})")
        settled(page)
        wide = page.evaluate(
            """() => ['html', '#middle', '#view-other', '#right'].map((at) => document.querySelector(at))
            .filter((e) => e.scrollWidth > e.clientWidth).map((e) => `${e.tagName} ${e.scrollWidth}`)"""
        )
        assert wide == [], view


def test_the_lens_is_legible_on_a_phone(visit: Visit) -> None:
    page = visit(f"{AT}&v=lens&s=t0", viewport={"width": 360, "height": 800})
    page.wait_for_selector(".lens-big .lens-row.decided")
    settled(page)
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.lens-big .lens-row')].map((row) => [...row.children]
        .filter((e) => e.offsetParent).map((e) => { const range = document.createRange();
        range.selectNodeContents(e); const ink = range.getBoundingClientRect();
        return [e.innerText, Math.round(e.getBoundingClientRect().left), Math.round(ink.right),
        Math.round(e.getBoundingClientRect().width)]; }))"""
    )
    assert [one[0] for one in boxes[0]][2:] == ["1st choice", "2", "3"]
    for row in boxes:
        assert len(row) == 5
        for (text, _, end, _), (_, begins, _, _) in pairwise(row):
            assert end <= begins + 1, f"{text} runs into what follows"
        assert all(width > 60 for _, _, _, width in row[2:])


def test_stages_are_explained_in_full_width_on_a_phone(visit: Visit) -> None:
    page = visit(f"{AT}&v=sampling&s=t1,k9", viewport={"width": 360, "height": 800})
    page.wait_for_selector(".stage-card")
    settled(page)
    widths = page.evaluate(
        "() => [...document.querySelectorAll('.stage-card > :last-child')].map((e) => e.clientWidth)"
    )
    assert len(widths) == 4 and min(widths) > 280

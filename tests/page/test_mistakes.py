"""What the page does with mistakes: in a link, in a window's fields, in a prompt; and with a small window."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from glassgear.serve.models import Models
from tests.page.conftest import PROMPT, settled
from tests.page.test_page import CHIPS, Visit, state, texts, wait_until
from tests.serve.conftest import language_model

AT = f"#m=stories260K&p={quote(PROMPT)}"
TOO_LONG = "word " * 2000


# --- links ------------------------------------------------------------------------------------------


def test_unknown_view_and_language_in_a_link_are_left_out(visit: Visit) -> None:
    page = visit(f"{AT}&v=bogus&l=fr")
    assert state(page, "view") == "value" and state(page, "language") == "en"
    page.evaluate("location.hash = '#m=stories260K&p=hi&v=nothing'")
    wait_until(page, lambda: bool(state(page, "prompt") == "hi"))
    settled(page)
    assert state(page, "view") == "value"


# --- comparisons ------------------------------------------------------------------------------------


def test_prompts_are_compared_where_they_end(visit: Visit) -> None:
    page = visit(f"#m=stories260K&p={quote('Tom had a red ball.')}")
    page.click("#compare-open")
    page.fill("#other-prompt", "Tom had a blue ball.")
    page.click("#other-run")
    page.wait_for_selector(".matrix button")
    settled(page)
    found = state(page, "comparison")
    assert found["token"] == len(texts(page)) - 1
    assert found["other_token"] == len(state(page, "other")["ids"]) - 1
    assert found["logits"]["kl"] > 0
    assert page.locator("#view-other .terms tbody tr").count() == 10
    assert "Compared at" in page.inner_text("#view-other")


def test_other_vocabularies_are_said_and_shown_side_by_side(visit: Visit, stories: Models) -> None:
    stories.add("small", language_model("llama"))
    page = visit("#m=stories260K&p=1+2+3")
    page.click("#compare-open")
    page.fill("#other-model", "small")
    page.click("#other-run")
    page.wait_for_selector("#view-other .two")
    settled(page)
    assert "other vocabularies" in page.inner_text("#view-other")
    assert page.locator("#view-other .two .terms tr").count() == 16
    assert "can't be compared number by number" in page.inner_text("#view-other .notice")
    assert page.locator("#view-other .matrix").count() == 0


# --- windows ----------------------------------------------------------------------------------------


def test_change_says_which_layers_and_heads_there_are(story: Any) -> None:
    story.click("#change-open")
    story.fill("#change-layer", "99")
    story.click("#change-apply")
    assert "layers 0 to 4" in story.inner_text("dialog .notice")
    story.fill("#change-layer", "1")
    story.fill("#change-head", "77")
    story.click("#change-add")
    assert "heads 0 to 7" in story.inner_text("dialog .notice")
    assert story.locator(".list-of-changes li").count() == 0
    story.fill("#change-head", "7")
    story.click("#change-apply")
    story.wait_for_selector(".other .chip")
    wait_until(story, lambda: bool(story.locator("dialog").count() == 0))


def test_model_that_is_not_there_is_said_in_the_window(visit: Visit) -> None:
    page = visit(AT, quiet=False)
    page.click("#compare-open")
    page.fill("#other-model", "storys260K")
    page.fill("#other-prompt", "Another prompt")
    page.click("#other-run")
    page.wait_for_selector("dialog .notice:not([hidden])")
    assert "storys260K" in page.inner_text("dialog .notice")
    assert page.input_value("#other-prompt") == "Another prompt"
    assert state(page, "other") is None


# --- runs that fail ---------------------------------------------------------------------------------


def test_values_of_the_text_before_are_marked(visit: Visit) -> None:
    page = visit(AT, quiet=False)
    page.fill("#prompt", TOO_LONG)
    page.press("#prompt", "Enter")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "tokens" in page.inner_text("#trouble") and PROMPT in page.inner_text("#trouble")
    assert page.locator("body.stale").count() == 1 and page.locator("body.running").count() == 0
    page.click("#step")
    wait_until(page, lambda: len(state(page, "ids")) > state(page, "promptLength"))
    settled(page)
    assert page.locator("body.stale").count() == 1, "a step of the older text doesn't make it the new one"
    page.click("#trouble .primary")
    page.wait_for_selector("#trouble", state="hidden")
    settled(page)
    assert page.input_value("#prompt") == PROMPT and page.locator("body.stale").count() == 0
    page.fill("#prompt", "The dog")
    page.press("#prompt", "Enter")
    page.wait_for_function(f"() => document.querySelectorAll('{CHIPS}').length < 6")
    assert page.locator("#trouble:not([hidden])").count() == 0


def test_older_values_are_dimmed_while_a_prompt_runs(story: Any) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    story.route("**/api/runs", hold)
    story.fill("#prompt", "The dog")
    story.press("#prompt", "Enter")
    story.wait_for_selector("body.running")
    wait_until(story, lambda: bool(held))
    held[0].continue_()
    story.wait_for_function("() => !document.body.classList.contains('running')")
    story.unroute("**/api/runs")


@pytest.mark.parametrize("width", [1280, 700])
def test_long_messages_stay_within_the_window(visit: Visit, width: int) -> None:
    page = visit(AT, quiet=False, viewport={"width": width, "height": 700})
    said = "a long sentence " * 60 + "x" * 900
    page.route("**/step", lambda route: route.fulfill(status=400, json={"error": said}))
    page.click("#step")
    page.wait_for_selector("#trouble:not([hidden])")
    assert page.get_attribute("#status", "title") == said
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.click("#trouble button")
    page.wait_for_selector("#trouble", state="hidden")


def test_play_is_off_where_a_step_is(visit: Visit) -> None:
    page = visit("#m=worked-example")
    assert page.locator("#play").is_disabled() == page.locator("#step").is_disabled() is True
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    settled(page)
    assert not state(page, "playing") and page.locator("#status.bad").count() == 0


# --- the tour, sizes, words -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["Escape", "✕", "button"])
def test_leaving_the_tour_at_the_example_brings_everything_back(visit: Visit, way: str) -> None:
    page = visit(f"{AT}&u=activation")
    page.click("#tour nav .primary")
    page.wait_for_selector("#explain:not([hidden]) .number")
    assert state(page, "model") == "worked-example"
    page.evaluate("document.activeElement.blur()")
    if way == "Escape":
        page.keyboard.press("Escape")
    else:
        page.click("#tour nav .icon" if way == "✕" else "#tour-open")
    wait_until(page, lambda: bool(state(page, "model") == "stories260K"))
    settled(page)
    assert page.input_value("#prompt") == PROMPT and state(page, "tour") == ""
    assert "".join(texts(page)).endswith(PROMPT)


@pytest.mark.parametrize("size", [(800, 600), (600, 900)])
def test_small_windows_open_at_the_top(visit: Visit, size: tuple[int, int]) -> None:
    page = visit(AT, viewport={"width": size[0], "height": size[1]})
    settled(page)
    assert page.evaluate("scrollY") == 0
    assert page.locator(".bar").bounding_box()["y"] == 0
    lefts = [page.locator(f"#{name}").bounding_box()["x"] for name in ("left", "middle", "right")]
    assert lefts == [0, 0, 0], "one column"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_models_of_stories_begin_with_one(visit: Visit, stories: Models) -> None:
    stories.add("tiny-stories", stories.entries["stories260K"].model)
    page = visit("#m=tiny-stories")
    assert page.input_value("#prompt") == "Once upon a time, Lily had a red ball. One day"
    page.select_option("#model", "stories260K")
    wait_until(page, lambda: bool(state(page, "model") == "stories260K"))
    settled(page)
    assert page.input_value("#prompt") == "The cat sat on the mat because it"


def test_one_token_is_one_token_and_formulas_are_plain(visit: Visit) -> None:
    page = visit("#m=worked-example&p=" + quote("西安"))
    assert len(texts(page)) == 1
    assert "1 token" in page.inner_text("#text header") and "1 tokens" not in page.inner_text("body")
    page.evaluate("async () => (await import('/js/store.js')).set({gear: ''})")
    settled(page)
    formula = page.inner_text("#gear-card .formula")
    assert "context" in formula and "`" not in formula

"""What was chosen is done: changes, comparisons of two vocabularies, exports, links without a model."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from glassgear.serve.models import Models
from tests.page.conftest import PROMPT, settled
from tests.page.test_page import Visit, state, texts, wait_until

AT = f"#m=stories260K&p={quote(PROMPT)}"
SHIPPED = "tiny-stories"  # comes with the package, with a vocabulary of its own
IN_VIEW = """(at) => { const box = document.querySelector(at).getBoundingClientRect();
    return [Math.round(box.top), Math.round(innerHeight - box.top)]; }"""


def apart(page: Any, a: dict[str, Any], b: dict[str, Any]) -> Any:
    return page.evaluate(
        f"async () => (await import('/js/apart.js')).apart({json.dumps(a)}, {json.dumps(b)})"
    )


def one_run(model: str, prompt: str, *tokens: str) -> dict[str, Any]:
    """A run as the page keeps it; a token in brackets is a control token, one in <AB> a byte."""
    special = [token.startswith("[") for token in tokens]
    return {"model": model, "prompt": prompt, "ids": [*range(len(tokens))], "texts": list(tokens),
            "bytes": [], "special": special}  # fmt: skip


# --- changes ----------------------------------------------------------------------------------------


def test_a_second_choice_is_run_too(story: Any) -> None:
    story.click("#change-open")
    story.fill("#change-layer", "1")
    story.click("#change-apply")
    wait_until(story, lambda: bool(state(story, "comparison")))
    story.wait_for_selector("dialog", state="detached")
    story.click("#change-open")
    assert story.locator(".list-of-changes li").count() == 1, "what isn't touched isn't added"
    story.select_option("#change-kind", "zero_layer")
    story.fill("#change-layer", "2")
    assert "Layer 2 off" in story.inner_text(".list-of-changes .chosen")
    story.click("#change-apply")
    story.wait_for_selector("dialog", state="detached")
    wait_until(story, lambda: bool(state(story, "comparison")))
    settled(story)
    assert [c["path"] for c in state(story, "changes")] == ["blocks.1.attention", "blocks.2"]
    assert "Layer 2 off" in story.inner_text(".other h3") and "head 0 off" in story.inner_text(".other h3")
    story.click("#change-open")
    story.select_option("#change-kind", "zero_ffn")
    story.click(".list-of-changes .chosen button")
    story.click("#change-apply")
    story.wait_for_selector("dialog", state="detached")
    settled(story)
    assert len(state(story, "changes")) == 2, "what was taken back isn't run"


def test_what_a_change_left_equal_is_not_marked(story: Any) -> None:
    story.click("#change-open")
    story.fill("#change-layer", "0")
    story.click("#change-apply")
    story.wait_for_selector(".machine .node.changed")
    settled(story)
    marked = story.evaluate(
        "() => [...document.querySelectorAll('.machine .node.changed')].map((node) => node.dataset.value)"
    )
    differ = {g["path"] for g in state(story, "comparison")["gears"] if g["difference"] != 0}
    assert "blocks.0.attention.mixed" in marked and set(marked) <= differ
    assert not [path for path in marked if path.endswith(("query", "key", "scores", "weights", "rotated"))]


# --- two vocabularies -------------------------------------------------------------------------------


def test_equal_texts_of_two_vocabularies_are_equal(
    visit: Visit, stories: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stories, "options", {})  # its own tokenizer
    stories.entries.pop(SHIPPED, None)  # another test may have loaded something under its name
    loaded = stories.load(SHIPPED)
    page = visit(f"#m={loaded.name}&p={quote(PROMPT)}")
    page.click("#compare-open")
    page.fill("#other-model", "stories260K")
    page.click("#other-run")
    page.wait_for_selector("#view-other .two")
    settled(page)
    assert state(page, "other")["ids"] != state(page, "ids"), "an id stands for another text"
    assert "Same text so far." in page.inner_text("#view-other")
    assert page.locator(".other .chip.differs").count() == 0
    page.click("#compare-open")
    page.fill("#other-prompt", PROMPT.replace("girl", "boy"))
    page.fill("#other-model", "stories260K")
    page.click("#other-run")
    page.wait_for_selector(".other .chip.differs")
    page.wait_for_selector("#view-other .two")
    settled(page)
    first = page.evaluate("async () => { const {state} = await import('/js/store.js'); let text = '';"
        "return state.texts.findIndex((one, i) => { text += state.special[i] ? '' : one;"
        "return text.trimStart().length > 'Once upon a time, there was a little '.length; }); }")  # fmt: skip
    assert f"part at token {first}." in page.inner_text("#view-other")


def test_texts_are_compared_byte_by_byte(visit: Visit) -> None:
    page = visit(ready=False)
    plain = one_run("a", "西 b", "<E8><A5>", "<BF>", " b")
    marked = one_run("b", "西 b", "[BOS]", " 西", " ", "b")
    assert apart(page, plain, marked) == {"first": -1, "differs": [False] * 4}
    assert apart(page, plain, one_run("b", "西 c", "[BOS]", "西 ", "c")) == {
        "first": 2,
        "differs": [False, False, True],
    }
    assert apart(page, plain, one_run("b", "西", "西"))["first"] == 2, "another prompt that ends earlier"
    assert apart(page, plain, one_run("b", "西 b", "西"))["first"] == -1, (
        "the same, whose text is shorter so far"
    )
    assert apart(page, one_run("a", " x", " x"), one_run("b", "x", " x"))["first"] == 0, (
        "a typed space counts"
    )
    same = one_run("a", "x", "x", "y"), one_run("a", "x", "x", "z") | {"ids": [0, 7]}
    assert apart(page, *same) == {"first": 1, "differs": [False, True]}


# --- one column, tooltips ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(800, 600), (1280, 800)])
def test_what_was_chosen_comes_into_view(visit: Visit, size: tuple[int, int]) -> None:
    page = visit(AT, viewport={"width": size[0], "height": size[1]})
    page.evaluate("document.querySelector('#views [data-view=sampling]').click()")
    page.wait_for_selector(".stage-card")
    settled(page)
    if size[0] > 820:
        assert page.evaluate("scrollY") == 0
        return
    top, below = page.evaluate(IN_VIEW, "#middle")
    assert abs(top) <= 1 and below > 590
    page.evaluate("scrollTo(0, 0)")
    page.click("#tour-open")
    page.wait_for_selector("#tour:not([hidden])")
    wait_until(page, lambda: bool(page.evaluate(IN_VIEW, "#tour")[1] > 400))


def test_the_tabs_word_is_gone_after_a_click(visit: Visit) -> None:
    page = visit(AT)
    page.hover("#views [data-view=lens]")
    page.wait_for_selector("#tip:not([hidden])")
    page.click("#views [data-view=lens]")
    page.wait_for_selector(".lens-big .lens-row.decided")
    settled(page)
    page.wait_for_timeout(1500)  # longer than the rest that a tab's word waits for
    assert page.locator("#tip").is_hidden()
    page.mouse.move(640, 700)
    page.hover("#views [data-view=lens]")
    page.wait_for_selector("#tip:not([hidden])")


# --- a link without its model -----------------------------------------------------------------------


def test_unknown_model_in_a_link_offers_others(visit: Visit) -> None:
    page = visit("#m=nonesuch&p=hello", quiet=False)
    page.wait_for_selector("#trouble:not([hidden])")
    for name in ("step", "play", "back", "tour-open", "change-open", "compare-open"):
        assert page.locator(f"#{name}").is_disabled(), name
    page.keyboard.press("t")
    page.evaluate("async () => (await import('/js/tour.js')).go('tokens')")
    wait_until(page, lambda: bool(state(page, "tour") == ""))
    assert page.locator("#trouble button", has_text="Another model").count() == 1
    page.click("#trouble .primary")
    wait_until(page, lambda: bool(state(page, "run")))
    settled(page)
    assert page.input_value("#prompt") == "hello" and "".join(texts(page)).endswith("hello")
    assert page.locator("#trouble").is_hidden() and page.locator("#tour").is_hidden()
    assert page.locator("#step").is_enabled() and page.locator("#tour-open").is_enabled()


# --- the example's end, bars, exports ---------------------------------------------------------------


def test_leaving_the_example_after_a_reload_shows_the_open_layer(visit: Visit) -> None:
    page = visit(f"{AT}&g=blocks.3.ffn&w=blocks.3.ffn.up&u=activation")
    page.click("#tour nav .primary")
    page.wait_for_selector("#explain:not([hidden]) .number")
    settled(page)  # it is in the address
    page.reload()
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("#explain:not([hidden]) .number")
    page.keyboard.press("Escape")
    wait_until(page, lambda: bool(state(page, "model") == "stories260K"))
    settled(page)
    wait_until(page, lambda: page.locator(".machine .node.selected").count() == 1)
    assert state(page, "value").startswith(f"blocks.{state(page, 'open')}.")


def test_all_bars_are_shown_where_they_fit(visit: Visit) -> None:
    page = visit(f"{AT}&g=blocks.0.ffn&w=blocks.0.ffn.up")  # 172 channels
    page.wait_for_selector("#detail:not([hidden])")
    page.evaluate(
        """() => { window.said = []; const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
        if (this.canvas.closest('#detail')) window.said.push(text);
        return write.call(this, text, ...at); }; }"""
    )
    page.keyboard.press("ArrowLeft")
    wait_until(page, lambda: any("channel 0 to" in text for text in page.evaluate("window.said")))
    title = next(text for text in page.evaluate("window.said") if "channel 0 to" in text)
    assert title.endswith("channel 0 to 171")
    page.evaluate("window.said = []")
    page.set_viewport_size({"width": 930, "height": 800})  # too narrow for two pixels each
    wait_until(page, lambda: any("channel 0 to" in text for text in page.evaluate("window.said")))
    settled(page)
    title = page.evaluate("window.said.filter((text) => text.includes('channel 0 to')).at(-1)")
    shown = (page.locator("#detail canvas").bounding_box()["width"] - 66) / 172
    assert (" of 172" in title) == (shown < 2)


@pytest.mark.parametrize("view", ["lens", "heads", "sampling", "growth"])
def test_a_view_exports_what_it_shows(visit: Visit, view: str) -> None:
    page = visit(f"{AT}&v={view}")
    name = {"sampling": "candidates"}.get(view, view)
    wait_until(page, lambda: bool(state(page, name)))
    settled(page)
    page.click("#export-open")
    assert page.locator("#export_png").count() == page.locator("#export_trace").count() == 0
    with page.expect_download() as download:
        page.click("#export_json")
    assert download.value.suggested_filename == f"glassgear-{view}.json"
    data = json.loads(download.value.path().read_bytes())
    assert data[name] == state(page, name) and data["token"] == state(page, "token")

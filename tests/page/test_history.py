"""Back and Forward, what a reload keeps, what is said of a prompt, words of the trade, and large windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.page.conftest import PROMPT, READY, settled
from tests.page.test_page import cell, state, texts, wait_for_tokens, wait_until

Visit = Callable[..., Any]
AT = f"#m=stories260K&p={quote(PROMPT)}&s=t0"


def entries(page: Any) -> int:
    """How many entries the history has."""
    settled(page)
    return int(page.evaluate("history.length"))


def choose(page: Any, path: str) -> None:
    """Click a gear of the drawing and wait until the address says so."""
    page.click(f"#machine .node[data-value='{path}']")
    page.wait_for_function(f"() => location.hash.includes('w={path}')")


def runs_asked(page: Any) -> list[str]:
    """Fills with the runs and steps that are asked of the server from now on."""
    asked: list[str] = []
    page.on(
        "request",
        lambda request: (
            asked.append(request.url)
            if request.method == "POST" and re.search(r"/runs(/\w+/(step|back))?(\?|$)", request.url)
            else None
        ),
    )
    return asked


# --- Back and Forward -------------------------------------------------------------------------------


def test_back_and_forward_step_through_what_was_clicked(story: Any) -> None:
    run, begun, asked = state(story, "run"), entries(story), runs_asked(story)
    choose(story, "blocks.0.ffn.down")
    choose(story, "blocks.0.attention.weights")
    story.click("#views [data-view=lens]")
    assert entries(story) == begun + 3
    for value, view in (("blocks.0.attention.weights", "value"), ("blocks.0.ffn.down", "value"),
                        ("embed", "value")):  # fmt: skip
        story.go_back()
        wait_until(story, lambda v=value, w=view: (state(story, "value"), state(story, "view")) == (v, w))  # type: ignore[misc]
    settled(story)
    for _ in range(3):
        story.go_forward()
        settled(story)
    assert (state(story, "value"), state(story, "view")) == ("blocks.0.attention.weights", "lens")
    assert story.locator("#views [data-view=lens]").get_attribute("aria-selected") == "true"
    assert entries(story) == begun + 3, "going through the entries makes none"
    assert asked == [] and state(story, "run") == run, "the model isn't run again"


def test_a_number_is_an_entry_and_back_closes_it(story: Any) -> None:
    choose(story, "blocks.0.ffn.down")
    settled(story)
    begun = entries(story)
    story.mouse.click(*cell(story, "#heat", 3, 17))
    story.wait_for_selector("#explain:not([hidden]) .number")
    assert entries(story) == begun + 1
    story.locator("#explain [data-follow]").first.click()
    wait_until(story, lambda: story.locator("#explain .trail button").count() == 2)
    assert entries(story) == begun + 2
    trail = [(n["path"], n["index"]) for n in state(story, "numbers")]
    story.go_back()
    wait_until(story, lambda: [(n["path"], n["index"]) for n in state(story, "numbers")] == trail[:1])
    story.go_back()
    story.wait_for_selector("#explain", state="hidden")
    settled(story)
    assert state(story, "index") == [] and state(story, "value") == "blocks.0.ffn.down"
    story.go_forward()
    story.wait_for_selector("#explain:not([hidden]) .number")
    settled(story)
    story.go_forward()
    wait_until(story, lambda: [(n["path"], n["index"]) for n in state(story, "numbers")] == trail)
    assert entries(story) == begun + 2


def test_a_number_whose_explanation_is_slow_is_an_entry_too(story: Any) -> None:
    choose(story, "blocks.0.ffn.down")
    settled(story)
    begun = entries(story)

    def late(route: Any) -> None:
        story.wait_for_timeout(1000)
        route.continue_()

    story.route("**/explain?*", late)
    for count, channel in enumerate((17, 20), 1):
        story.mouse.click(*cell(story, "#heat", 3, channel))
        wait_until(story, lambda c=channel: [n["index"] for n in state(story, "numbers")] == [[c]])  # type: ignore[misc]
        assert entries(story) == begun + count
    story.unroute("**/explain?*")
    story.go_back()
    wait_until(story, lambda: [n["index"] for n in state(story, "numbers")] == [[17]])
    story.go_back()
    story.wait_for_selector("#explain", state="hidden")
    settled(story)
    assert state(story, "index") == []


def test_steps_sliders_and_words_make_no_entry(story: Any) -> None:
    begun, count = entries(story), len(texts(story))
    story.click("#step")
    wait_for_tokens(story, count + 1)
    story.locator("#s-top_k").fill("20")
    story.locator("#s-top_k").press("ArrowRight")
    story.fill("#prompt", "The dog")
    story.evaluate("document.activeElement.blur()")
    story.keyboard.press("ArrowLeft")
    story.locator("#text > .chips .chip").nth(2).hover()
    story.click("#play")
    story.wait_for_function(f"() => document.querySelectorAll('#text > .chips .chip').length >= {count + 3}")
    story.click("#play")
    assert entries(story) == begun
    assert "k21" in story.evaluate("location.hash"), "the address follows all the same"
    wait_until(story, lambda: f"n={len(texts(story)) - count}" in story.evaluate("location.hash"))


def test_walking_over_a_picture_makes_no_entry(story: Any) -> None:
    begun = entries(story)
    story.locator("#heat canvas").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "PageDown"):
        story.keyboard.press(key)
        settled(story)  # it is in the address
    assert entries(story) == begun and state(story, "index") == [63]


def test_back_keeps_the_tokens_made_since(story: Any) -> None:
    count = len(texts(story))
    choose(story, "blocks.0.ffn.down")
    story.click("#step")
    wait_for_tokens(story, count + 1)
    settled(story)
    made = texts(story)
    story.go_back()
    wait_until(story, lambda: state(story, "value") == "embed")
    settled(story)
    assert texts(story) == made and state(story, "token") == count - 1


def test_the_same_choice_twice_is_one_entry(story: Any) -> None:
    choose(story, "blocks.0.ffn.down")
    begun = entries(story)
    story.click("#machine .node[data-value='blocks.0.ffn.down']")
    story.click("#views [data-view=value]")
    assert entries(story) == begun


def test_back_to_another_prompt_runs_it_again(story: Any) -> None:
    begun, first = entries(story), texts(story)
    story.fill("#prompt", "The dog")
    story.press("#prompt", "Enter")
    story.wait_for_function("() => location.hash.includes('p=The+dog')")
    assert entries(story) == begun + 1
    story.go_back()
    wait_until(story, lambda: texts(story) == first)
    settled(story)
    assert story.input_value("#prompt") == PROMPT
    story.go_forward()
    wait_until(story, lambda: "".join(texts(story)).endswith("The dog"))
    assert entries(story) == begun + 1


def test_back_takes_a_change_away_and_forward_makes_it_again(story: Any) -> None:
    asked = runs_asked(story)
    story.click("#change-open")
    story.select_option("#change-kind", "zero_head")
    story.click("#change-apply")
    story.wait_for_selector(".other .chip")
    story.wait_for_function("() => location.hash.includes('x=')")
    settled(story)
    run, label = state(story, "run"), story.inner_text(".other h3")
    story.go_back()
    story.wait_for_selector(".other", state="detached")
    settled(story)
    assert state(story, "changes") == [] and state(story, "view") == "value"
    story.go_forward()
    story.wait_for_selector(".other .chip")
    wait_until(story, lambda: state(story, "view") == "compare")
    settled(story)
    assert story.inner_text(".other h3") == label and state(story, "run") == run
    assert sum(url.endswith("/runs") for url in asked) == 2, "the changed run alone is made again"


def test_back_goes_through_the_pages_of_the_tour(visit: Visit) -> None:
    page = visit(f"{AT}&u=ffn")
    begun = entries(page)
    for title in ("Activation", "By hand", "The stack"):
        page.click("#tour nav .primary")
        wait_until(page, lambda t=title: page.inner_text("#tour h2").startswith(t))  # type: ignore[misc]
        if title == "By hand":  # it opens a model and an explanation
            page.wait_for_selector("#explain:not([hidden]) .number")
        settled(page)
    assert entries(page) == begun + 3, "a page of the tour is one entry, whatever it opens"
    page.go_back()
    wait_until(page, lambda: state(page, "model") == "worked-example" and state(page, "tour") == "worked")
    page.wait_for_selector("#explain:not([hidden]) .number")
    page.go_back()
    wait_until(page, lambda: state(page, "model") == "stories260K" and state(page, "tour") == "activation")
    wait_until(page, lambda: page.input_value("#prompt") == PROMPT)
    assert entries(page) == begun + 3


def test_an_address_typed_by_hand_is_followed(story: Any) -> None:
    story.evaluate("location.hash = '#m=stories260K&p=The+dog&w=blocks.1.ffn.down&n=2&s=t0'")
    wait_until(story, lambda: len(state(story, "ids")) == state(story, "promptLength") + 2)
    settled(story)
    assert "".join(texts(story)).replace("<s>", "").strip().startswith("The dog")
    assert state(story, "value") == "blocks.1.ffn.down"
    story.go_back()
    wait_until(story, lambda: "".join(texts(story)).endswith(PROMPT))


def test_the_link_to_the_values_changes_nothing(story: Any) -> None:
    settled(story)
    link = story.evaluate("location.hash")
    story.evaluate("document.querySelector('.skip').click()")
    assert story.evaluate("document.activeElement.id") == "middle"
    assert story.evaluate("location.hash") == link


# --- the worked example after a reload --------------------------------------------------------------


def test_leaving_the_example_after_a_reload_brings_the_prompt_back(visit: Visit) -> None:
    page = visit("#m=stories260K&p=The+dog+ran&s=t0&u=activation")
    page.click("#tour nav .primary")
    page.wait_for_selector("#explain:not([hidden]) .number")
    page.wait_for_function("() => location.hash.includes('u=worked')")
    settled(page)
    page.reload()
    page.wait_for_selector(READY)
    assert state(page, "model") == "worked-example" and state(page, "tour") == "worked"
    page.click("#tour nav .icon")
    wait_until(page, lambda: bool(state(page, "model") == "stories260K"))
    settled(page)
    assert page.input_value("#prompt") == "The dog ran"
    assert "".join(texts(page)).endswith("The dog ran")


@pytest.mark.parametrize("kept", ["{", "null", '{"model": 3}', '{"model": "stories260K"}'])
def test_what_was_kept_may_be_broken(visit: Visit, kept: str) -> None:
    page = visit(ready=False)
    page.evaluate("(text) => sessionStorage.setItem('glassgear left', text)", kept)
    assert page.evaluate("async () => (await import('/js/kept.js')).keptPlace()") is None
    page.wait_for_selector(READY)


# --- control tokens in a prompt ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "says"), [("en", "read as plain text, not as control tokens"), ("zh", "按普通文本读取")]
)
def test_a_spelt_control_token_is_said_to_be_text(visit: Visit, language: str, says: str) -> None:
    page = visit(f"#m=stories260K&p={quote('Tom </s> ran')}&s=t0&l={language}")
    settled(page)
    line = page.locator("#prompt-said")
    assert line.is_visible() and says in line.inner_text() and "</s>" in line.inner_text()
    assert state(page, "special")[1:] == [False] * (len(state(page, "ids")) - 1), "it is text indeed"
    below = page.locator("#prompt").bounding_box()
    assert 0 <= line.bounding_box()["y"] - below["y"] - below["height"] <= 12, "it stands under the prompt"
    page.click("#step")
    settled(page)
    assert line.is_visible(), "and stays while the text goes on"
    page.click("#language")
    wait_until(page, lambda: says not in line.inner_text())
    page.fill("#prompt", "Tom ran")
    page.press("#prompt", "Enter")
    wait_until(page, lambda: not line.is_visible())


def test_a_plain_prompt_has_no_line(story: Any) -> None:
    assert not story.locator("#prompt-said").is_visible()


# --- words of the trade -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "view", "says"),
    [
        (".stage-card [data-term=top_p]", "sampling", ("add up to p", "合计达到 p")),
        (".terms [data-term=logit]", "sampling", ("softmax", "softmax")),
        ("#s-min_p", "value", ("as probable as the best", "最高者")),
        ("#views [data-view=growth]", "value", ("all layers", "所有层")),
        ("#views [data-view=lens]", "value", ("as if it were the last", "最后一层")),
        ("#ledger [data-term=gqa]", "value", ("grouped-query", "分组查询")),
    ],
)
def test_words_of_the_trade_are_explained(visit: Visit, where: str, view: str, says: tuple[str, str]) -> None:
    page = visit(f"{AT}0.8&g=blocks.0.attention&w=blocks.0.attention.query&v={view}")
    page.wait_for_selector(where)
    settled(page)  # everything that is drawn anew when an answer comes has been
    for column in (0, 1):
        word = page.locator(where).first
        word.evaluate("(element) => element.scrollIntoView({block: 'center'})")
        word.hover()
        wait_until(page, lambda c=column: says[c] in page.inner_text("#tip"))  # type: ignore[misc]
        box = page.locator("#tip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 800
        page.mouse.move(500, 780)
        page.wait_for_selector("#tip", state="hidden")
        page.click("#language")
        settled(page)


def test_a_word_is_explained_at_the_keyboards_focus(visit: Visit) -> None:
    page = visit(f"{AT}&g=blocks.0.attention_norm&w=blocks.0.attention_norm")
    settled(page)  # what is drawn anew loses the focus
    page.keyboard.press("Tab")  # from here on the focus is the keyboard's
    word = page.locator("#gear-card [data-term=rmsnorm]")
    word.focus()
    page.wait_for_selector("#tip:not([hidden])")
    assert page.inner_text("#tip").startswith("RMSNorm") and word.get_attribute("aria-describedby") == "tip"
    page.keyboard.press("Escape")
    page.wait_for_selector("#tip", state="hidden")


def test_the_divergence_of_two_runs_is_explained(story: Any) -> None:
    story.click("#change-open")
    story.select_option("#change-kind", "zero_head")
    story.click("#change-apply")
    story.wait_for_selector("#view-other [data-term=kl]")
    settled(story)
    story.locator("#view-other [data-term=kl]").hover()
    wait_until(story, lambda: "0 means that they are the same" in story.inner_text("#tip"))


def test_every_marked_word_has_its_sentence(visit: Visit) -> None:
    page = visit(f"{AT}0.8&g=blocks.0.attention&v=sampling")
    page.wait_for_selector(".stage-card")
    settled(page)
    marked = set(page.evaluate("[...document.querySelectorAll('[data-term]')].map((e) => e.dataset.term)"))
    table = page.evaluate("async () => (await import('/js/texts.js')).table")
    assert len(marked) >= 9 and all(f"term_{name}" in table for name in marked)


# --- large windows ----------------------------------------------------------------------------------


def test_pictures_fill_a_large_window(visit: Visit) -> None:
    page = visit(f"{AT}&w=blocks.2.attention.weights", viewport={"width": 1920, "height": 1080})
    page.wait_for_selector("#attention:not([hidden])")
    settled(page)
    box = page.locator("#attention canvas").first.bounding_box()
    first, last = cell(page, "#attention", 0, 0), cell(page, "#attention", 12, 12)
    size = (last[1] - first[1]) / 12
    assert size > 50 and last[1] + size / 2 > box["y"] + 0.93 * box["height"]
    page.click("#machine .node[data-value='blocks.2.ffn.activated']")
    page.wait_for_selector("#heat:not([hidden])")
    settled(page)
    plane = page.locator("#heat").bounding_box()
    assert cell(page, "#heat", 12, 0)[1] > plane["y"] + 0.93 * plane["height"]
    assert page.locator("#detail").bounding_box()["height"] > 180
    columns = [page.locator(f"#{name}").bounding_box()["width"] for name in ("left", "middle", "right")]
    assert columns[0] > 340 and columns[1] > 1050 and columns[2] > 410
    page.click("#views [data-view=lens]")
    settled(page)
    words = page.locator("#view-other .view-intro")
    letters = page.evaluate("""() => { const p = document.querySelector('#view-other .view-intro');
        const probe = p.appendChild(document.createElement('span')); probe.textContent = '0';
        const wide = probe.getBoundingClientRect().width; probe.remove(); return p.clientWidth / wide; }""")
    assert words.is_visible() and letters <= 97, "lines of words stay short enough to read"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_line_under_the_prompt_fits_small_windows(visit: Visit, language: str) -> None:
    link = f"#m=stories260K&p={quote('Tom </s> ran <s> to <unk> ' * 4)}&l={language}"
    page = visit(link, viewport={"width": 800, "height": 600})
    settled(page)
    assert page.locator("#prompt-said").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

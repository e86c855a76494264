"""What goes with the chosen token, what a link says of a second run, and that a clicked token is an entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from glassgear.lab.experiments.worked_example import TOKENS
from tests.page.conftest import PROMPT, READY, settled
from tests.page.test_history import AT, choose, entries, runs_asked
from tests.page.test_page import CHIPS, cell, state, texts, value, wait_for_tokens, wait_until

Visit = Callable[..., Any]
DOWN = "blocks.0.ffn.down"
OTHER = PROMPT.replace("girl", "boy")


def click_token(page: Any, i: int) -> None:
    """Click a token of the text at the right."""
    page.locator(CHIPS).nth(i).click()


def explained(page: Any) -> list[tuple[str, int, list[int]]]:
    """The numbers of the trail, by path, token and index."""
    return [(n["path"], n["token"], n["index"]) for n in state(page, "numbers")]


def shows(page: Any, path: str, token: int, index: int) -> None:
    """Wait for the explanation of this number and compare it with what the server has of the run."""
    wait_until(page, lambda: explained(page) == [(path, token, [index])])
    wanted = page.evaluate(
        f"async () => (await import('/js/format.js')).exact({value(page, path, token, index)})"
    )
    wait_until(page, lambda: page.locator("#explain .number").get_attribute("title") == wanted)
    word = texts(page)[token].strip()
    assert word in page.inner_text("#explain .trail"), "the title names the token"


def said(page: Any) -> dict[str, list[str]]:
    """What the address says, when it has settled."""
    settled(page)
    return parse_qs(page.evaluate("location.hash").removeprefix("#"), keep_blank_values=True)


@pytest.fixture
def number(visit: Visit) -> Any:
    """The page with the explanation of number 17 of the last token."""
    page = visit(f"{AT}&g=blocks.0.ffn&w={DOWN}&i=17")
    page.wait_for_selector("#explain:not([hidden]) .number")
    return page


# --- the explanation goes with the token ------------------------------------------------------------


def test_an_explanation_goes_with_the_token(number: Any) -> None:
    last = len(texts(number)) - 1
    shows(number, DOWN, last, 17)
    click_token(number, 2)
    shows(number, DOWN, 2, 17)
    number.keyboard.press("Escape")
    number.wait_for_selector("#explain", state="hidden")
    click_token(number, 4)
    settled(number)
    assert explained(number) == [], "what was closed stays closed"


def test_stepping_takes_the_explanation_along_without_an_entry(number: Any) -> None:
    last = len(texts(number)) - 1
    begun = entries(number)
    number.evaluate("document.activeElement.blur()")
    number.keyboard.press("ArrowLeft")
    shows(number, DOWN, last - 1, 17)
    number.click("#step")
    wait_for_tokens(number, last + 2)
    settled(number)
    shows(number, DOWN, state(number, "tokensRun") - 1, 17)
    number.click("#back")
    wait_for_tokens(number, last + 1)
    shows(number, DOWN, last, 17)
    assert entries(number) == begun


def test_inputs_fall_away_and_do_not_lead_back_to_the_old_token(number: Any) -> None:
    follow = number.locator("#explain [data-follow]").first
    follow.click()
    wait_until(number, lambda: len(explained(number)) == 2)
    wait_until(number, lambda: state(number, "value") == "blocks.0.ffn.product")
    begun = entries(number)
    number.evaluate("document.activeElement.blur()")
    number.keyboard.press("ArrowLeft")
    token = len(texts(number)) - 2
    shows(number, DOWN, token, 17)
    settled(number)
    assert (state(number, "value"), state(number, "index")) == (DOWN, [17])
    assert entries(number) == begun, "what falls away with a step is no choice"
    follow.click()
    wait_until(number, lambda: len(explained(number)) == 2)
    settled(number)
    assert state(number, "token") == token and explained(number)[1][1] == token


def test_a_crumb_of_the_trail_shows_where_its_number_lies(number: Any) -> None:
    last = len(texts(number)) - 1
    for level in (2, 3):
        number.locator("#explain [data-follow]").first.click()
        wait_until(number, lambda n=level: len(explained(number)) == n)  # type: ignore[misc]
    settled(number)
    (path, token, index), begun = explained(number)[1], entries(number)
    assert (state(number, "value"), state(number, "index")) != (path, index)
    number.locator("#explain .trail button").nth(1).click()
    wait_until(number, lambda: state(number, "value") == path)
    settled(number)
    assert (state(number, "token"), state(number, "index")) == (token, index)
    assert len(explained(number)) == 2
    number.locator("#explain .trail button").first.click()
    shows(number, DOWN, last, 17)
    settled(number)
    assert (state(number, "value"), state(number, "token"), state(number, "index")) == (DOWN, last, [17])
    assert entries(number) == begun + 2, "each crumb is one entry"


def test_a_crumb_leads_back_to_its_token(visit: Visit) -> None:
    page = visit(f"{AT}&w=blocks.0.attention.mixed&i=1,2")
    page.wait_for_selector("#explain:not([hidden]) .number")
    [(path, last, index)] = explained(page)
    inputs = page.locator("#explain [data-follow]")
    titles = [one.get_attribute("title") for one in inputs.all()]
    inputs.nth(next(i for i, title in enumerate(titles) if f"token {last} " not in title)).click()
    wait_until(page, lambda: len(explained(page)) == 2)
    settled(page)
    assert state(page, "token") == explained(page)[1][1] < last
    page.locator("#explain .trail button").first.click()
    wait_until(page, lambda: explained(page) == [(path, last, index)])
    settled(page)
    assert explained(page) == [(path, last, index)], "the token goes with it, and nothing else"
    assert (state(page, "value"), state(page, "token"), state(page, "index")) == (path, last, index)


def test_an_explanation_closes_where_there_is_no_such_number(visit: Visit) -> None:
    page = visit(f"{AT}&w=blocks.0.attention.weights&n=1", quiet=False)  # the browser tells of the refusal
    last = len(texts(page)) - 1
    page.evaluate(f"async () => (await import('/js/valueview.js')).explainAt({last}, [0, {last}])")
    page.wait_for_selector("#explain:not([hidden]) .number")
    page.click("#back")
    wait_for_tokens(page, last)
    page.wait_for_selector("#explain", state="hidden")
    assert explained(page) == []


# --- a link keeps the second run --------------------------------------------------------------------


def compare(page: Any, prompt: str, model: str = "") -> None:
    """Put a second run beside the first."""
    page.click("#compare-open")
    page.fill("#other-prompt", prompt)
    if model:
        page.fill("#other-model", model)
    page.click("#other-run")
    page.wait_for_selector(".other .chip")
    settled(page)


def beside(page: Any) -> tuple[str, str, list[int]]:
    """The second run: model, prompt and tokens."""
    return tuple(page.evaluate(
        "async () => { const { other } = (await import('/js/store.js')).state; "
        "return [other.model, other.prompt, other.ids]; }"
    ))  # fmt: skip


def test_a_link_keeps_the_second_prompt(story: Any, visit: Visit) -> None:
    compare(story, OTHER)
    link = said(story)
    assert link["q"] == [OTHER] and "b" not in link
    copy = visit(story.evaluate("location.hash"))
    copy.wait_for_selector(".matrix button")
    assert beside(copy) == beside(story) and copy.inner_text(".other h3") == story.inner_text(".other h3")
    story.reload()
    story.wait_for_selector(READY)
    assert beside(story) == beside(copy) and state(story, "view") == "compare"
    story.click(".other button.text")
    story.wait_for_selector(".other", state="detached")
    assert "q" not in said(story)


def test_a_link_keeps_the_second_model(story: Any, visit: Visit) -> None:
    compare(story, "".join(TOKENS), "worked-example")
    link = said(story)
    assert link["q"] == ["".join(TOKENS)] and link["b"] == ["worked-example"]
    copy = visit(story.evaluate("location.hash"))
    copy.wait_for_selector(".other .chip")
    assert beside(copy) == beside(story) and beside(copy)[0] == "worked-example"


def test_back_and_forward_bring_the_second_run(story: Any) -> None:
    asked, run, begun = runs_asked(story), state(story, "run"), entries(story)
    compare(story, OTHER)
    first = beside(story)
    compare(story, "The dog ran")
    second = beside(story)
    assert entries(story) == begun + 2
    story.go_back()
    wait_until(story, lambda: beside(story)[:2] == first[:2])
    settled(story)
    story.go_back()
    story.wait_for_selector(".other", state="detached")
    settled(story)
    assert state(story, "view") == "value"
    story.evaluate("history.go(2)")
    story.wait_for_selector(".other .chip")
    wait_until(story, lambda: beside(story) == second and state(story, "view") == "compare")
    assert state(story, "run") == run and sum(url.endswith("/runs") for url in asked) == 4
    assert entries(story) == begun + 2


def test_a_second_model_that_is_not_there_leaves_the_first_run(visit: Visit) -> None:
    page = visit(f"{AT}&v=lens&b=storys260K", quiet=False)
    page.wait_for_selector("#trouble:not([hidden])")
    settled(page)
    assert "storys260K" in page.inner_text("#trouble")
    assert state(page, "other") is None and state(page, "view") == "lens"
    assert "".join(texts(page)).endswith(PROMPT) and said(page)["b"] == ["storys260K"]


@pytest.mark.parametrize(
    ("second", "adds"),
    [
        ("{model: 'm', prompt: 'p'}", "&q=p"),
        ("{model: 'm', prompt: ''}", "&q="),
        ("{model: 'a/b', prompt: 'p'}", "&b=a%2Fb"),
        ("{model: 'n', prompt: 'x & y'}", "&q=x+%26+y&b=n"),
        ("null", ""),
    ],
)
def test_a_link_says_what_differs(visit: Visit, second: str, adds: str) -> None:
    page = visit(ready=False)
    link, read = page.evaluate(
        f"""async () => {{ const {{encode, decode}} = await import('/js/link.js');
        const link = encode({{model: 'm', prompt: 'p', second: {second}}});
        return [link, decode(link).second ?? null]; }}"""
    )
    assert link == f"#m=m&p=p{adds}"
    names = {"q": "prompt", "b": "model"}
    given = parse_qs(adds, keep_blank_values=True)
    assert read == ({names[key]: values[0] for key, values in given.items()} or None)
    page.wait_for_selector(READY)


# --- a clicked token is an entry --------------------------------------------------------------------


def test_a_clicked_token_is_an_entry(number: Any) -> None:
    last = len(texts(number)) - 1
    begun = entries(number)
    click_token(number, 3)
    shows(number, DOWN, 3, 17)
    click_token(number, 3)
    assert entries(number) == begun + 1, "the same token twice is one entry"
    number.go_back()
    shows(number, DOWN, last, 17)
    settled(number)
    assert state(number, "token") == last
    number.go_forward()
    shows(number, DOWN, 3, 17)
    assert entries(number) == begun + 1


def test_a_clicked_row_of_the_heatmap_is_an_entry(story: Any) -> None:
    choose(story, DOWN)
    settled(story)
    last, begun = state(story, "token"), entries(story)
    x, y = cell(story, "#heat", 3, 0)
    story.mouse.click(x - 40, y)  # its label
    wait_until(story, lambda: state(story, "token") == 3)
    assert entries(story) == begun + 1 and explained(story) == []
    story.go_back()
    wait_until(story, lambda: state(story, "token") == last)
    settled(story)
    assert state(story, "value") == DOWN


def test_playing_with_an_open_explanation_makes_no_entry(number: Any) -> None:
    begun, count = entries(number), len(texts(number))
    number.click("#play")
    number.wait_for_function(f"() => document.querySelectorAll('{CHIPS}').length >= {count + 3}")
    number.click("#play")
    settled(number)
    shows(number, DOWN, state(number, "tokensRun") - 1, 17)
    assert entries(number) == begun


def test_a_token_clicked_on_a_link_leaves_the_page_open(visit: Visit) -> None:
    page = visit(f"#m=stories260K&p={quote(PROMPT)}&s=t0&t=5")
    click_token(page, 2)
    settled(page)
    page.go_back()
    wait_until(page, lambda: state(page, "token") == 5)
    assert page.title() == "Glassgear"

"""The page in Chinese: what the server says in words follows the language at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.conftest import PROMPT, settled
from tests.page.test_page import cell, state, value, wait_until

Visit = Callable[..., Any]
LINK = f"#m=stories260K&p={PROMPT.replace(' ', '+')}&s=t0.9,s7"
NAMES = re.compile(r"“.*?”|'.*?'|y = .*|\w+(\.\w+)+")  # of tokens and tensors; plain formulas
ENGLISH = re.compile(r"\b(the|of|with|and|is|are|one|number|channel|weight|sum|token's)\b")


def open_number(page: Any) -> None:
    """Explain a number of the down projection."""
    page.click("#machine .node[data-value='blocks.0.ffn.down']")
    settled(page)
    page.mouse.click(*cell(page, "#heat", 3, 17))
    page.wait_for_selector("#explain:not([hidden]) .number")


def test_an_open_explanation_is_said_again_when_the_language_changes(visit: Visit) -> None:
    page = visit(LINK)
    open_number(page)
    page.locator("#explain [data-follow]").first.click()
    wait_until(page, lambda: page.locator("#explain .trail button").count() == 2)
    assert "bit for bit" in page.inner_text(".verdict")
    number = page.inner_text("#explain .number")
    page.click("#language")
    wait_until(page, lambda: "逐位相同" in page.inner_text(".verdict"))
    text = NAMES.sub("", page.inner_text("#explain"))
    assert not ENGLISH.search(text), text
    assert page.inner_text("#explain .number") == number
    assert page.locator("#explain .trail button").count() == 2
    page.wait_for_function("() => location.hash.includes('l=zh')")
    page.click("#language")
    wait_until(page, lambda: "bit for bit" in page.inner_text(".verdict"))


class HeldBack:
    """Explanations that are asked for from now on wait until they are let go."""

    def __init__(self, page: Any) -> None:
        self.routes: list[Any] = []
        self.waits = True
        page.route("**/explain?*", self.meet)

    def meet(self, route: Any) -> None:
        if self.waits:
            self.routes.append(route)
        else:
            route.continue_()

    def let_go(self) -> None:
        self.waits = False
        for route in self.routes:
            route.continue_()


def test_a_number_that_is_on_its_way_comes_in_the_other_language(visit: Visit) -> None:
    page = visit(LINK)
    open_number(page)
    settled(page)
    held = HeldBack(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")  # the explanation goes with the token
    wait_until(page, lambda: len(held.routes) == 1)
    page.click("#language")
    page.wait_for_function("() => document.documentElement.lang === 'zh-CN'")
    held.let_go()
    wait_until(page, lambda: "逐位相同" in page.inner_text(".verdict"))
    settled(page)
    [number] = state(page, "numbers")
    assert number["token"] == state(page, "token") == 2, "not the number from before"
    wanted = page.evaluate(
        f"async () => (await import('/js/format.js')).exact({value(page, 'blocks.0.ffn.down', 2, 17)})"
    )
    assert page.get_attribute("#explain .number", "title") == wanted
    assert not ENGLISH.search(NAMES.sub("", page.inner_text("#explain")))


def test_languages_switched_twice_while_an_answer_is_on_its_way(visit: Visit) -> None:
    page = visit(LINK)
    open_number(page)
    settled(page)
    held = HeldBack(page)
    page.click("#language")
    wait_until(page, lambda: len(held.routes) == 1)
    page.click("#language")
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    held.let_go()
    settled(page)
    assert "bit for bit" in page.inner_text(".verdict")
    assert "y = x W^T" in page.inner_text("#gear-card .formula")


def test_what_stays_when_a_number_fails_is_in_the_other_language(visit: Visit) -> None:
    page = visit(LINK, quiet=False)  # the browser tells of the refusal
    open_number(page)
    settled(page)
    held = HeldBack(page)
    page.locator("#explain [data-follow]").first.click()
    wait_until(page, lambda: len(held.routes) == 1)
    page.click("#language")
    page.wait_for_function("() => document.documentElement.lang === 'zh-CN'")
    held.waits = False
    held.routes[0].fulfill(status=400, json={"error": "no such luck"})
    wait_until(page, lambda: "逐位相同" in page.inner_text(".verdict"))
    settled(page)
    assert len(state(page, "numbers")) == 1 and "no such luck" in page.inner_text("#status")


def test_formulas_of_gears_and_stages_follow_the_language(visit: Visit) -> None:
    page = visit(LINK)
    page.click("#machine .node[data-value='blocks.0.ffn.down']")
    wait_until(page, lambda: "y = x W^T" in page.inner_text("#gear-card .formula"))
    page.click("#language")
    wait_until(page, lambda: "输入维" in page.inner_text("#gear-card .formula"))
    wait_until(page, lambda: "输入维数" in page.inner_text("#ledger"))
    page.click("#views [data-view='lens']")
    wait_until(page, lambda: "参考后端" in page.inner_text("#view-other"))


def test_a_link_carries_the_language(visit: Visit) -> None:
    page = visit(f"{LINK}&w=blocks.0.attention.scores&g=blocks.0.attention&t=4&h=1&i=1,2&l=zh")
    page.wait_for_selector("#explain:not([hidden]) .number")
    text = page.inner_text("#explain")
    assert "查询" in text and "键" in text and not ENGLISH.search(text), text
    follow = page.locator("#explain [data-follow]")
    assert [follow.nth(0).inner_text(), follow.nth(1).inner_text()] == ["查询", "键"]


def test_what_goes_wrong_is_said_in_the_language(visit: Visit) -> None:
    page = visit(f"{LINK}&l=zh", quiet=False)
    page.fill("#prompt", "word " * 1200)
    page.keyboard.press("Enter")
    wait_until(
        page, lambda: "上下文只有" in page.inner_text("#status") or "最多" in page.inner_text("#status")
    )
    page.click("#language")
    wait_until(page, lambda: page.inner_text("#status") == "")


def test_what_a_run_does_differently_is_named_again(visit: Visit) -> None:
    page = visit(f'{LINK}&x=[{{"op":"zero","path":"blocks.1.attention","head":0}}]')
    wait_until(page, lambda: (state(page, "other") or {}).get("label") == "Layer 1 · Attention · head 0 off")
    page.click("#language")
    wait_until(page, lambda: state(page, "other")["label"] == "层 1 · 注意力 · 头 0 关闭")


@pytest.mark.parametrize("path", ["embed", "blocks.0.attention.weights", "blocks.1.attention.mixed", "head"])
def test_explanations_of_other_values_are_chinese(visit: Visit, path: str) -> None:
    index = {"embed": "5", "head": "9"}.get(path, "1,2")
    page = visit(f"{LINK}&w={path}&g={path.rpartition('.')[0] or path}&t=4&i={index}&l=zh")
    page.wait_for_selector("#explain:not([hidden]) .number")
    text = NAMES.sub("", page.inner_text("#explain"))
    assert re.search("[一-龥]", text) and not ENGLISH.search(text), text

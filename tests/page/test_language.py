"""The page in Chinese: what the server says in words follows the language at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.conftest import PROMPT
from tests.page.test_page import QUIET, cell, state, wait_until

Visit = Callable[..., Any]
LINK = f"#m=stories260K&p={PROMPT.replace(' ', '+')}&s=t0.9,s7"
NAMES = re.compile(r"“.*?”|'.*?'|y = .*|\w+(\.\w+)+")  # of tokens and tensors; plain formulas
ENGLISH = re.compile(r"\b(the|of|with|and|is|are|one|number|channel|weight|sum|token's)\b")


def open_number(page: Any) -> None:
    """Explain a number of the down projection."""
    page.click("#machine .node[data-value='blocks.0.ffn.down']")
    page.wait_for_timeout(600)
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
    assert "l=zh" in page.evaluate("location.hash") or page.wait_for_function(
        "() => /l=zh/.test(location.hash)"
    )
    page.click("#language")
    wait_until(page, lambda: "bit for bit" in page.inner_text(".verdict"))


def test_formulas_of_gears_and_stages_follow_the_language(visit: Visit) -> None:
    page = visit(LINK)
    page.click("#machine .node[data-value='blocks.0.ffn.down']")
    assert "y = x W^T" in page.inner_text("#gear-card .formula")
    page.click("#language")
    wait_until(page, lambda: "输入维" in page.inner_text("#gear-card .formula"))
    assert "输入维数" in page.inner_text("#ledger")
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
    page.wait_for_function(QUIET)
    wait_until(page, lambda: (state(page, "other") or {}).get("label") == "Layer 1 · Attention · head 0 off")
    page.click("#language")
    wait_until(page, lambda: state(page, "other")["label"] == "第 1 层 · 注意力 · 头 0 关闭")


@pytest.mark.parametrize("path", ["embed", "blocks.0.attention.weights", "blocks.1.attention.mixed", "head"])
def test_explanations_of_other_values_are_chinese(visit: Visit, path: str) -> None:
    index = {"embed": "5", "head": "9"}.get(path, "1,2")
    page = visit(f"{LINK}&w={path}&g={path.rpartition('.')[0] or path}&t=4&i={index}&l=zh")
    page.wait_for_selector("#explain:not([hidden]) .number")
    text = NAMES.sub("", page.inner_text("#explain"))
    assert re.search("[一-龥]", text) and not ENGLISH.search(text), text

"""docs/see_inside.md says what the page shows: its clicks are made here, its figures compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from glassgear.loading import load
from glassgear.serve.models import Models
from tests.page.conftest import settled
from tests.page.test_page import Visit, state, wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"
WALKS = {"en": DOCS / "see_inside.md", "zh": DOCS / "see_inside.zh.md"}
NAME = "smollm2-135m"
NEAR = 1.0  # percentage points: kernels of other processors round elsewhere


def said(language: str) -> str:
    return WALKS[language].read_text(encoding="utf-8")


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def page(visit: Visit, stories: Models, smollm2: Path, language: str) -> Any:
    """The page with the prompt of the walk typed in and run."""
    if NAME not in stories.entries:
        stories.add(NAME, load(smollm2))
    opened = visit(f"#m={NAME}&l={language}")
    prompt = re.search(r"`(The opposite of \w+ is)`", said(language))
    assert prompt is not None
    opened.fill("#prompt", prompt[1])
    opened.click("#go")
    wait_until(opened, lambda: len(state(opened, "texts")) == 5)
    settled(opened)
    return opened


def tab(page: Any, view: str) -> None:
    """Click a tab by the name that the text gives it."""
    name = page.inner_text(f"[data-view={view}]")
    assert f"**{name}**" in said(state(page, "language"))
    page.click(f"[data-view={view}]")


def percent(text: str) -> float:
    found = re.search(r"(\d+\.\d) %", text)
    assert found is not None, text
    return float(found[1])


def test_the_head_that_reads_the_previous_token(page: Any, language: str) -> None:
    text = said(language).split("\n## ")[2]
    found = re.search(r"layer (\d+), head (\d+)|第 (\d+) 层的头 (\d+)", text)
    assert found is not None
    layer, head = (int(one) for one in found.groups() if one)
    tab(page, "heads")
    button = page.locator("[data-key='habit previous']")
    assert f"**{button.inner_text()}**" in text
    button.click()
    page.wait_for_selector(".ranking li")
    settled(page)
    assert (
        page.locator(".ranking button").first.get_attribute("data-key")
        == f"R blocks.{layer}.attention {head}"
    )
    assert percent(page.inner_text(".headline")) == pytest.approx(percent(text), abs=NEAR)
    page.locator(".ranking button").first.click()
    wait_until(page, lambda: state(page, "value") == f"blocks.{layer}.attention.weights")
    assert state(page, "head") == head


def test_the_layer_that_prefers_the_answer(page: Any, language: str) -> None:
    text = said(language).split("\n## ")[3]
    layer = re.search(r"from layer (\d+) on|从第 (\d+) 层起", text)
    assert layer is not None
    tab(page, "lens")
    page.wait_for_selector(".lens-mark")
    settled(page)
    found = state(page, "lens")
    assert found["decided"] == int(layer[1] or layer[2])
    assert "·" + found["final"]["text"].strip() == "·cold" and "`·cold`" in text
    before = found["layers"][found["decided"] - 1]
    assert 100 * before["final"] == pytest.approx(percent(text), abs=NEAR) and before["rank"] == 1


def test_what_top_p_removed(page: Any, language: str) -> None:
    text = said(language).split("\n## ")[4]
    figures = re.search(r"removed (\d+) of the (\d+)|从 (\d+) 个里去掉了 (\d+) 个", text)
    assert figures is not None
    removed, before = (figures[1], figures[2]) if figures[1] else (figures[4], figures[3])
    tab(page, "sampling")
    page.wait_for_selector("[data-stage=top-p] s")
    settled(page)
    stage = next(one for one in state(page, "candidates")["stages"] if one["name"] == "top-p")
    assert stage["removed_count"] == int(removed) and stage["kept"] + stage["removed_count"] == int(before)
    whole = re.search(r"removed|去掉了", text)
    assert whole is not None
    assert 100 * stage["removed_probability"] == pytest.approx(percent(text[figures.start() :]), abs=NEAR)
    struck = page.locator("[data-stage=top-p] s").all_inner_texts()
    assert set(re.findall(r"`(·ic\w+)`", text)) <= set(struck)


def test_both_languages_give_the_same_figures() -> None:
    figures = {name: sorted(set(re.findall(r"\d+\.\d+|\d{2,}", said(name)))) for name in WALKS}
    english, chinese = (set(figures[name]) - {"135", "95"} for name in ("en", "zh"))
    assert english - chinese <= {"100"} and chinese - english <= {"35", "1.35", "28"}


def test_pictures_are_there_and_small(language: str) -> None:
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", said(language))
    assert len(named) == 7
    assert all((DOCS / path).read_bytes().startswith(b"\x89PNG") for path in named)
    assert {path.name for path in (DOCS / "images" / "see_inside" / language).iterdir()} == {
        Path(path).name for path in named
    }
    assert sum(path.stat().st_size for path in (DOCS / "images" / "see_inside").rglob("*.png")) < 2_500_000

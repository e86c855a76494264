"""What waits for a slow model: steps, a link on its way, a server that is away. The last choice counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from glassgear.serve.app import Service
from glassgear.serve.models import Models
from tests.page.conftest import PROMPT, settled
from tests.page.test_page import CHIPS, Visit, state, texts, wait_for_tokens, wait_until

AT = f"#m=stories260K&p={quote(PROMPT)}&s=t0"
SECOND = '{"op":"zero","path":"blocks.0.attention","head":0}'
DESIGN = Path(__file__).parents[2] / "examples" / "experts.toml"


class Held:
    """Answers of the server that wait until they are let go: a model that takes its time."""

    def __init__(self) -> None:
        self.routes: list[Any] = []
        self.open = False

    def take(self, route: Any) -> None:
        if self.open:
            route.continue_()
        else:
            self.routes.append(route)

    def go(self, count: int = 1) -> None:
        """Let the first ones go."""
        for route in self.routes[:count]:
            route.continue_()
        del self.routes[:count]

    def finish(self) -> None:
        """From now on nothing is held."""
        self.open = True
        self.go(len(self.routes))


@contextmanager
def holding(page: Any, *patterns: str) -> Iterator[Held]:
    """Hold what is asked at these addresses."""
    held = Held()
    for pattern in patterns:
        page.route(pattern, held.take)
    yield held
    held.finish()
    for pattern in patterns:
        page.unroute(pattern)


def waits(page: Any, held: Held, count: int = 1) -> None:
    """Wait until so many are held."""
    wait_until(page, lambda: len(held.routes) >= count)


def type_and_run(page: Any, prompt: str) -> None:
    page.fill("#prompt", prompt)
    page.press("#prompt", "Enter")


def says(page: Any, key: str) -> str:
    """A part of the address."""
    said = parse_qs(str(page.evaluate("location.hash")).removeprefix("#"))
    return said.get(key, [""])[0]


def text(page: Any) -> str:
    return "".join(texts(page)).replace("<s>", "").strip()


# --- steps that wait ----------------------------------------------------------------------------------


def test_a_held_key_and_quick_clicks_ask_for_one_step_ahead(story: Any) -> None:
    count = len(texts(story))
    with holding(story, "**/step") as held:
        for _ in range(5):
            story.click("#step")
        story.evaluate("document.activeElement.blur()")
        for _ in range(20):
            story.keyboard.down("n")
        story.keyboard.up("n")
        waits(story, held)
        held.finish()
        settled(story)
    assert len(texts(story)) == count + 2, "the one under way, and one more"


def test_a_prompt_drops_the_steps_that_wait(story: Any) -> None:
    asked: list[str] = []
    with holding(story, "**/step") as held:
        for _ in range(10):
            story.click("#step")
        waits(story, held)
        type_and_run(story, "The dog")
        story.wait_for_timeout(400)  # the address follows after 150 ms
        assert says(story, "p") == PROMPT, "the run is still that of the prompt before"
        story.on("request", lambda request: asked.append(request.url))
        held.finish()
        wait_until(story, lambda: text(story) == "The dog")
        settled(story)
    assert says(story, "p") == "The dog" and story.input_value("#prompt") == "The dog"
    assert state(story, "made") == 0
    assert sum(url.endswith("/step") for url in asked) == 1, "of the new run; no step of the old one"


def test_a_step_back_drops_the_steps_that_wait(story: Any) -> None:
    count = len(texts(story))
    with holding(story, "**/step") as held:
        story.click("#step")
        waits(story, held)
        held.go()
        wait_for_tokens(story, count + 1)
        for _ in range(10):
            story.click("#step")
        waits(story, held)
        story.click("#back")
        held.finish()
        settled(story)
    assert len(texts(story)) == count + 1, "one step was under way, and one was taken back"


def test_clicks_on_back_count_while_they_wait(story: Any) -> None:
    count = len(texts(story))
    for n in range(1, 6):
        story.click("#step")
        wait_for_tokens(story, count + n)
    with holding(story, "**/back") as held:
        for _ in range(4):
            story.click("#back")
        waits(story, held)
        held.finish()
        settled(story)
    assert len(texts(story)) == count + 1


def test_another_model_drops_the_steps_that_wait(visit: Visit, stories: Models) -> None:
    stories.add("twin", stories.entries["stories260K"].model)
    page = visit(AT)
    with holding(page, "**/step") as held:
        for _ in range(10):
            page.click("#step")
        waits(page, held)
        page.select_option("#model", "twin")
        held.finish()
        wait_until(page, lambda: state(page, "model") == "twin" and bool(state(page, "run")))
        settled(page)
    assert state(page, "made") == 0 and text(page) == PROMPT


def test_a_prompt_typed_while_a_model_loads_is_the_one_that_is_run(visit: Visit, stories: Models) -> None:
    stories.add("twin", stories.entries["stories260K"].model)
    page = visit(AT)
    runs: list[Any] = []
    with holding(page, "**/api/models") as held:
        page.select_option("#model", "twin")
        waits(page, held)
        type_and_run(page, "The dog")
        page.on("request", lambda r: runs.append(r.post_data_json) if r.url.endswith("/api/runs") else None)
        held.finish()
        wait_until(page, lambda: text(page) == "The dog")
        settled(page)
    assert [(run["model"], run["prompt"]) for run in runs] == [("twin", "The dog")]
    assert page.input_value("#prompt") == "The dog" and says(page, "m") == "twin"


def test_the_browsers_back_drops_the_steps_that_wait(story: Any) -> None:
    type_and_run(story, "The dog")
    wait_until(story, lambda: text(story) == "The dog")
    settled(story)
    with holding(story, "**/step") as held:
        for _ in range(10):
            story.click("#step")
        waits(story, held)
        story.evaluate("history.back()")
        wait_until(story, lambda: says(story, "p") == PROMPT)
        held.finish()
        wait_until(story, lambda: text(story) == PROMPT)
        settled(story)
    assert story.input_value("#prompt") == PROMPT and state(story, "made") == 0


def test_a_change_drops_the_steps_that_wait(story: Any) -> None:
    count = len(texts(story))
    with holding(story, "**/step") as held:
        for _ in range(10):
            story.click("#step")
        waits(story, held)
        story.click("#change-open")
        story.select_option("#change-kind", "zero_head")
        story.click("#change-apply")
        held.finish()
        story.wait_for_selector(".other .chip")
        settled(story)
    assert len(texts(story)) == count + 1 and state(story, "view") == "compare"
    assert len(state(story, "other")["ids"]) == count + 1, "as long as the first"


def test_a_candidate_follows_the_token_that_it_was_chosen_for(story: Any) -> None:
    settled(story)
    count, other = len(texts(story)), story.locator(".candidates button").nth(2)
    wanted = int(other.get_attribute("data-id"))
    with holding(story, "**/step") as held:
        for _ in range(10):
            story.click("#step")
        waits(story, held)
        other.click()
        held.finish()
        settled(story)
    assert len(texts(story)) == count + 1 and state(story, "ids")[count] == wanted


def test_play_ends_with_another_prompt(story: Any) -> None:
    count = len(texts(story))
    story.click("#play")
    wait_until(story, lambda: len(texts(story)) > count)
    type_and_run(story, "The dog")
    wait_until(story, lambda: text(story) == "The dog")
    settled(story)
    assert not state(story, "playing") and text(story) == "The dog"


# --- a link that is loading ---------------------------------------------------------------------------


@pytest.fixture
def loading(visit: Visit) -> Callable[[str], Any]:
    """Opens a link; the page and what is held: its steps, from the first token after the prompt on."""

    def begin(link: str, *, first: int = 1) -> tuple[Any, Any]:
        page = visit("#m=stories260K&p=Tom")
        guard = holding(page, "**/step")
        held = guard.__enter__()
        page.evaluate("(link) => { location.hash = link; }", link)
        for _ in range(first):  # the prompt alone
            waits(page, held)
            held.go()
        waits(page, held)
        return page, held

    return begin


def test_a_prompt_gives_up_a_link_that_is_loading(loading: Any, service: Service) -> None:
    page, held = loading(f"{AT}&n=60")
    assert text(page) == PROMPT
    type_and_run(page, "The dog")
    held.go()
    waits(page, held)
    assert len(texts(page)) < 20, "the other tokens aren't asked for"
    held.finish()
    wait_until(page, lambda: text(page) == "The dog")
    settled(page)
    assert says(page, "p") == "The dog" and state(page, "made") == 0
    assert [*service.runs.runs] == [state(page, "run")], "no other run is left on the server"
    page.evaluate("history.back()")
    wait_until(page, lambda: text(page).startswith(PROMPT))
    settled(page)


def test_another_link_gives_up_the_one_that_is_loading(loading: Any) -> None:
    page, held = loading(f"{AT}&n=60")
    page.evaluate("location.hash = '#m=stories260K&p=The+dog&n=2&s=t0&v=lens'")
    held.finish()
    wait_until(page, lambda: text(page).startswith("The dog"))
    settled(page)
    assert state(page, "made") == 2 and state(page, "view") == "lens" and says(page, "n") == "2"


def test_back_keeps_what_a_link_has_made_so_far(loading: Any) -> None:
    page, held = loading(f"{AT}&n=60&v=growth")
    held.go()
    waits(page, held)
    assert page.locator("#status").inner_text().startswith("Making tokens: 1 of 60")
    page.click("#back")
    held.finish()
    settled(page)
    made = state(page, "made")
    assert 0 < made < 10 and len(texts(page)) == state(page, "promptLength") + made
    assert state(page, "view") == "growth" and says(page, "n") == str(made)


@pytest.mark.parametrize("way", ["link", "reload"])
def test_a_view_chosen_while_a_link_loads_stays(visit: Visit, loading: Any, way: str) -> None:
    link = f"{AT}&v=growth&n=20&w=blocks.1.ffn.down"
    if way == "link":
        page, held = loading(link)
    else:
        page, held = visit(link), Held()
        settled(page)
        page.route("**/step", held.take)
        page.reload()
        waits(page, held)
    page.click("#views [data-view=lens]")
    held.finish()
    wait_until(page, lambda: state(page, "made") == 20)
    settled(page)
    assert state(page, "view") == "lens" and says(page, "v") == "lens"
    assert state(page, "value") == "blocks.1.ffn.down", "the link still says the rest"
    assert page.locator("#views [data-view=lens]").get_attribute("aria-selected") == "true"


def test_a_view_chosen_while_changes_load_stays(loading: Any) -> None:
    page, held = loading(f"{AT}&v=compare&n=1&x={quote(f'[{SECOND}]')}")
    held.go()
    waits(page, held)  # the second run's
    page.click("#views [data-view=lens]")
    held.finish()
    page.wait_for_selector(".other .chip")
    settled(page)
    assert state(page, "view") == "lens" and len(state(page, "changes")) == 1


def test_changes_of_a_link_leave_its_view(visit: Visit) -> None:
    page = visit(f"{AT}&v=lens&x={quote(f'[{SECOND}]')}")
    settled(page)
    assert state(page, "view") == "lens" and len(state(page, "changes")) == 1


def test_other_choices_made_while_a_link_loads_stay(loading: Any) -> None:
    page, held = loading(f"{AT}&n=2&w=blocks.0.ffn.down&t=1&i=17")
    page.click("#machine .node[data-value='blocks.0.attention.weights']")
    page.locator(CHIPS).nth(3).click()
    page.click("#language")
    page.fill("#prompt", "half a wo")
    held.finish()
    wait_until(page, lambda: state(page, "made") == 2)
    settled(page)
    assert state(page, "value") == "blocks.0.attention.weights" and state(page, "token") == 3
    assert state(page, "language") == "zh" and page.input_value("#prompt") == "half a wo"
    assert state(page, "numbers") == [], "the link's number is one of another value"


def test_choices_made_before_the_page_knows_its_models_stay(visit: Visit) -> None:
    page = visit(f"{AT}&v=growth&w=blocks.1.ffn.down")
    settled(page)
    with holding(page, "**/api/about*") as held:
        page.reload()
        waits(page, held)
        page.click("#views [data-view=lens]")
        page.fill("#prompt", "half a wo")
        held.finish()
        wait_until(page, lambda: text(page) == PROMPT)
        settled(page)
    assert state(page, "view") == "lens" and page.input_value("#prompt") == "half a wo"
    assert state(page, "value") == "blocks.1.ffn.down" and says(page, "p") == PROMPT


def test_a_prompt_run_before_the_page_knows_its_models_is_the_one_that_is_run(visit: Visit) -> None:
    page = visit(f"{AT}&n=40")
    settled(page)
    with holding(page, "**/api/about*") as held:
        page.reload()
        waits(page, held)
        type_and_run(page, "The dog")
        held.finish()
        wait_until(page, lambda: text(page) == "The dog")
        settled(page)
    assert says(page, "p") == "The dog" and state(page, "made") == 0


@pytest.mark.parametrize(("language", "said"), [("en", "asks for 100,000 tokens"), ("zh", "链接要 100,000")])
def test_a_link_that_asks_for_too_much_is_cut(visit: Visit, language: str, said: str) -> None:
    page = visit(f"{AT}&n=100000&l={language}")
    line = page.locator("#status").inner_text()
    assert said in line and f"{state(page, 'made'):,}" in line
    assert state(page, "done") in ("stop", "context") and not state(page, "failed")
    assert says(page, "n") == str(state(page, "made"))


# --- a server that is away ----------------------------------------------------------------------------


def all_of(page: Any) -> list[Any]:
    """What has to be as before: the text, what is beside it, and what is selected."""
    return [
        state(page, name) for name in ("ids", "model", "ran", "changes", "view", "value", "made", "token")
    ]


@pytest.mark.parametrize("column", [0, 1])
def test_a_run_that_is_gone_is_started_again(visit: Visit, service: Service, column: int) -> None:
    link = f"{AT}&n=3&v=lens&w=blocks.1.ffn.down&x={quote(f'[{SECOND}]')}&l={('en', 'zh')[column]}"
    page = visit(link, quiet=False)
    settled(page)
    page.click(".candidates button >> nth=3")  # the text isn't what the sampler would make of it
    settled(page)
    before, run = all_of(page), state(page, "run")
    for one in list(service.runs.runs):
        service.runs.close(one)
    page.click("#step")
    button = page.locator("#trouble button.primary")
    assert button.inner_text() == ("Start it again", "重新运行")[column]
    button.click()
    page.wait_for_selector("#trouble", state="hidden")
    settled(page)
    assert all_of(page) == before and state(page, "run") != run
    page.click("#step")
    wait_until(page, lambda: state(page, "made") == 5)
    settled(page)
    assert len(state(page, "other")["ids"]) == len(state(page, "ids"))


@pytest.mark.parametrize("gone", [False, True])
def test_a_server_that_is_away_is_tried_again(visit: Visit, service: Service, gone: bool) -> None:
    page = visit(f"{AT}&n=2", quiet=False)
    settled(page)
    before, run = all_of(page), state(page, "run")
    page.route("**/api/**", lambda route: route.abort())
    page.click("#step")
    button = page.locator("#trouble button.primary")
    assert button.inner_text() == "Try again"
    button.click()
    settled(page)
    assert "doesn't answer" in page.inner_text("#trouble") and all_of(page) == before
    page.unroute("**/api/**")
    if gone:
        service.runs.close(run)
    button.click()
    page.wait_for_selector("#trouble", state="hidden")
    settled(page)
    assert all_of(page) == before and (state(page, "run") != run) == gone
    page.click("#step")
    wait_until(page, lambda: state(page, "made") == 3)


def test_a_step_whose_answer_was_lost_is_there_after_a_new_try(visit: Visit) -> None:
    page = visit(AT, quiet=False)
    count = len(texts(page))

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/step", lose)
    page.click("#step")
    page.wait_for_selector("#trouble:not([hidden])")
    page.unroute("**/step")
    page.click("#trouble button.primary")
    wait_for_tokens(page, count + 1)
    page.click("#step")
    wait_for_tokens(page, count + 2)


def test_a_prompt_loads_the_model_that_a_new_server_has_not(visit: Visit, stories: Models) -> None:
    entry = stories.entries["stories260K"]
    page = visit(AT, quiet=False)
    settled(page)
    loaded = stories.load
    del stories.entries["stories260K"]

    def load(name: str, **options: Any) -> Any:
        stories.entries["stories260K"] = entry
        return loaded(name, **options)

    stories.load = load  # type: ignore[method-assign]
    try:
        type_and_run(page, "The dog")
        wait_until(page, lambda: text(page) == "The dog")
        settled(page)
    finally:
        stories.load = loaded  # type: ignore[method-assign]
        stories.entries["stories260K"] = entry
    assert not state(page, "failed")


# --- the window for a model ---------------------------------------------------------------------------


def test_load_with_nothing_typed_says_what_is_needed(visit: Visit) -> None:
    page = visit(AT, quiet=False)
    page.select_option("#model", "")
    page.fill("#model-name", "nosuch")
    page.click("#model-load")
    page.wait_for_selector("dialog .notice:not([hidden])")
    assert "nosuch" in page.inner_text("dialog .notice")
    page.fill("#model-name", " ")
    page.click("#model-load")
    assert page.inner_text("dialog .notice") == "Type the name of a model, or the path of a file."


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_design_without_weights_is_told_how_to_be_seen(visit: Visit, language: str) -> None:
    page = visit(f"{AT}&l={language}", quiet=False)
    page.select_option("#model", "")
    page.fill("#model-name", str(DESIGN))
    page.press("#model-name", "Enter")
    page.wait_for_selector("dialog .notice:not([hidden])")
    said = page.inner_text("dialog .notice")
    assert "`glassgear view --random`" in said and "run --random" not in said
    assert ("没有权重" if language == "zh" else "has no weights") in said

"""Which requests are let in: DNS rebinding, posts from other sites, oversized bodies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from glassgear.serve.guard import MOST_BYTES
from tests.serve.conftest import HOME, Client, make_service

BODY = {"model": "tiny", "prompt": "1 2 3"}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8323",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8323",
        "",
        "10.0.0.7",
    ],
)
def test_a_name_that_was_rebound_is_refused(client: Client, host: str) -> None:
    for path in ("/api/about", "/", "/api/runs"):
        answer = client.http.get(path, headers={"Host": host})
        assert answer.status_code == 400 and "this server isn't called" in answer.json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8323", "localhost:8323", "LOCALHOST", "[::1]:8323", "127.0.0.1"])
def test_its_own_names_are_let_in(client: Client, host: str) -> None:
    assert client.http.get("/api/about", headers={"Host": host}).status_code == 200


def test_bound_to_all_addresses_any_address_will_do_but_no_other_name(speaker_path: Path) -> None:
    client = Client(make_service(speaker_path), host="0.0.0.0")
    assert client.http.get("/api/about", headers={"Host": "192.168.1.9:8323"}).status_code == 200
    assert client.http.get("/api/about", headers={"Host": "evil.example:8323"}).status_code == 400


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:9999", "null", "http://localhost:8323"]
)
def test_posts_from_other_origins_are_refused(client: Client, origin: str) -> None:
    answer = client.http.post("/api/runs", json=BODY, headers={"Origin": origin})
    assert answer.status_code == 403 and "only the page itself" in answer.json()["error"]
    assert client.get("runs") == {"runs": []}


def test_the_pages_own_posts_are_let_in(client: Client) -> None:
    headers = {"Origin": HOME, "Sec-Fetch-Site": "same-origin"}
    assert client.http.post("/api/runs", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_a_browser_says_come_from_elsewhere_are_refused(client: Client, site: str) -> None:
    run = client.start("tiny", "1 2 3")
    for path in (f"/api/runs/{run}/stream", "/api/about", f"/api/export?run={run}"):
        assert client.http.get(path, headers={"Sec-Fetch-Site": site}).status_code == 403
    assert client.get(f"runs/{run}")["tokens_run"] == 3


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_a_form_of_another_site_has_no_json(client: Client, kind: str) -> None:
    answer = client.http.post("/api/runs", content=json.dumps(BODY), headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert client.get("runs") == {"runs": []}


def test_oversized_bodies_are_refused_whether_or_not_they_say_so(client: Client) -> None:
    big = json.dumps(BODY | {"prompt": "1 " * MOST_BYTES}).encode()
    headers = {"Content-Type": "application/json"}
    assert client.http.post("/api/runs", content=big, headers=headers).status_code == 413
    pieces = (big[i : i + 65536] for i in range(0, len(big), 65536))
    answer = client.http.post("/api/runs", content=pieces, headers=headers)
    assert answer.status_code == 413 and "1,048,576 bytes" in answer.json()["error"]


def test_every_answer_forbids_content_from_elsewhere(client: Client) -> None:
    for path in ("/api/about", "/api/nothing", "/"):
        headers = client.http.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers and "set-cookie" not in headers


def test_other_methods_and_addresses(client: Client) -> None:
    assert client.http.put("/api/runs", json=BODY).status_code == 405
    assert client.http.options("/api/runs", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.error("nothing", 404) == "there is nothing at this address"
    for path in ("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py"):
        assert client.http.get(path).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"model": 3}',
        b'{"model": "tiny", "prompts": "1"}',
        b"\xff\xfe",
        b'{"model": null}',
    ],
)
def test_bodies_that_say_nothing_are_a_users_mistake(client: Client, body: bytes) -> None:
    answer = client.http.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"model": "a", ', "the body isn't valid JSON, at character 16: expecting property name enclosed"),
        (b'{"model": "a"', "the body isn't valid JSON, at character 14: expecting ',' delimiter"),
        (b'{"model": "a', "the body isn't valid JSON, at character 11: unterminated string"),
        (b"", "the body must be a JSON object with names and values"),
        (b"[1]", "the body must be a JSON object with names and values"),
        (b'{"model": "\xff"}', "the body can't be read: it must be JSON in UTF-8, not too deeply nested"),
        (b"[" * 100_000, "the body can't be read: it must be JSON in UTF-8, not too deeply nested"),
        (b'{"model": 3}', "model: input should be a valid string"),
    ],
    ids=range(8),
)
def test_what_is_no_json_is_said_in_a_sentence(client: Client, body: bytes, told: str) -> None:
    answer = client.http.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"].startswith(told)
    said = client.http.post("/api/runs?lang=zh", content=body, headers={"Content-Type": "application/json"})
    assert re.search("[一-龥]", said.json()["error"]), said.text


def test_a_fault_is_a_sentence_and_no_traceback(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("secret place")

    monkeypatch.setattr(client.service, "about", broken)
    answer = client.http.get("/api/about")
    assert answer.status_code == 500
    assert answer.json() == {"error": "this is a fault in Glassgear: RuntimeError"}

"""Workers: requests in, answers out, whatever happens between."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.models import llama2c_file, llama2c_tokenizer

WORKERS = REPOSITORY / "benchmarks" / "workers"

ECHO = f"""
import os, sys
sys.path.insert(0, {str(WORKERS)!r})
from protocol import serve
print("loading noise")
def shout(text):
    print("noise from Python")
    os.system("echo noise from C")
    return {{"text": text.upper()}}
def fail():
    raise ValueError("no way")
def die():
    sys.exit("last words")
serve(shout=shout, fail=fail, die=die)
"""


@pytest.fixture
def echo():  # type: ignore[no-untyped-def]
    from worker_process import WorkerProcess

    # What a library prints before `serve` would be read as an answer: workers print nothing there.
    with WorkerProcess("echo", [sys.executable, "-c", ECHO.replace('print("loading noise")', "")]) as worker:
        yield worker


def test_noise_of_a_program_is_no_answer(echo) -> None:  # type: ignore[no-untyped-def]
    assert echo.ask("shout", text="grün") == {"text": "GRÜN"}
    assert echo.ask("shout", text="again") == {"text": "AGAIN"}


def test_trouble_is_an_answer_and_the_worker_lives_on(echo) -> None:  # type: ignore[no-untyped-def]
    assert echo.ask("fail") == {"error": "ValueError: no way"}
    assert "can't do 'sing'" in echo.ask("sing")["error"]
    assert "TypeError" in echo.ask("shout", volume=11)["error"]
    assert echo.ask("shout", text="x") == {"text": "X"}


def test_a_worker_that_ends_leaves_its_last_words(echo) -> None:  # type: ignore[no-untyped-def]
    assert echo.ask("die") == {"error": "the worker ended: last words"}
    assert "last words" in echo.ask("shout", text="x")["error"]


def test_glassgear_works_as_a_worker(tmp_path: Path) -> None:
    from worker_process import glassgear_worker

    model = tmp_path / "small.bin"
    llama2c_file(model)
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    with glassgear_worker(str(model), 1, backend="reference") as worker:
        about = worker.ask("about")
        assert about["variants"] == ["default"] and about["weight_bytes_per_token"] > 0
        asked = {"length": 4, "batch": 2, "variant": "default", "seed": 1}
        assert worker.ask("prompt", **asked)["tokens"] == 8
        assert worker.ask("decode", tokens=3, **asked)["tokens"] == 6
        ids = worker.ask("encode", text="the hen")["ids"]
        whole, steps = tmp_path / "whole.npy", tmp_path / "steps.npy"
        assert "seconds" in worker.ask("logits", ids=ids, chunk=0, file=str(whole))
        assert "seconds" in worker.ask("logits", ids=ids, chunk=1, file=str(steps))
        assert np.load(whole).shape == (len(ids), 32)
        np.testing.assert_allclose(np.load(whole), np.load(steps), atol=1e-5)
        if sys.platform == "linux":
            assert worker.ask("memory")["peak"] > 10_000_000


@pytest.mark.skipif(os.name != "posix", reason="the stand-in program is a script")
def test_the_speed_that_llama2c_prints_is_taken(tmp_path: Path) -> None:
    from worker_process import peer_worker

    program = tmp_path / "run"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "assert sys.argv[1:] == ['m.bin', '-z', 't.bin', '-t', '0', '-n', '101'], sys.argv\n"
        "print('a story')\nsys.stderr.write('achieved tok/s: 1000.000000\\n')\n"
    )
    program.chmod(0o755)
    with peer_worker("llama2c", str(program), "m.bin", 1, "t.bin") as worker:
        asked = {"length": 1, "batch": 1, "tokens": 100, "variant": "default", "seed": 0}
        answer = worker.ask("decode", **asked)
        assert answer["tokens"] / answer["seconds"] == pytest.approx(1000)
        assert "one sequence" in worker.ask("decode", **(asked | {"batch": 8}))["error"]
        assert "can't do" in worker.ask("prompt", **asked)["error"]

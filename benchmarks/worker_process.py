"""Start workers and talk to them; see `workers/protocol.py` for what they answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

__all__ = ["PEERS", "WorkerProcess", "find_peers", "glassgear_worker", "peer_worker"]

FOLDER = Path(__file__).resolve().parent / "workers"
PEERS = {"llama_cpp": "llama_cpp", "openvino": "openvino_genai", "transformers": "transformers"}
"""Name of a peer -> the module that it needs; beside them there is `llama2c`, a program."""


class WorkerProcess:
    """One worker in a process of its own, with its own Python.

    Args:
        name: for tables and messages.
        command: what to start.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._errors = TemporaryFile()  # noqa: SIM115  # closed in `close`
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8"
        )

    def ask(self, kind: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for the answer; `{"error": ...}` if there is none."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"do": kind, **request}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        return {"error": f"the worker ended: {self._last_words()}"}

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, trouble: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def glassgear_worker(model: str, threads: int, **options: str) -> WorkerProcess:
    """Glassgear in this very Python."""
    name = f"glassgear {options['backend']}" if "backend" in options else "glassgear"
    script = str(FOLDER / "glassgear_worker.py")
    return WorkerProcess(name, [sys.executable, script, model, str(threads), json.dumps(options)])


def peer_worker(peer: str, where: str, model: str, threads: int, tokenizer: str = "") -> WorkerProcess:
    """Another program.

    Args:
        peer: a key of `PEERS`, or `llama2c`.
        where: the Python that has it; of llama2c the program itself.
        model: a file or folder.
        threads: how many it shall use.
        tokenizer: the file that llama2c reads beside the model.
    """
    script = str(FOLDER / f"{peer}_worker.py")
    if peer == "llama2c":
        return WorkerProcess(peer, [sys.executable, script, where, model, tokenizer, str(threads)])
    return WorkerProcess(peer, [where, script, model, str(threads)])


def find_peers(python: str) -> dict[str, str]:
    """Which peers a Python has: name -> that Python."""
    code = (
        "import importlib.util, json; "
        f"print(json.dumps([n for n, m in {PEERS}.items() if importlib.util.find_spec(m)]))"
    )
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return dict.fromkeys(json.loads(done.stdout), python)

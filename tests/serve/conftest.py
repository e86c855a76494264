"""A server in this process, on small models: one with random weights, one whose texts are known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.language_model import LanguageModel
from glassgear.model.gears import Model
from glassgear.serve.app import Service, create_app
from glassgear.serve.limits import Limits
from glassgear.serve.models import Models
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.tensor import StoredTensor
from tests.cli.speaking import write_speaker
from tests.models import random_tensors
from tests.trees import TREES

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # which HTTP client the test client is built on is its own affair
    from fastapi.testclient import TestClient

HOME = "http://127.0.0.1:8323"
BACKENDS = {"reference": Reference, "cpu": CPU}


def language_model(name: str, backend: str = "reference", seed: int = 0) -> LanguageModel:
    """A small model of `tests.trees` with random weights and no tokenizer."""
    model: Model = TREES[name]()
    tensors: dict[str, StoredTensor] = random_tensors(model, seed)
    checkpoint = Checkpoint(name, "made in memory", model, tensors)
    return LanguageModel(checkpoint, BACKENDS[backend](model, tensors), None)


class Client:
    """Asks and answers, with the status that is expected."""

    def __init__(self, service: Service, host: str = "127.0.0.1", base: str = HOME) -> None:
        self.service = service
        self.http = TestClient(create_app(service, host), base_url=base, raise_server_exceptions=False)

    def get(self, at: str, status: int = 200, /, **query: Any) -> Any:
        answer = self.http.get(f"/api/{at}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, at: str, status: int = 200, /, **body: Any) -> Any:
        answer = self.http.post(f"/api/{at}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def error(self, at: str, status: int, /, **query: Any) -> str:
        return str(self.get(at, status, **query)["error"])

    def values(self, run: str, **query: Any) -> np.ndarray:
        answer = self.http.get(f"/api/runs/{run}/value", params=query)
        assert answer.status_code == 200, answer.text
        shape = [int(n) for n in answer.headers["x-shape"].split(",") if n]
        return np.frombuffer(answer.content, "<f4").reshape(shape)

    def start(self, model: str, prompt: str, steps: int = 0, **more: Any) -> str:
        made = self.post("runs", model=model, prompt=prompt, **more)
        self.post(f"runs/{made['run']}/step", count=steps)
        return str(made["run"])


@pytest.fixture(scope="session")
def speaker_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "speaker.gguf"
    write_speaker(path)
    return path


def make_service(speaker_path: Path, nbytes: int = 256 << 20, tokens: int = 2048) -> Service:
    models = Models({"backend": "reference"})
    models.entries["speaker"] = models.load(str(speaker_path))
    models.entries["speaker"].name = "speaker"
    del models.entries[str(speaker_path)]
    models.add("tiny", language_model("llama"))
    return Service(models, Limits(tokens, nbytes))


@pytest.fixture
def client(speaker_path: Path) -> Iterator[Client]:
    yield Client(make_service(speaker_path))

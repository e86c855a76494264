"""Which model an experiment asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glassgear.loading
from glassgear.errors import NotFoundError
from glassgear.lab.frame import Settings
from glassgear.lab.models import BUILT_IN, model_of
from glassgear.weights import pull
from glassgear.weights.cache import CachedModel


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that are loaded, in order; only those in `there` are there. Two models were fetched."""
    names: list[str] = []

    def load(name: str, **options: Any) -> str:
        names.append(name)
        if name not in ("small", "large", "named"):
            raise NotFoundError(name, "isn't there")
        return name

    fetched = [CachedModel(n, Path(n), size, "a test", "gguf") for n, size in (("large", 500), ("small", 20))]
    monkeypatch.setattr(glassgear.loading, "load", load)
    monkeypatch.setattr(pull, "cached", lambda: fetched)
    return names


def test_the_built_in_model_comes_first_and_then_the_smallest(asked: list[str]) -> None:
    assert model_of(Settings(), None) == "small"  # type: ignore[comparison-overlap]
    assert asked == [BUILT_IN, "small"]


def test_a_model_that_was_named_is_the_one(asked: list[str]) -> None:
    assert model_of(Settings(small=True), "named") == "named"  # type: ignore[comparison-overlap]
    with pytest.raises(NotFoundError):
        model_of(Settings(), "misspelt")
    assert asked == ["named", "misspelt"]


def test_at_the_smallest_sizes_none_is_looked_for(asked: list[str]) -> None:
    assert model_of(Settings(small=True), None) is None and not asked


def test_large_ones_are_left_alone(asked: list[str]) -> None:
    assert model_of(Settings(), None, most=10) is None
    assert asked == [BUILT_IN]

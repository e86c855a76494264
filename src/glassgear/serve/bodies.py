"""What a request's body may say; anything else in it is an error that names it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from glassgear.languages import Language
from glassgear.trace.changes import Activate, Change, Zero

__all__ = [
    "Asked",
    "BackAsked",
    "ChangeAsked",
    "ChooseAsked",
    "CompareAsked",
    "ModelAsked",
    "RunAsked",
    "SamplingAsked",
    "StepAsked",
]

MOST_STEPS = 512  # tokens in one request
Asked = Annotated[Language, Query(alias="lang")]  # the language of sentences in the answer


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelAsked(_Body):
    """Which model to load."""

    model: str = Field(min_length=1, max_length=4096)
    random: bool = False
    seed: int = Field(0, ge=0)


class SamplingAsked(_Body):
    """Sampling settings; what is left out is the model's recommendation, or the default."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None


class ChangeAsked(_Body):
    """One thing that a run does differently."""

    op: Literal["zero", "activation"]
    path: str = Field(max_length=300)
    head: int | None = None
    to: str | None = Field(None, max_length=40)

    def made(self) -> Change:
        """As `changes.py` has it."""
        return Zero(self.path, self.head) if self.op == "zero" else Activate(self.path, self.to or "")


class RunAsked(_Body):
    """A new run."""

    model: str = Field(min_length=1, max_length=4096)
    prompt: str = ""
    chat: bool = False
    system: str | None = None
    sampling: SamplingAsked = SamplingAsked()
    changes: list[ChangeAsked] = Field([], max_length=200)


class StepAsked(_Body):
    """How many tokens, and perhaps other settings from now on."""

    count: int = Field(1, ge=0, le=MOST_STEPS)
    sampling: SamplingAsked | None = None


class BackAsked(_Body):
    """How many tokens to forget."""

    count: int = Field(1, ge=0)


class ChooseAsked(_Body):
    """Which id to take."""

    id: int


class CompareAsked(_Body):
    """Two runs."""

    a: str
    b: str
    token: int | None = None

"""Mixture of experts: many feed-forward networks, of which each token uses a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from glassgear.errors import SettingError
from glassgear.model.gears.base import Gear, Shape
from glassgear.model.gears.ffn import FFN, GatedFFN

__all__ = ["Experts", "Router"]


@dataclass(frozen=True)
class Router(Gear):
    """Chooses experts for each token: [T, dim] -> `used` of `count` experts and their weights.

    scores = softmax or sigmoid of x W^T. Experts are chosen by scores plus `correction`, their
    weights are the scores themselves. With `groups`, only the experts of the best groups can be
    chosen: `groups_kept` of them, a group being worth its two best experts together (`top2`,
    DeepSeek-V3) or its best one (`max`, DeepSeek-V2). Equal scores: the lower number wins.

    Attributes:
        dim: inputs.
        count: experts.
        used: experts of a token.
        score: what turns logits into scores.
        correction: whether a stored bias takes part in the choice alone (DeepSeek-V3).
        groups: equal groups of neighbours; 1 for none.
        groups_kept: how many of them can be chosen from.
        group_score: see above.
        normalize: divide the weights by their sum (with 1e-20 added to it).
        scale: what the weights are multiplied by at the end.
    """

    dim: int
    count: int
    used: int
    score: Literal["softmax", "sigmoid"] = "softmax"
    correction: bool = False
    groups: int = 1
    groups_kept: int = 1
    group_score: Literal["top2", "max"] = "top2"
    normalize: bool = True
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.used <= self.count:
            raise SettingError(f"{self.used} of {self.count} experts can't be used")
        if self.groups < 1 or self.count % self.groups or not 1 <= self.groups_kept <= self.groups:
            raise SettingError(
                f"{self.count} experts can't be chosen from {self.groups_kept} of {self.groups} groups"
            )
        if self.used > self.groups_kept * (self.count // self.groups):
            raise SettingError(f"{self.groups_kept} groups hold fewer than {self.used} experts")

    @property
    def tensors(self) -> dict[str, Shape]:
        """`weight` [count, dim], and `correction` [count] where there is one."""
        extra: dict[str, Shape] = {"correction": (self.count,)} if self.correction else {}
        return {"weight": (self.count, self.dim)} | extra


@dataclass(frozen=True)
class Experts(Gear):
    """sum over a token's experts of weight * expert(x), and the shared expert's output.

    Parts: `router`, `experts.0`, `experts.1`, ... (all of one form) and `shared`.
    """

    label: ClassVar[str] = "ffn"

    router: Router
    expert: GatedFFN | FFN
    shared: GatedFFN | FFN | None = None

    @property
    def parts(self) -> dict[str, Gear]:
        """The router, every expert by number, the shared expert."""
        many: dict[str, Gear] = {f"experts.{i}": self.expert for i in range(self.router.count)}
        return {"router": self.router} | many | ({"shared": self.shared} if self.shared else {})

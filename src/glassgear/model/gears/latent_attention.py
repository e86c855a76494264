"""Multi-head latent attention: keys and values made from one short vector a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glassgear.errors import SettingError
from glassgear.model.gears.base import Gear
from glassgear.model.gears.linear import Linear
from glassgear.model.gears.norms import Norm
from glassgear.model.gears.rope import Rope

__all__ = ["LatentAttention"]


@dataclass(frozen=True)
class LatentAttention(Gear):
    """Attention whose cache holds a latent vector instead of keys and values (DeepSeek-V2, V3).

    latent = kv_norm(kv_down(x)[:kv_rank]) and one rotated key part of `rope.dim` channels that all
    heads share are all that is kept of a token: kv_rank + rope.dim values. Head h's key is
    [its rows of kv_up @ latent, the shared part], its value the other rows of kv_up @ latent.
    Absorbed form: as q . (W latent) = (W^T q) . latent, queries are carried to the latent's
    space instead, and the mixed latents are carried to values after the sum.

    Attributes:
        query: x -> queries directly; None where the two steps below are used.
        query_down: x -> a latent of the query.
        query_norm: over that latent.
        query_up: latent -> heads * (plain_dim + rope.dim), head by head: plain part, rotated part.
        kv_down: x -> kv_rank + rope.dim.
        kv_norm: over the first kv_rank of these.
        kv_up: kv_rank -> heads * (plain_dim + value_dim), head by head: key part, value.
        output: heads * value_dim -> dim.
        rope: of the rotated parts.
        plain_dim: channels of a head's query and key that aren't rotated.
        score_scale: what scores are multiplied by; None: 1 / sqrt(plain_dim + rope.dim).
    """

    label: ClassVar[str] = "attention"

    query: Linear | None
    query_down: Linear | None
    query_norm: Norm | None
    query_up: Linear | None
    kv_down: Linear
    kv_norm: Norm
    kv_up: Linear
    output: Linear
    rope: Rope
    heads: int
    plain_dim: int
    value_dim: int
    kv_rank: int
    score_scale: float | None = None

    def __post_init__(self) -> None:
        two_steps = self.query_down is not None and self.query_up is not None
        if (self.query is None) != two_steps:
            raise SettingError("latent attention makes queries in one step or in two, not in both or none")
        made = self.query if self.query is not None else self.query_up
        assert made is not None
        if made.outputs != self.heads * self.head_dim:
            raise SettingError(f"queries are {made.outputs} wide, not {self.heads} x {self.head_dim}")
        if self.kv_down.outputs != self.cache_dim:
            raise SettingError(f"kv_down makes {self.kv_down.outputs} values, not {self.cache_dim}")
        if self.kv_up.outputs != self.heads * (self.plain_dim + self.value_dim):
            raise SettingError(f"kv_up makes {self.kv_up.outputs} values, too many or too few for the heads")

    @property
    def parts(self) -> dict[str, Gear]:
        """In order of use: the output comes last."""
        found = super().parts
        return {name: found[name] for name in (*(n for n in found if n != "output"), "output")}

    @property
    def head_dim(self) -> int:
        """Width of a head's query and key."""
        return self.plain_dim + self.rope.dim

    @property
    def cache_dim(self) -> int:
        """Values kept of a token."""
        return self.kv_rank + self.rope.dim

    @property
    def scale(self) -> float:
        """What a score is multiplied by before softmax."""
        return float(self.head_dim**-0.5) if self.score_scale is None else self.score_scale

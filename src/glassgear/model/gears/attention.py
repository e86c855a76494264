"""Attention: the gear in which tokens see each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glassgear.errors import SettingError
from glassgear.model.gears.base import Gear
from glassgear.model.gears.linear import Linear
from glassgear.model.gears.norms import Norm
from glassgear.model.gears.rope import Rope

__all__ = ["Attention"]


@dataclass(frozen=True)
class Attention(Gear):
    """softmax(q k^T * scale) v over what each token may see, then W_o.

    Query head h reads key and value head h // (heads / kv_heads): MHA, GQA and MQA in one.

    Attributes:
        query: and `key`, `value`, `output`: the four projections.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head.
        rope: rotary positions, or None.
        query_norm: over each head's channels (`dim` = head_dim) or over all heads together
            (`dim` = heads * head_dim), before the rotation.
        key_norm: likewise.
        causal: a token sees itself and those before it; else all tokens of its sequence.
        window: how many tokens it sees at most, itself included; 0 for all.
        cap: above 0, scores s become cap * tanh(s / cap) (Gemma 2).
        score_scale: what scores are multiplied by; None: 1 / sqrt(head_dim).
    """

    label: ClassVar[str] = "attention"

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    causal: bool = True
    window: int = 0
    cap: float = 0.0
    score_scale: float | None = None

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise SettingError(f"{self.heads} query heads can't share {self.kv_heads} key/value heads evenly")
        if self.rope and self.rope.dim > self.head_dim:
            raise SettingError(f"rotary width {self.rope.dim} is more than a head's {self.head_dim}")
        if self.window < 0 or (self.window and not self.causal):
            raise SettingError(f"a window of {self.window} tokens needs causal attention and at least 1")
        for norm, heads in ((self.query_norm, self.heads), (self.key_norm, self.kv_heads)):
            if norm is not None and norm.dim not in (self.head_dim, heads * self.head_dim):
                raise SettingError(f"a norm of {norm.dim} channels fits neither one head nor all of them")

    @property
    def parts(self) -> dict[str, Gear]:
        """In order of use: the output comes last."""
        found = super().parts
        return {name: found[name] for name in (*(n for n in found if n != "output"), "output")}

    @property
    def scale(self) -> float:
        """What a score is multiplied by before softmax."""
        return float(self.head_dim**-0.5) if self.score_scale is None else self.score_scale

    @classmethod
    def build(
        cls,
        dim: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        *,
        rope: Rope | None = None,
        bias: bool = False,
        output_bias: bool = False,
        query_norm: Norm | None = None,
        key_norm: Norm | None = None,
        causal: bool = True,
        window: int = 0,
        cap: float = 0.0,
        score_scale: float | None = None,
    ) -> Attention:
        """The four projections from the sizes that configs give."""
        return cls(
            query=Linear(dim, heads * head_dim, bias),
            key=Linear(dim, kv_heads * head_dim, bias),
            value=Linear(dim, kv_heads * head_dim, bias),
            output=Linear(heads * head_dim, dim, output_bias),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope=rope,
            query_norm=query_norm,
            key_norm=key_norm,
            causal=causal,
            window=window,
            cap=cap,
            score_scale=score_scale,
        )

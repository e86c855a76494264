"""Which gears, and which of their fields, programs are made from: nothing else is ever passed over."""

from __future__ import annotations

from dataclasses import MISSING, fields

from glassgear.errors import SettingError
from glassgear.model.gears import (
    FFN,
    Affine,
    Attention,
    BatchNorm,
    Block,
    Bottleneck,
    Embed,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Neighbours,
    Pooler,
    Residual,
    RMSNorm,
    Rope,
    Router,
    ScaleNorm,
    TokenTypes,
    Transform,
    walk,
)

__all__ = ["check_known"]

KNOWN: dict[type[Gear], str] = {
    Affine: "dim",
    Attention: "query key value output heads kv_heads head_dim rope query_norm key_norm causal window cap "
    "score_scale",
    BatchNorm: "dim eps",
    Block: "steps",
    Bottleneck: "narrow narrow_norm shared shared_norm steps widen",
    Embed: "vocab dim scale",
    Experts: "router expert shared",
    FFN: "up down activation",
    GatedFFN: "gate up down activation",
    Head: "dim vocab tied bias cap extra",
    LatentAttention: "query query_down query_norm query_up kv_down kv_norm kv_up output rope heads plain_dim "
    "value_dim kv_rank score_scale",
    LayerNorm: "dim eps bias",
    LearnedPositions: "count dim offset",
    Linear: "inputs outputs bias",
    Model: "embed blocks norm head context family neighbours positions token_types embed_norm transform "
    "pooler",
    Neighbours: "mix",
    Pooler: "dense",
    RMSNorm: "dim eps offset",
    Residual: "norm gear post_norm sum_norm skip name",
    Rope: "dim theta pairing scaling",
    Router: "dim count used score correction groups groups_kept group_score normalize scale",
    ScaleNorm: "dim eps",
    TokenTypes: "count dim",
    Transform: "dense activation norm",
}


def check_known(model: Model) -> None:
    """Refuse what the CPU backend would have to leave out.

    Raises:
        SettingError: the gear, or the field of one, and where it is.
    """
    for path, gear in walk(model):
        _check(path or "the model", gear)
        for step in gear.steps if isinstance(gear, Block | Bottleneck) else ():
            _check(path, step)
        if isinstance(gear, Bottleneck):
            _check_bottleneck(path, gear)
        if isinstance(gear, LatentAttention) and gear.kv_up.bias:
            raise SettingError(f"the CPU backend has no bias for kv_up ({path}): use the reference backend")


def _check(path: str, gear: Gear) -> None:
    kind = type(gear)
    if kind not in KNOWN:
        raise SettingError(
            f"the CPU backend doesn't know {kind.__name__} ({path}): use the reference backend"
        )
    for field in fields(gear):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in KNOWN[kind].split() and getattr(gear, field.name) != default:
            raise SettingError(
                f"the CPU backend doesn't know `{field.name}` of {kind.__name__} ({path}): "
                "use the reference backend"
            )


def _check_bottleneck(path: str, gear: Bottleneck) -> None:
    for step in gear.steps:
        if isinstance(step.gear, Attention) and step.norm is not None:
            raise SettingError(
                f"attention inside a bottleneck reads no normed stream ({path}.{step.step}_norm): "
                "the CPU backend has no place for that norm"
            )
        if isinstance(step.gear, LatentAttention | Bottleneck):
            raise SettingError(
                f"the CPU backend knows no {type(step.gear).__name__} in a bottleneck ({path})"
            )

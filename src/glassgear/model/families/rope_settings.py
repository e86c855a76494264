"""RoPE settings as configs spell them, old and new, as one `RopeScaling`."""

from __future__ import annotations

from typing import Any

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.gears import Rope, RopeScaling
from glassgear.model.rope import yarn_attention_factor, yarn_magnitude
from glassgear.model.settings import Settings

__all__ = ["rope_from_gguf", "rope_from_hf"]


def rope_from_hf(
    config: Settings,
    head_dim: int,
    context: int,
    *,
    theta: float = 10000.0,
    partly: bool = False,
    partial: float = 1.0,
) -> Rope:
    """The rotary settings of a `config.json`.

    Older files: `rope_theta` and `rope_scaling` (`type` or `rope_type`). Newer ones:
    `rope_parameters` that holds all of it.

    Args:
        config: the keys.
        head_dim: width of a head.
        context: trained length.
        theta: the base where none is given.
        partly: whether the family knows heads of which only a part turns.
        partial: that part where none is given.
    """
    old, new = config.mapping("rope_scaling"), config.mapping("rope_parameters")
    values: dict[str, Any] = {**(old or {}), **(new or {})}
    inner = Settings(values, config.path, "rope_parameters." if new else "rope_scaling.")
    outer_theta = config.take("rope_theta", float, theta)
    outer_partial = config.take("partial_rotary_factor", float, partial)
    theta = inner.take("rope_theta", float, outer_theta)
    partial = inner.take("partial_rotary_factor", float, outer_partial)
    if not theta > 0:
        raise FormatError(config.path, f"`rope_theta` is {theta}; it must be above 0")
    if partial != 1 and not partly:
        raise UnsupportedError(
            config.path,
            f"`partial_rotary_factor` is {partial:g}, but models of this type turn whole heads "
            "(transformers ignores the key for them)",
        )
    if not 0 < partial <= 1:
        raise FormatError(config.path, f"`partial_rotary_factor` is {partial}, outside 0 to 1")
    dim = _even(int(head_dim * partial), config.path)
    legacy = inner.take("type", str, None)
    kind = inner.take("rope_type", str, legacy or "default")
    scaling = _scaling(kind, inner, context)
    inner.finish()
    return Rope(dim, theta, scaling=scaling)


def _even(dim: int, path: str) -> int:
    if dim <= 0 or dim % 2:
        raise FormatError(path, f"the rotary width is {dim}: it turns pairs, so it must be even")
    return dim


def _scaling(kind: str, s: Settings, context: int) -> RopeScaling | None:
    if kind in ("default", "none"):
        s.ignore(["factor", "attention_factor"])
        return None
    if kind not in ("linear", "llama3", "yarn"):
        raise UnsupportedError(s.path, f"RoPE scaling `{kind}` is not supported: linear, llama3 and yarn are")
    original = s.size("original_max_position_embeddings", context)
    # DeepSeek's files may leave the factor out: it is then the stretch of the context.
    factor = s.take("factor", float, context / original if kind == "yarn" else 0.0)
    if not factor > 0:
        raise FormatError(s.path, f"`{s.prefix}factor` is {factor:g}; {kind} scaling needs one above 0")
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "llama3":
        low, high = s.take("low_freq_factor", float), s.take("high_freq_factor", float)
        if not 0 < low < high:
            raise FormatError(s.path, f"low_freq_factor {low:g} must be above 0 and below {high:g}")
        return RopeScaling("llama3", factor, original, low, high)
    magnitude = yarn_attention_factor(
        factor,
        s.take("attention_factor", float, None),
        s.take("mscale", float, None),
        s.take("mscale_all_dim", float, None),
    )
    return RopeScaling(
        "yarn",
        factor,
        original,
        beta_fast=s.take("beta_fast", float, 0.0) or 32.0,
        beta_slow=s.take("beta_slow", float, 0.0) or 1.0,
        attention_factor=magnitude,
        truncate=s.take("truncate", bool, True),
    )


def rope_from_gguf(
    config: Settings,
    head_dim: int,
    context: int,
    factors: tuple[float, ...] | None,
    *,
    on_scores: bool = False,
) -> Rope:
    """The rotary settings of GGUF metadata (`<arch>.rope.*`).

    Args:
        config: the keys under the architecture's prefix.
        head_dim: width of a head.
        context: trained length.
        factors: the file's `rope_freqs.weight`, which divides the frequencies (Llama 3.1).
        on_scores: whether the family multiplies scores by what `yarn_log_multiplier` says; cos and
            sin stay as they are then.
    """
    dim = _even(config.size("rope.dimension_count", head_dim), config.path)
    theta = config.take("rope.freq_base", float, 10000.0)
    kind = config.take("rope.scaling.type", str, "none")
    old_linear = config.take("rope.scale_linear", float, 0.0)
    factor = config.take("rope.scaling.factor", float, old_linear)
    original = config.size("rope.scaling.original_context_length", context, least=0) or context
    magnitude = config.take("rope.scaling.attn_factor", float, 1.0)
    log_multiplier = config.take("rope.scaling.yarn_log_multiplier", float, 0.0)
    fast = config.take("rope.scaling.yarn_beta_fast", float, 32.0)
    slow = config.take("rope.scaling.yarn_beta_slow", float, 1.0)
    config.only("rope.scaling.yarn_ext_factor", 1.0, -1.0)
    config.ignore(["rope.scaling.finetuned"])
    if not theta > 0 or factor < 0:
        raise FormatError(config.path, f"impossible RoPE settings: base {theta:g}, factor {factor:g}")
    if log_multiplier and not on_scores:
        raise UnsupportedError(config.path, "`rope.scaling.yarn_log_multiplier` is not supported")
    scaling: RopeScaling | None = None
    if factors is not None:
        if kind not in ("none", "llama3") and factor not in (0.0, 1.0):
            raise UnsupportedError(config.path, f"holds both rope_freqs and `{kind}` RoPE scaling")
        if len(factors) != dim // 2 or not all(f > 0 for f in factors):
            raise FormatError(
                config.path,
                f"rope_freqs.weight should hold {dim // 2} positive factors, found {len(factors)}",
            )
        scaling = RopeScaling("factors", factors=factors)
    elif kind == "linear" or (kind == "none" and old_linear):
        scaling = RopeScaling("linear", factor) if factor not in (0.0, 1.0) else None
    elif kind == "yarn":
        stretch = factor or 1.0
        scaling = RopeScaling(
            "yarn", stretch, original, beta_fast=fast, beta_slow=slow,
            attention_factor=magnitude if log_multiplier else magnitude * yarn_magnitude(stretch),
        )  # fmt: skip
    elif kind != "none":
        raise UnsupportedError(config.path, f"RoPE scaling `{kind}` is not supported: linear and yarn are")
    return Rope(dim, theta, scaling=scaling)

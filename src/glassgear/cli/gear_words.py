"""What a gear is set to, in a few words, for drawings and tables."""

from __future__ import annotations

from functools import singledispatch

from glassgear.model.gears import (
    FFN,
    Attention,
    Block,
    Bottleneck,
    Embed,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    Residual,
    RMSNorm,
    Rope,
    Transform,
)

__all__ = ["activation", "heads", "place", "theta", "words"]


@singledispatch
def words(gear: Gear) -> str:
    """What the shapes of a gear's tensors don't say; empty if nothing."""
    return ""


def place(steps: tuple[Residual, ...]) -> str:
    """Where a block's norms are: `pre-norm`, `post-norm`, `sandwich`, ...; and where the path past is cut."""
    places = set(map(_place, steps))
    found = places.pop() if len(places) == 1 else ", ".join(f"{s.step} {_place(s)}" for s in steps)
    cut = [step.step for step in steps if not step.skip]
    if not cut:
        return found
    return f"{found}, no residual" + ("" if len(cut) == len(steps) else f" past {', '.join(cut)}")


def _place(step: Residual) -> str:
    found = step.norm is not None, step.post_norm is not None, step.sum_norm is not None
    known = {
        (True, False, False): "pre-norm",
        (False, False, True): "post-norm",
        (True, True, False): "sandwich",
        (False, True, False): "norm before the sum",
        (False, False, False): "no norms",
    }
    return known.get(found, "pre- and post-norm")


def heads(gear: Attention | LatentAttention) -> str:
    """`32 heads`, `32 heads on 8`, with the kind in front: MHA, GQA, MQA, MLA."""
    if isinstance(gear, LatentAttention):
        return f"MLA, {gear.heads} heads"
    if gear.kv_heads == gear.heads:
        return f"MHA, {_many(gear.heads, 'head')}"
    return f"{'MQA' if gear.kv_heads == 1 else 'GQA'}, {gear.heads} heads on {gear.kv_heads}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


@words.register
def _attention(gear: Attention) -> str:
    facts = [heads(gear), f"{gear.head_dim} wide"]
    if not gear.causal:
        facts.append("all see all")
    if gear.window:
        facts.append(f"window {gear.window:,}")
    if gear.cap:
        facts.append(f"cap {gear.cap:g}")
    return ", ".join(facts)


@words.register
def _latent(gear: LatentAttention) -> str:
    return f"{heads(gear)}, latent {gear.kv_rank} + {gear.rope.dim} rotated"


def theta(gear: Rope) -> str:
    """The base of the rotation as people write it."""
    return f"{gear.theta:,.0f}" if gear.theta == int(gear.theta) else f"{gear.theta:g}"


@words.register
def _rope(gear: Rope) -> str:
    scaling = f", {gear.scaling.kind} scaling" if gear.scaling else ""
    return f"theta {theta(gear)}, {gear.dim} channels, {gear.pairing}{scaling}"


@words.register
def _experts(gear: Experts) -> str:
    router = gear.router
    facts = [f"{router.used} of {router.count:,} by {router.score}"]
    if router.groups > 1:
        facts.append(f"{router.groups_kept} of {router.groups} groups")
    if gear.shared is not None:
        facts.append("1 shared")
    return ", ".join(facts)


def activation(gear: Gear) -> str:
    """`SwiGLU`, `GELU (tanh)`, ...: a feed-forward network by its activation; of experts, one's."""
    if isinstance(gear, Experts):
        return activation(gear.expert)
    if isinstance(gear, Bottleneck):
        return activation(
            next((s.gear for s in gear.steps if isinstance(s.gear, FFN | GatedFFN)), gear.widen)
        )
    if isinstance(gear, GatedFFN):
        gated = {"silu": "SwiGLU", "gelu": "GeGLU", "gelu_tanh": "GeGLU (tanh)", "relu": "ReGLU"}
        return gated.get(gear.activation, "bilinear gate")
    if isinstance(gear, FFN):
        plain = {"silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh)", "relu": "ReLU"}
        return plain.get(gear.activation, "none: it is one linear map")
    return ""


@words.register
def _head(gear: Head) -> str:
    facts = ["the embedding's table (tied)"] if gear.tied else []
    return ", ".join([*facts, *([f"cap {gear.cap:g}"] if gear.cap else [])])


@words.register
def _embed(gear: Embed) -> str:
    return "" if gear.scale == 1 else f"times {gear.scale:.4g}"


@words.register(FFN)
@words.register(GatedFFN)
def _ffn(gear: Gear) -> str:
    return activation(gear)


@words.register(Block)
@words.register(Bottleneck)
def _block(gear: Block | Bottleneck) -> str:
    return place(gear.steps)


@words.register
def _rms_norm(gear: RMSNorm) -> str:
    return "stored less 1" if gear.offset else ""


@words.register
def _transform(gear: Transform) -> str:
    return gear.activation.replace("_", " ")

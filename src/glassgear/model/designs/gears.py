"""One gear from one table: norms, positions, attention, feed-forward networks, the head."""

from __future__ import annotations

from glassgear.model.designs.sections import View
from glassgear.model.gears import (
    FFN,
    Activation,
    Affine,
    Attention,
    BatchNorm,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    Linear,
    Norm,
    RMSNorm,
    Rope,
    RopeScaling,
    Router,
    ScaleNorm,
)
from glassgear.model.rope import yarn_attention_factor

__all__ = ["PLACES", "attention", "ffn", "head", "networks_of", "norm", "norm_place", "positions_kind"]

NORMS = ("rmsnorm", "layernorm", "scalenorm", "batchnorm", "affine", "none")
PLACES = ("pre", "post", "sandwich", "none")
POSITIONS = ("rope", "learned", "none")
ATTENTIONS = ("mha", "gqa", "mqa", "mla")
ACTIVATIONS: tuple[Activation, ...] = ("relu", "gelu", "gelu_tanh", "silu", "identity")
MEANINGS = {
    "swiglu": 'kind "gated" with activation "silu"', "geglu": 'kind "gated" with activation "gelu"',
    "reglu": 'kind "gated" with activation "relu"', "swish": '"silu"', "gelu_new": '"gelu_tanh"',
    "gelu_pytorch_tanh": '"gelu_tanh"', "none": '"identity"',
}  # fmt: skip
LATENT_KEYS = ("query_rank", "kv_rank", "plain_dim", "rope_dim", "value_dim")
PLAIN_KEYS = ("kv_heads", "head_dim", "causal", "window", "bias", "output_bias", "query_key_norm", "cap")
ROPE_KEYS = ("theta", "dim", "pairing", "scaling")
MOST_EXPERTS = 10_000


def norm(view: View, dim: int) -> Norm | None:
    """The norm that `[norm]` describes, for rows of `dim` channels."""
    kind = view.choice("kind", NORMS, "rmsnorm")
    if kind not in ("none", "affine"):
        eps = view.number("eps", 1e-5, above=0)
        if eps > 1:
            view.refuse("eps", "should be small, 1 at most")
    if kind != "layernorm":
        view.inapplicable(["bias"], 'goes with kind "layernorm"')
    if kind != "rmsnorm":
        view.inapplicable(["offset"], 'goes with kind "rmsnorm"')
    if kind in ("none", "affine"):
        view.inapplicable(["eps"], f'has no meaning for kind "{kind}"')
        return None if kind == "none" else Affine(dim)
    if kind == "rmsnorm":
        return RMSNorm(dim, eps, view.number("offset", 0.0))
    if kind == "layernorm":
        return LayerNorm(dim, eps, view.flag("bias", True))
    return ScaleNorm(dim, eps) if kind == "scalenorm" else BatchNorm(dim, eps)


def norm_place(view: View) -> str:
    """Where a block's norms are: one of `PLACES`."""
    kind = view.choice("kind", NORMS, "rmsnorm")
    place = view.choice("place", PLACES, "none" if kind == "none" else "pre")
    if kind == "none" and place != "none" and view.together("kind", "place"):
        view.refuse("place", 'has no meaning for kind "none"')
    return "none" if kind == "none" else place


def positions_kind(view: View) -> str:
    """One of `POSITIONS`."""
    kind = view.choice("kind", POSITIONS, "rope")
    if kind != "rope":
        view.inapplicable(ROPE_KEYS, f'goes with kind "rope", and this is "{kind}"')
    return kind


def rope(view: View, width: int, context: int, *, whole: bool = False) -> Rope:
    """The rotation of heads.

    Args:
        view: `[positions]`.
        width: of a head's part that may turn.
        context: trained length.
        whole: whether all of it turns (latent attention).
    """
    if whole:
        view.inapplicable(["dim"], "is said by `attention.rope_dim` for latent attention")
    dim = width if whole else view.integer("dim", width, most=width)
    if dim % 2:
        why = "must be even, because channels turn in pairs"
        if view.has("dim") and not whole:
            view.refuse("dim", why)
        view.refuse("dim", f'{why}: a head is {width} wide; say another width, or positions "none"')
    theta = view.number("theta", 10000.0, above=0)
    pairing = view.choice("pairing", ("half", "interleaved"), "half")
    scaling = _scaling(view.inner("scaling"), context) if view.has("scaling") else None
    return Rope(dim, theta, "half" if pairing == "half" else "interleaved", scaling)


def _scaling(view: View, context: int) -> RopeScaling | None:
    kind = view.choice("kind", ("linear", "llama3", "yarn", "none"), "none")
    keys = {"llama3": ["low_freq_factor", "high_freq_factor"],
            "yarn": ["beta_fast", "beta_slow", "attention_factor", "truncate"]}  # fmt: skip
    for other, names in keys.items():
        if other != kind:
            view.inapplicable(names, f'goes with kind "{other}"')
    if kind == "none":
        view.inapplicable(["factor", "original_context"], "has no meaning without a kind of scaling")
        return None
    if not view.has("factor"):
        view.refuse("factor", "is missing: how many times longer the context becomes")
    factor = view.number("factor", 1.0, above=0)
    if kind == "linear":
        view.inapplicable(["original_context"], 'goes with kinds "llama3" and "yarn"')
        return RopeScaling("linear", factor)
    original = view.integer("original_context", context)
    if kind == "llama3":
        low, high = (
            view.number("low_freq_factor", 1.0, above=0),
            view.number("high_freq_factor", 4.0, above=0),
        )
        if low >= high:
            view.refuse("high_freq_factor", f"should be above low_freq_factor, {low:g}")
        return RopeScaling("llama3", factor, original, low, high)
    return RopeScaling(
        "yarn", factor, original,
        beta_fast=view.number("beta_fast", 32.0, above=0), beta_slow=view.number("beta_slow", 1.0, above=0),
        attention_factor=view.number("attention_factor", yarn_attention_factor(factor), above=0),
        truncate=view.flag("truncate", True),
    )  # fmt: skip


def attention(
    view: View, positions: View, norms: View, dim: int, context: int, rotary: bool
) -> Attention | LatentAttention:
    """The attention that `[attention]` describes.

    Args:
        view: `[attention]`.
        positions: `[positions]`.
        norms: `[norm]`: of queries and keys, or of latents.
        dim: width of the stream.
        context: trained length.
        rotary: whether positions are rotary.
    """
    kind = view.choice("kind", ATTENTIONS, "")
    heads = view.integer("heads", what="how many query heads there are")
    scale = view.number("scale", 0.0, above=0) if view.has("scale") else None
    if kind == "mla":
        view.inapplicable(
            PLAIN_KEYS, 'doesn\'t go with kind "mla", which is causal and has keys for every head'
        )
        if not rotary:
            view.refuse("kind", 'can only be "mla" with positions "rope": a part of each latent key turns')
        return _latent(view, positions, norms, dim, heads, context, scale)
    view.inapplicable(LATENT_KEYS, 'goes with kind "mla"')
    kv_heads = _kv_heads(view, kind, heads)
    if not view.has("head_dim") and dim % heads:
        view.refuse("heads", f"must divide dim, {dim:,}, where no head_dim is given")
    head_dim = view.integer("head_dim", dim // heads or 1)
    causal, bias = view.flag("causal", True), view.flag("bias", False)
    window = view.integer("window", 0, least=0)
    if window and not causal:
        view.refuse("window", "needs causal attention: tokens before a token are counted, not those after it")
    each = view.choice("query_key_norm", ("none", "head", "all"), "none")
    widths = (head_dim, head_dim) if each == "head" else (heads * head_dim, kv_heads * head_dim)
    query_norm, key_norm = (
        (None, None) if each == "none" else (norm(norms, widths[0]), norm(norms, widths[1]))
    )
    return Attention.build(
        dim, heads, kv_heads, head_dim,
        rope=rope(positions, head_dim, context) if rotary else None,
        bias=bias, output_bias=view.flag("output_bias", bias), query_norm=query_norm, key_norm=key_norm,
        causal=causal, window=window, cap=view.number("cap", 0.0, least=0), score_scale=scale,
    )  # fmt: skip


def _kv_heads(view: View, kind: str, heads: int) -> int:
    if kind == "gqa" and not view.has("kv_heads"):
        view.refuse("kv_heads", "is missing: how many key and value heads the query heads share")
    count = view.integer("kv_heads", 1 if kind == "mqa" else heads)
    if heads % count:
        view.refuse("kv_heads", f"must divide heads, {heads}, because each is shared by as many query heads")
    if kind == "mha" and count != heads:
        view.refuse("kv_heads", f'must be heads, {heads}, for kind "mha"; "gqa" shares them')
    if kind == "mqa" and count != 1:
        view.refuse("kv_heads", 'must be 1 for kind "mqa"; "gqa" has several')
    return count


def _latent(
    view: View, positions: View, norms: View, dim: int, heads: int, context: int, scale: float | None
) -> LatentAttention:
    """Multi-head latent attention; latents are normed as blocks are, or by RMSNorm where these aren't."""
    plain = view.integer("plain_dim", what="channels of a head's query and key that don't turn")
    turning = view.integer("rope_dim", what="channels of a head's query and key that turn")
    if turning % 2:
        view.refuse("rope_dim", "must be even, because channels turn in pairs")
    kv_rank = view.integer("kv_rank", what="width of the latent that is cached for each token")
    query_rank = view.integer("query_rank", 0, least=0)
    value = view.integer("value_dim", plain)
    width = heads * (plain + turning)
    return LatentAttention(
        query=None if query_rank else Linear(dim, width),
        query_down=Linear(dim, query_rank) if query_rank else None,
        query_norm=_latent_norm(norms, query_rank) if query_rank else None,
        query_up=Linear(query_rank, width) if query_rank else None,
        kv_down=Linear(dim, kv_rank + turning),
        kv_norm=_latent_norm(norms, kv_rank),
        kv_up=Linear(kv_rank, heads * (plain + value)),
        output=Linear(heads * value, dim),
        rope=rope(positions, turning, context, whole=True),
        heads=heads, plain_dim=plain, value_dim=value, kv_rank=kv_rank, score_scale=scale,
    )  # fmt: skip


def _latent_norm(norms: View, dim: int) -> Norm:
    return norm(norms, dim) or RMSNorm(dim, 1e-5)


def ffn(view: View, dim: int) -> FFN | GatedFFN | Experts:
    """The feed-forward network that `[ffn]` describes, or several of which a token uses some."""
    kind = view.choice("kind", ("gated", "plain"), "gated")
    gated = kind == "gated"
    hidden = view.integer("hidden", _usual_width(dim, gated))
    activation = view.choice("activation", ACTIVATIONS, "silu" if gated else "gelu", MEANINGS)
    bias = view.flag("bias", False)

    def network(width: int) -> FFN | GatedFFN:
        chosen = next(known for known in ACTIVATIONS if known == activation)
        build = GatedFFN.build if gated else FFN.build
        return build(dim, width, activation=chosen, bias=bias)

    experts = view.inner("experts")
    if not experts.sections or experts.choice("kind", ("routed", "none"), "routed") == "none":
        return network(hidden)
    shared = experts.integer("shared", 0, least=0, most=MOST_EXPERTS)
    return Experts(_router(experts, dim), network(hidden), network(shared * hidden) if shared else None)


def networks_of(gear: Gear) -> int:
    """How many feed-forward networks a step has, experts counted one by one."""
    return gear.router.count if isinstance(gear, Experts) else int(isinstance(gear, FFN | GatedFFN))


def _usual_width(dim: int, gated: bool) -> int:
    """4 dim; of a gated network 8/3 dim, which has as many parameters, up to a multiple of 32."""
    return -(-8 * dim // 96) * 32 if gated else 4 * dim


def _router(view: View, dim: int) -> Router:
    count = view.integer("count", what="how many experts there are", most=MOST_EXPERTS)
    used = view.integer("used", what="how many of them a token uses")
    if used > count:
        view.refuse("used", f"can't be more than count, {count}")
    groups = view.integer("groups", 1)
    if count % groups:
        view.refuse("groups", f"must divide count, {count}")
    kept = view.integer("groups_kept", groups, most=groups)
    if used > kept * (count // groups):
        view.refuse("groups_kept", f"leaves {kept * (count // groups)} experts to choose {used} from")
    score = view.choice("score", ("softmax", "sigmoid"), "softmax")
    group_score = view.choice("group_score", ("top2", "max"), "top2")
    return Router(
        dim, count, used,
        score="softmax" if score == "softmax" else "sigmoid",
        correction=view.flag("correction", False), groups=groups, groups_kept=kept,
        group_score="top2" if group_score == "top2" else "max",
        normalize=view.flag("normalize", True), scale=view.number("scale", 1.0, above=0),
    )  # fmt: skip


def head(view: View, dim: int, vocab: int) -> Head | None:
    """Logits from hidden states, or none."""
    kind = view.choice("kind", ("tied", "own", "none"), "tied")
    if kind == "none":
        view.inapplicable(["bias", "cap"], 'has no meaning without a head: kind is "none"')
        return None
    return Head(dim, vocab, kind == "tied", view.flag("bias", False), view.number("cap", 0.0, least=0))

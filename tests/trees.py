"""One small model for every gear and every way of putting gears together, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from glassgear.model.gears import (
    FFN,
    Activation,
    Affine,
    Attention,
    BatchNorm,
    Block,
    Bottleneck,
    Embed,
    Experts,
    GatedFFN,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Neighbours,
    Norm,
    Pooler,
    Residual,
    RMSNorm,
    Rope,
    RopeScaling,
    Router,
    ScaleNorm,
    TokenTypes,
    Transform,
)

DIM, VOCAB, CONTEXT = 48, 67, 64
ROPE = Rope(16, 10000.0)


def rms(dim: int = DIM) -> Norm:
    return RMSNorm(dim, 1e-5)


def layer(dim: int = DIM) -> Norm:
    return LayerNorm(dim, 1e-5)


def attention(**changes: object) -> Attention:
    settings: dict[str, object] = {"rope": ROPE} | changes
    return Attention.build(DIM, 6, 2, 16, **settings)  # type: ignore[arg-type]


def gated(activation: Activation = "silu", bias: bool = False) -> GatedFFN:
    return GatedFFN.build(DIM, 72, activation=activation, bias=bias)


def plain(activation: Activation = "relu", bias: bool = True) -> FFN:
    return FFN.build(DIM, 80, activation=activation, bias=bias)


def model(*steps: Residual, layers: int = 2, **changes: object) -> Model:
    made = Model(Embed(VOCAB, DIM), (Block(steps),) * layers, rms(), Head(DIM, VOCAB, True), CONTEXT)
    return replace(made, **changes)  # type: ignore[arg-type]


def pre(gear: object, norm: Norm | None = None) -> Residual:
    return Residual(norm or rms(), gear)  # type: ignore[arg-type]


def latent(query_rank: int, pairing: str) -> LatentAttention:
    heads, plain_dim, turned, value, rank = 4, 12, 8, 10, 20
    wide = heads * (plain_dim + turned)
    return LatentAttention(
        query=None if query_rank else Linear(DIM, wide),
        query_down=Linear(DIM, query_rank) if query_rank else None,
        query_norm=rms(query_rank) if query_rank else None,
        query_up=Linear(query_rank, wide) if query_rank else None,
        kv_down=Linear(DIM, rank + turned),
        kv_norm=rms(rank),
        kv_up=Linear(rank, heads * (plain_dim + value)),
        output=Linear(heads * value, DIM),
        rope=Rope(turned, 10000.0, pairing),  # type: ignore[arg-type]
        heads=heads,
        plain_dim=plain_dim,
        value_dim=value,
        kv_rank=rank,
    )


def experts(**changes: object) -> Experts:
    settings: dict[str, object] = {"dim": DIM, "count": 8, "used": 3} | changes
    return Experts(Router(**settings), GatedFFN.build(DIM, 24), GatedFFN.build(DIM, 40))  # type: ignore[arg-type]


def encoder(**changes: object) -> Model:
    """BERT in small."""
    steps = (
        Residual(None, attention(rope=None, causal=False, bias=True, output_bias=True), sum_norm=layer()),
        Residual(None, plain("gelu"), sum_norm=layer()),
    )
    made = model(
        *steps,
        norm=None,
        head=Head(DIM, VOCAB, True, bias=True),
        positions=LearnedPositions(CONTEXT, DIM),
        token_types=TokenTypes(2, DIM),
        embed_norm=layer(),
        transform=Transform(Linear(DIM, DIM, True), "gelu", layer()),
        pooler=Pooler(Linear(DIM, DIM, True)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def narrow_encoder() -> Model:
    """MobileBERT in small: a wide stream of 48, a narrow one of 32, embeddings of 16."""
    inner = Attention(
        Linear(32, 32, True), Linear(32, 32, True), Linear(DIM, 32, True), Linear(32, 32, True),
        heads=4, kv_heads=4, head_dim=8, causal=False,
    )  # fmt: skip
    ffn = FFN.build(32, 64, activation="relu")
    steps = (
        Residual(None, inner, sum_norm=Affine(32)),
        Residual(None, ffn, sum_norm=Affine(32), name="ffn_0"),
        Residual(None, ffn, sum_norm=Affine(32), name="ffn_1"),
    )
    bottleneck = Bottleneck(
        Linear(DIM, 32, True), Affine(32), Linear(DIM, 32, True), Affine(32), steps, Linear(32, DIM, True)
    )
    return encoder(
        embed=Embed(VOCAB, 16),
        neighbours=Neighbours(Linear(48, DIM, True)),
        embed_norm=Affine(DIM),
        blocks=(Block((Residual(None, bottleneck, sum_norm=Affine(DIM)),)),) * 2,
        head=Head(DIM, VOCAB, True, bias=True, extra=DIM - 16),
        transform=Transform(Linear(DIM, DIM, True), "relu", layer()),
        pooler=None,
    )


def two_ropes() -> Model:
    """Gemma 3 in small: sandwich norms, two rotations, a window in all layers but one."""
    local = attention(
        rope=Rope(16, 10000.0), window=5, score_scale=0.2, cap=4.0,
        query_norm=RMSNorm(16, 1e-6, 1.0), key_norm=RMSNorm(16, 1e-6, 1.0),
    )  # fmt: skip
    whole = replace(local, rope=Rope(16, 1e6, scaling=RopeScaling("linear", 8.0)), window=0)
    norm = RMSNorm(DIM, 1e-6, 1.0)
    blocks = tuple(
        Block((Residual(norm, gear, post_norm=norm), Residual(norm, gated("gelu_tanh"), post_norm=norm)))
        for gear in (local, whole, local)
    )
    return Model(Embed(VOCAB, DIM, scale=DIM**0.5), blocks, norm, Head(DIM, VOCAB, True, cap=6.0), CONTEXT)


TREES: dict[str, Callable[[], Model]] = {
    "llama": lambda: model(pre(attention()), pre(gated())),
    "biases, untied, whole-width q and k norms": lambda: model(
        pre(attention(bias=True, output_bias=True, query_norm=rms(96), key_norm=rms(32))),
        pre(gated("gelu", bias=True)),
        head=Head(DIM, VOCAB, False, bias=True),
    ),
    "learned positions, LayerNorm, plain FFN": lambda: model(
        pre(attention(rope=None, bias=True, output_bias=True), layer()), pre(plain("gelu_tanh"), layer()),
        positions=LearnedPositions(CONTEXT + 2, DIM, offset=2), norm=layer(),
    ),
    "window": lambda: model(pre(attention(window=4)), pre(gated())),
    "partly turned, interleaved": lambda: model(
        pre(attention(rope=Rope(8, 5000.0, "interleaved"))), pre(gated("relu"))
    ),
    "two rotations": two_ropes,
    "norms on the branch alone": lambda: model(
        Residual(None, attention(), post_norm=rms()), Residual(None, gated(), post_norm=rms())
    ),
    "post-norm": lambda: model(
        Residual(None, attention(), sum_norm=layer()), Residual(None, plain("silu", False), sum_norm=layer()),
        norm=None,
    ),
    "all norms": lambda: model(
        Residual(ScaleNorm(DIM, 1e-5), attention(), BatchNorm(DIM, 1e-5), Affine(DIM)),
        Residual(BatchNorm(DIM, 1e-5), plain("identity"), ScaleNorm(DIM, 1e-5), LayerNorm(DIM, 1e-5, False)),
        norm=BatchNorm(DIM, 1e-5),
    ),
    "no residual": lambda: model(
        Residual(rms(), attention(), skip=False), Residual(None, gated(), rms(), skip=False)
    ),
    "attention alone": lambda: model(pre(attention(rope=None))),
    "FFN alone": lambda: model(Residual(None, FFN.build(DIM, 192), skip=False), layers=1, norm=None),
    "three steps": lambda: model(
        pre(attention()), pre(gated()), Residual(rms(), plain(), name="second_ffn"), layers=1
    ),
    "experts by softmax": lambda: model(pre(attention()), pre(experts())),
    "experts in groups": lambda: model(
        pre(attention()),
        pre(experts(score="sigmoid", correction=True, groups=4, groups_kept=2, used=2, scale=2.5)),
    ),
    "experts of the best groups": lambda: model(
        pre(attention()),
        pre(experts(groups=4, groups_kept=3, group_score="max", normalize=False, scale=16.0)),
    ),
    "latent attention": lambda: model(pre(latent(0, "half")), pre(gated())),
    "latent attention, queries too": lambda: model(pre(latent(18, "interleaved")), pre(gated())),
    "encoder": encoder,
    "narrow encoder": narrow_encoder,
    "encoder without a head": lambda: encoder(head=None, transform=None),
}  # fmt: skip

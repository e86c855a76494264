"""Small models over all gears: some by name, and any number drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    Router,
    ScaleNorm,
    TokenTypes,
    Transform,
    tensors,
)
from glassgear.weights.quant import TYPES
from glassgear.weights.tensor import StoredTensor

from .support import stored

EPS = 1e-5
VOCAB = 61


def weights(model: Model, seed: int = 0, type_name: str = "F32") -> dict[str, StoredTensor]:
    """Random tensors; matrices in which rows fill whole blocks are stored as `type_name`."""
    rng = np.random.default_rng(seed)
    made = {}
    for path, shape in tensors(model).items():
        if (
            len(shape) == 2
            and type_name != "F32"
            and shape[1] % TYPES[type_name].values == 0
            and "router" not in path
        ):
            made[path] = _sized(stored(rng, type_name, *shape))
            continue
        values = rng.standard_normal(shape)
        values = values * shape[-1] ** -0.5 if len(shape) == 2 else values * 0.2
        if "norm" in path and path.endswith("weight"):
            values = 1 + values
        elif path.endswith("variance"):
            values = 0.5 + values * values * 10
        raw = np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(-1)
        made[path] = StoredTensor(path, "F32", shape, raw, "random")
    return made


def _sized(tensor: StoredTensor) -> StoredTensor:
    """The same codes, with scales that keep the size of what passes through them."""
    factor = np.float32(tensor.shape[-1] ** -0.5) / tensor.float32().std()
    blocks = tensor.data.view(TYPES[tensor.type].layout)
    for name in {"scale", "minimum", "value"} & set(blocks.dtype.names or ()):
        if blocks[name].dtype == np.float16:
            blocks[name] = blocks[name] * np.float16(factor)
        else:  # BF16: a power of two is taken off its exponent
            blocks[name] -= np.uint16(round(np.log2(1 / factor))) << np.uint16(7)
    return tensor


def norm(kind: str, dim: int) -> Norm | None:
    """A norm by name."""
    return {
        "rms": RMSNorm(dim, EPS), "rms1": RMSNorm(dim, EPS, 1.0), "layer": LayerNorm(dim, EPS),
        "layer without bias": LayerNorm(dim, EPS, bias=False), "scale": ScaleNorm(dim, EPS),
        "batch": BatchNorm(dim, EPS), "affine": Affine(dim), "none": None,
    }[kind]  # fmt: skip


NORMS = ("rms", "rms1", "layer", "layer without bias", "scale", "batch", "affine")


def whole(blocks: list[Block], dim: int, **changes: Any) -> Model:
    """A model around blocks."""
    fields: dict[str, Any] = {
        "embed": Embed(VOCAB, dim), "blocks": tuple(blocks), "norm": RMSNorm(dim, EPS),
        "head": Head(dim, VOCAB, tied=False), "context": 1024,
    }  # fmt: skip
    return Model(**(fields | changes))


def places(kind: str, where: str, dim: int = 48, hidden: int = 72) -> Model:
    """Norms of one kind in one place."""
    made, names = norm(kind, dim), ("norm", "post_norm", "sum_norm")
    chosen = {name: made if name[:3] in where else None for name in names}
    attention = Attention.build(dim, 4, 2, 12, rope=Rope(8, 1e4), bias=True, output_bias="pos" in where)
    steps = (
        Residual(gear=attention, **chosen),
        Residual(gear=GatedFFN.build(dim, hidden, activation="gelu", bias=True), **chosen),
        Residual(gear=FFN.build(dim, 64, activation="relu"), norm=norm("rms", dim), skip=False, name="mlp"),
    )
    return whole([Block(steps)] * 2, dim, norm=made)


def gpt(dim: int = 64) -> Model:
    """LayerNorm, plain networks, learned positions, all biases."""
    block = Block(
        (
            Residual(LayerNorm(dim, EPS), Attention.build(dim, 4, 4, 16, bias=True, output_bias=True)),
            Residual(LayerNorm(dim, EPS), FFN.build(dim, 4 * dim, activation="gelu_tanh")),
        )
    )
    head = Head(dim, VOCAB, tied=True, bias=True, cap=2.0)
    return whole(
        [block] * 2, dim, norm=LayerNorm(dim, EPS), head=head, positions=LearnedPositions(700, dim, 2)
    )


def gemma(dim: int = 64) -> Model:
    """Sandwich norms, two rotations, windows, soft caps, norms of queries and keys, a scaled embedding."""
    blocks = []
    for i in range(3):
        attention = Attention.build(
            dim, 4, 1, 16, rope=Rope(16, 1e4 if i % 2 else 1e6), query_norm=RMSNorm(16, EPS, 1.0),
            key_norm=RMSNorm(16, EPS, 1.0), window=20 if i % 2 else 0, cap=3.0, score_scale=0.3,
        )  # fmt: skip
        steps = [
            Residual(RMSNorm(dim, EPS, 1.0), gear, post_norm=RMSNorm(dim, EPS, 1.0))
            for gear in (attention, GatedFFN.build(dim, 96, activation="gelu_tanh"))
        ]
        blocks.append(Block(tuple(steps)))
    return whole(blocks, dim, embed=Embed(VOCAB, dim, 8.0), head=Head(dim, VOCAB, tied=True, cap=5.0))


def olmo(dim: int = 40) -> Model:
    """Norms behind the gears, and over all heads together; odd widths."""
    attention = Attention.build(
        dim,
        6,
        3,
        10,
        rope=Rope(6, 1e4, "interleaved"),
        query_norm=RMSNorm(60, EPS),
        key_norm=RMSNorm(30, EPS),
    )
    steps = (
        Residual(None, attention, post_norm=RMSNorm(dim, EPS)),
        Residual(None, GatedFFN.build(dim, 50), post_norm=RMSNorm(dim, EPS)),
    )
    return whole([Block(steps)] * 2, dim)


def bert(dim: int = 64) -> Model:
    """An encoder: sums normed, token types, a transform and a pooler."""
    attention = Attention.build(dim, 4, 4, 16, bias=True, output_bias=True, causal=False)
    steps = (
        Residual(None, attention, sum_norm=LayerNorm(dim, EPS)),
        Residual(None, FFN.build(dim, 128, activation="gelu"), sum_norm=LayerNorm(dim, EPS)),
    )
    return whole(
        [Block(steps)] * 2, dim, norm=None, head=Head(dim, VOCAB, tied=True, bias=True),
        positions=LearnedPositions(512, dim), token_types=TokenTypes(2, dim), embed_norm=LayerNorm(dim, EPS),
        transform=Transform(Linear(dim, dim, True), "gelu", LayerNorm(dim, EPS)),
        pooler=Pooler(Linear(dim, dim, True)),
    )  # fmt: skip


def mobilebert(dim: int = 64, narrow: int = 32, embed: int = 24) -> Model:
    """Bottlenecks, affine norms, neighbours, a head wider than its table."""
    attention = Attention(
        Linear(narrow, narrow, True), Linear(narrow, narrow, True), Linear(dim, narrow, True),
        Linear(narrow, narrow, True), 4, 4, narrow // 4, causal=False,
    )  # fmt: skip
    steps = [Residual(None, attention, sum_norm=Affine(narrow))]
    steps += [
        Residual(None, FFN.build(narrow, 48), sum_norm=Affine(narrow), name=name) for name in ("ffn_0", "ffn")
    ]
    bottleneck = Bottleneck(
        Linear(dim, narrow, True), Affine(narrow), Linear(dim, narrow, True), Affine(narrow), tuple(steps),
        Linear(narrow, dim, True),
    )  # fmt: skip
    blocks = [Block((Residual(None, bottleneck, sum_norm=Affine(dim)),))] * 2
    return whole(
        blocks, dim, embed=Embed(VOCAB, embed), norm=None,
        neighbours=Neighbours(Linear(3 * embed, dim, True)),
        head=Head(dim, VOCAB, tied=True, bias=True, extra=dim - embed), positions=LearnedPositions(512, dim),
        token_types=TokenTypes(2, dim), embed_norm=Affine(dim),
        transform=Transform(Linear(dim, dim, True), "relu", LayerNorm(dim, EPS)),
        pooler=Pooler(Linear(dim, dim, True)),
    )  # fmt: skip


def experts(
    router: Router, expert: GatedFFN | FFN, shared: GatedFFN | FFN | None = None, *, normed: bool = True
) -> Model:
    """A mixture in each layer but the first."""
    dim = router.dim
    attention = Residual(RMSNorm(dim, EPS), Attention.build(dim, 4, 2, 16, rope=Rope(16, 1e4)))
    plain = Block((attention, Residual(RMSNorm(dim, EPS), GatedFFN.build(dim, 64))))
    before, after = RMSNorm(dim, EPS) if normed else None, None if normed else RMSNorm(dim, EPS)
    mixed = Block((attention, Residual(before, Experts(router, expert, shared), sum_norm=after)))
    return whole([plain, mixed, mixed], dim)


def latent(
    dim: int = 64, *, rank: int = 32, value: int = 16, plain: int = 16, query_rank: int = 0, turning: int = 8,
    query_norm: bool = True,
) -> Model:  # fmt: skip
    """Latent attention in each layer."""
    heads = 4
    width = heads * (plain + turning)
    attention = LatentAttention(
        query=None if query_rank else Linear(dim, width),
        query_down=Linear(dim, query_rank) if query_rank else None,
        query_norm=RMSNorm(query_rank, EPS) if query_rank and query_norm else None,
        query_up=Linear(query_rank, width) if query_rank else None,
        kv_down=Linear(dim, rank + turning), kv_norm=RMSNorm(rank, EPS),
        kv_up=Linear(rank, heads * (plain + value)), output=Linear(heads * value, dim),
        rope=Rope(turning, 1e4, "interleaved"), heads=heads, plain_dim=plain, value_dim=value, kv_rank=rank,
        score_scale=0.3,
    )  # fmt: skip
    steps = (
        Residual(RMSNorm(dim, EPS), attention),
        Residual(RMSNorm(dim, EPS), GatedFFN.build(dim, 96)),
    )
    return whole([Block(steps)] * 2, dim)


def drawn(seed: int) -> Model:
    """A decoder whose every choice is drawn."""
    rng = np.random.default_rng(seed)

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    dim, head_dim = one(32, 40, 64, 100), one(8, 12, 16, 32)
    kv_heads = one(1, 2, 3)
    heads = kv_heads * one(1, 2, 3)

    def any_norm(width: int, empty: bool = True) -> Norm | None:
        return norm(one(*NORMS, *(("none",) * 3 if empty else ())), width)

    def attention() -> Attention:
        rope = one(None, Rope(head_dim, 1e4), Rope(head_dim // 2, 1e3, "interleaved"))
        query_norm, key_norm = (
            any_norm(one(head_dim, heads * head_dim)),
            any_norm(one(head_dim, kv_heads * head_dim)),
        )
        return Attention.build(
            dim, heads, kv_heads, head_dim, rope=rope, bias=one(True, False), output_bias=one(True, False),
            query_norm=query_norm, key_norm=key_norm, window=one(0, 1, 7, 40), cap=one(0.0, 2.0),
        )  # fmt: skip

    def network() -> GatedFFN | FFN:
        activation = one("silu", "gelu", "gelu_tanh", "relu", "identity")
        return one(GatedFFN, FFN).build(dim, one(32, 50, 96), activation=activation, bias=one(True, False))

    def mixture() -> Experts:
        grouped = (
            {"groups": 4, "groups_kept": 2, "group_score": one("top2", "max")} if one(True, False) else {}
        )
        router = Router(
            dim, 8, one(1, 2, 4), one("softmax", "sigmoid"), one(True, False), normalize=one(True, False),
            scale=one(1.0, 2.5), **grouped,
        )  # fmt: skip
        return Experts(router, network(), one(None, network()))

    def residual(gear: Any, name: str) -> Residual:
        before, after, total = any_norm(dim), any_norm(dim), any_norm(dim)
        if isinstance(gear, Experts):
            before = before or RMSNorm(dim, EPS)
        return Residual(before, gear, after, total, one(True, True, True, False), name)

    blocks = [
        Block((residual(attention(), ""), residual(one(network, mixture)(), ""), residual(network(), "more")))
        for _ in range(2)
    ]
    cap, bias = one(0.0, 3.0), one(True, False)
    return whole(
        blocks, dim, embed=Embed(VOCAB, dim, one(1.0, 3.0)), norm=any_norm(dim), embed_norm=any_norm(dim),
        head=Head(dim, VOCAB, tied=one(True, False), bias=bias, cap=cap),
        positions=one(None, LearnedPositions(600, dim, 1)), token_types=one(None, TokenTypes(3, dim)),
        transform=one(None, Transform(Linear(dim, dim, bias), "gelu", LayerNorm(dim, EPS))),
        pooler=Pooler(Linear(dim, dim)),
    )  # fmt: skip


def _router(**changes: Any) -> Router:
    return Router(**({"dim": 64, "count": 8, "used": 2} | changes))


GATED, PLAIN = GatedFFN.build(64, 96), FFN.build(64, 50, activation="gelu")
NAMED: dict[str, Model] = {
    **{
        f"{kind} {where}": places(kind, where) for kind in NORMS for where in ("nor", "nor pos", "sum", "pos")
    },
    "gpt": gpt(),
    "gemma": gemma(),
    "olmo": olmo(),
    "bert": bert(),
    "mobilebert": mobilebert(),
    "experts": experts(_router(), GATED),
    "experts of sigmoids in groups": experts(
        _router(score="sigmoid", correction=True, groups=4, groups_kept=2, scale=2.5), GATED, GATED
    ),
    "experts of groups by their best": experts(
        _router(count=12, used=3, groups=3, groups_kept=2, group_score="max", normalize=False), PLAIN, PLAIN
    ),
    "experts with biases": experts(_router(count=4, used=4), GatedFFN.build(64, 48, bias=True)),
    "experts without a norm before": experts(_router(), GATED, GATED, normed=False),
    "latent": latent(),
    "latent in two steps": latent(query_rank=24),
    "latent of odd widths": latent(
        60, rank=20, value=10, plain=12, query_rank=15, query_norm=False, turning=6
    ),
}

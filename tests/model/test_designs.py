"""Models from tables of plain values: what each key means, and what is refused."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError
from glassgear.model.designs import design
from glassgear.model.designs.sections import Section, View
from glassgear.model.gears import (
    FFN,
    Affine,
    Attention,
    BatchNorm,
    Block,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Pooler,
    RMSNorm,
    Rope,
    RopeScaling,
    ScaleNorm,
    TokenTypes,
)
from glassgear.model.ledger import ledger

BASE = """
dim = 64
vocab = 100
layers = 2
attention.heads = 4
"""


def made(text: str = "", base: str = BASE) -> Model:
    return design(tomllib.loads(base + text), "my.toml")


def refused(text: str, base: str = BASE) -> str:
    with pytest.raises(FormatError) as caught:
        made(text, base)
    message = str(caught.value)
    assert message.startswith("my.toml: ")
    return message.removeprefix("my.toml: ")


def attention_of(model: Model, block: int = 0) -> Attention:
    gear = model.blocks[block].steps[0].gear
    assert isinstance(gear, Attention)
    return gear


def network_of(model: Model, block: int = 0) -> Any:
    return model.blocks[block].steps[1].gear


# --------------------------------------------------------------------------------------------
# What keys mean


def test_what_isn_t_said_is_a_llama() -> None:
    """Pre-norm RMSNorm, all heads of their own, rotary positions, SwiGLU of 8/3 the width, a tied head."""
    model = made()
    block = model.blocks[0]
    assert len(model.blocks) == 2 and model.blocks[1] is block
    assert [(s.norm, s.post_norm, s.sum_norm, s.skip) for s in block.steps] == [
        (RMSNorm(64, 1e-5), None, None, True)
    ] * 2
    assert attention_of(model) == Attention.build(64, 4, 4, 16, rope=Rope(16, 10000.0))
    assert network_of(model) == GatedFFN.build(64, 192, activation="silu")  # 170.7, up to a multiple of 32
    assert (model.norm, model.head, model.context) == (RMSNorm(64, 1e-5), Head(64, 100, tied=True), 1024)


@pytest.mark.parametrize(
    ("table", "norm"),
    [
        ('norm = "rmsnorm"', RMSNorm(64, 1e-5)),
        ("norm = { eps = 1e-6, offset = 1 }", RMSNorm(64, 1e-6, 1.0)),
        ('norm = "layernorm"', LayerNorm(64, 1e-5)),
        ('norm = { kind = "layernorm", bias = false }', LayerNorm(64, 1e-5, bias=False)),
        ('norm = "scalenorm"', ScaleNorm(64, 1e-5)),
        ('norm = "batchnorm"', BatchNorm(64, 1e-5)),
        ('norm = "affine"', Affine(64)),
    ],
)
def test_norms(table: str, norm: Gear) -> None:
    model = made(table)
    assert model.blocks[0].steps[0].norm == norm == model.norm


@pytest.mark.parametrize(
    ("place", "has"),
    [("pre", (1, 0, 0)), ("sandwich", (1, 1, 0)), ("post", (0, 0, 1)), ("none", (0, 0, 0))],
)
def test_places_of_norms(place: str, has: tuple[int, int, int]) -> None:
    model = made(f'norm.place = "{place}"')
    for step in model.blocks[0].steps:
        assert (step.norm is not None, step.post_norm is not None, step.sum_norm is not None) == has
    # The stream of pre-norm blocks is normed once more at the end; others leave none bare, or want none.
    assert (model.norm is not None) == (place in ("pre", "sandwich"))


def test_no_norms_at_all() -> None:
    model = made('norm = "none"')
    assert model.norm is None and all(step.norm is None for step in model.blocks[0].steps)


def test_norms_of_the_model_itself() -> None:
    model = made("final_norm = false\nembedding_norm = true")
    assert (model.norm, model.embed_norm) == (None, RMSNorm(64, 1e-5))
    post = made("final_norm = true\nnorm.place = 'post'")
    assert post.norm == RMSNorm(64, 1e-5)


def test_residuals_can_be_cut() -> None:
    assert not any(step.skip for step in made("residual = false").blocks[0].steps)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "identity"])
@pytest.mark.parametrize("kind", ["gated", "plain"])
def test_networks_have_any_activation_and_width(kind: str, activation: str) -> None:
    found = network_of(
        made(f'ffn = {{ kind = "{kind}", activation = "{activation}", hidden = 50, bias = true }}')
    )
    assert isinstance(found, GatedFFN if kind == "gated" else FFN)
    assert (found.activation, found.up, found.down) == (
        activation,
        Linear(64, 50, True),
        Linear(50, 64, True),
    )


def test_a_plain_network_is_four_times_as_wide_if_nothing_is_said() -> None:
    assert network_of(made('ffn = "plain"')) == FFN.build(64, 256, activation="gelu", bias=False)


@pytest.mark.parametrize(
    ("table", "kv_heads"),
    [
        ('attention.kind = "mha"', 4), ('attention.kind = "mqa"', 1),
        ('attention.kind = "gqa"\nattention.kv_heads = 2', 2), ("attention.kv_heads = 2", 2),
    ],
)  # fmt: skip
def test_kinds_of_attention_share_keys_and_values(table: str, kv_heads: int) -> None:
    assert attention_of(made(table)).kv_heads == kv_heads


def test_all_settings_of_attention() -> None:
    gear = attention_of(
        made(
            "attention.head_dim = 24\nattention.bias = true\nattention.output_bias = false\n"
            "attention.window = 7\nattention.cap = 30.0\nattention.scale = 0.5\n"
            "attention.query_key_norm = 'head'"
        )
    )
    assert gear == Attention.build(
        64, 4, 4, 24, rope=Rope(24, 10000.0), bias=True, output_bias=False, window=7, cap=30.0,
        score_scale=0.5, query_norm=RMSNorm(24, 1e-5), key_norm=RMSNorm(24, 1e-5),
    )  # fmt: skip
    over_all = attention_of(made("attention.query_key_norm = 'all'\nattention.kv_heads = 2"))
    assert (over_all.query_norm, over_all.key_norm) == (RMSNorm(64, 1e-5), RMSNorm(32, 1e-5))
    assert not attention_of(made("attention.causal = false")).causal
    assert not made("attention.causal = false").causal


def test_heads_needn_t_divide_the_width_where_their_own_is_given() -> None:
    base = "dim = 2560\nvocab = 10\nlayers = 1\nattention = { heads = 32, kv_heads = 8, head_dim = 128 }"
    gear = attention_of(made("", base))
    assert (gear.query.outputs, gear.key.outputs, gear.output.inputs) == (4096, 1024, 4096)
    assert gear.scale == pytest.approx(128**-0.5)
    narrow = attention_of(
        made("", "dim = 640\nvocab = 10\nlayers = 1\nattention = { heads = 4, head_dim = 256 }")
    )
    assert (narrow.query.outputs, narrow.scale) == (1024, 1 / 16)


LATENT = 'attention = { kind = "mla", heads = 4, kv_rank = 24, plain_dim = 10, rope_dim = 6 }'
NO_ATTENTION = "dim = 64\nvocab = 100\nlayers = 2\n"


def test_latent_attention() -> None:
    gear = made(LATENT, NO_ATTENTION).blocks[0].steps[0].gear
    assert isinstance(gear, LatentAttention)
    assert (gear.query, gear.query_up, gear.cache_dim, gear.value_dim) == (Linear(64, 64), None, 30, 10)
    more = LATENT.replace("heads", "query_rank = 12, value_dim = 9, heads")
    gear = made('norm = "layernorm"\n' + more, NO_ATTENTION).blocks[0].steps[0].gear
    assert isinstance(gear, LatentAttention)
    assert (gear.query, gear.query_down, gear.query_norm) == (None, Linear(64, 12), LayerNorm(12, 1e-5))
    assert (gear.kv_norm, gear.kv_up, gear.output) == (LayerNorm(24, 1e-5), Linear(24, 76), Linear(36, 64))
    bare = made('norm = "none"\n' + LATENT, NO_ATTENTION).blocks[0].steps[0].gear
    assert isinstance(bare, LatentAttention) and bare.kv_norm == RMSNorm(24, 1e-5)


@pytest.mark.parametrize(
    ("table", "rope"),
    [
        ("positions = { theta = 500000, dim = 8 }", Rope(8, 500000.0)),
        ('positions = { pairing = "interleaved" }', Rope(16, 10000.0, "interleaved")),
        (
            'positions.scaling = { kind = "linear", factor = 4 }',
            Rope(16, 1e4, scaling=RopeScaling("linear", 4.0)),
        ),
        (
            'positions.scaling = { kind = "llama3", factor = 8 }',
            Rope(16, 1e4, scaling=RopeScaling("llama3", 8.0, 1024, 1.0, 4.0)),
        ),
        (
            'positions.scaling = { kind = "yarn", factor = 1, original_context = 64, truncate = false }',
            Rope(16, 1e4, scaling=RopeScaling("yarn", 1.0, 64, truncate=False)),
        ),
        ('positions.scaling = "none"', Rope(16, 1e4)),
    ],
)
def test_rotary_positions(table: str, rope: Rope) -> None:
    assert attention_of(made(table)).rope == rope


def test_learned_positions_and_none() -> None:
    learned = made('positions = "learned"\ncontext = 50')
    assert learned.positions == LearnedPositions(50, 64) and attention_of(learned).rope is None
    none = made('positions = "none"')
    assert none.positions is None and attention_of(none).rope is None


EXPERTS = "ffn = { hidden = 40, experts = { count = 8, used = 2, %s } }"


def test_experts() -> None:
    gear = network_of(made(EXPERTS % "shared = 2"))
    assert isinstance(gear, Experts)
    assert (gear.router.count, gear.router.used, gear.expert) == (8, 2, GatedFFN.build(64, 40))
    assert gear.shared == GatedFFN.build(64, 80)
    settings = (
        "score = 'sigmoid', correction = true, groups = 4, groups_kept = 2, normalize = false, scale = 2.5"
    )
    router = network_of(made(EXPERTS % settings)).router
    assert (router.score, router.correction, router.groups, router.groups_kept) == ("sigmoid", True, 4, 2)
    assert (router.group_score, router.normalize, router.scale) == ("top2", False, 2.5)


def test_a_described_router_chooses_by_its_two_best_experts_of_each_group() -> None:
    """Values recomputed by hand: 8 experts in 4 groups, 2 of these kept, 2 experts used, scale 2.5."""
    from tests.backends.reference.support import run_gear

    settings = "score = 'sigmoid', groups = 4, groups_kept = 2, scale = 2.5"
    router = network_of(made(EXPERTS % settings)).router
    scores = np.array([0.90, 0.05, 0.60, 0.55, 0.70, 0.50, 0.80, 0.10])
    logits = np.log(scores / (1 - scores))
    weight = np.zeros((8, 64))
    weight[:, 0] = logits
    weights = run_gear(router, np.eye(1, 64, dtype=np.float32), {"weight": weight})[0]
    assert np.flatnonzero(weights).tolist() == [2, 4]
    np.testing.assert_allclose(weights[[4, 2]], [1.3461538, 1.1538462], rtol=1e-6)


def test_heads() -> None:
    assert made('head = "own"').head == Head(64, 100, tied=False)
    assert made('head = "none"').head is None
    assert made("head = { bias = true, cap = 30 }").head == Head(64, 100, tied=True, bias=True, cap=30.0)


def test_what_else_a_model_has() -> None:
    model = made(
        "token_types = 2\npooler = true\nembedding_scale = 8\nname = 'mine'\nattention.causal = false"
    )
    assert (model.token_types, model.pooler) == (TokenTypes(2, 64), Pooler(Linear(64, 64, bias=True)))
    assert (model.embed.scale, model.family) == (8.0, "mine")


def test_blocks_can_be_of_one_step_or_the_other_way_round() -> None:
    only = made('steps = ["ffn"]', "dim = 64\nvocab = 100\nlayers = 1\n")
    assert [step.step for step in only.blocks[0].steps] == ["ffn"]
    assert [step.step for step in made('steps = ["ffn", "attention"]').blocks[0].steps] == [
        "ffn",
        "attention",
    ]


KINDS = """
dim = 64
vocab = 100
repeat = 2
[attention]
heads = 4
window = 9
[ffn]
activation = "gelu"
[ffn.experts]
count = 4
used = 1
[[blocks]]
count = 2
norm.place = "post"
ffn.experts = "none"
[[blocks]]
norm = "layernorm"
positions = { theta = 1e6 }
[blocks.attention]
window = 0
[blocks.ffn]
kind = "plain"
hidden = 10
"""


def test_blocks_of_several_kinds_take_what_they_don_t_say_from_the_model() -> None:
    model = made("", KINDS)
    assert [id(block) for block in model.blocks] == [id(model.blocks[i]) for i in (0, 0, 2, 0, 0, 2)]
    first, other = model.blocks[0], model.blocks[2]
    assert isinstance(first, Block) and first.steps[0].sum_norm == RMSNorm(64, 1e-5)
    assert other.steps[0].norm == LayerNorm(64, 1e-5)
    assert (attention_of(model).window, attention_of(model, 2).window) == (9, 0)
    assert attention_of(model, 2).rope == Rope(16, 1e6) and attention_of(model).rope == Rope(16, 1e4)
    assert network_of(model) == GatedFFN.build(64, 192, activation="gelu")
    experts = network_of(model, 2)
    assert isinstance(experts, Experts) and experts.expert == FFN.build(64, 10, activation="gelu", bias=False)


# --------------------------------------------------------------------------------------------
# What is refused, and how it is said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention.haeds = 4", "no key of this table. Did you mean `heads`? Its keys here:"),
        ("contxt = 5", "`contxt` is no key of this table. Did you mean `context`?"),
        ("norm.place = 'before'", "`norm.place` should be one of pre, post, sandwich, none, found 'before'"),
        ("norm = 'rmsnrom'", "batchnorm, affine, none (did you mean \"rmsnorm\"?), found 'rmsnrom'"),
        ("ffn.activation = 'SwiGLU'", 'is kind "gated" with activation "silu"'),
        ("norm = 3", "`norm` should be a table, or the name of a kind, found 3"),
        ("ffn.hidden = 1.5", "`ffn.hidden` should be a whole number, found 1.5"),
        ("ffn.hidden = true", "`ffn.hidden` should be a whole number, found true"),
        ("ffn.hidden = 0", "`ffn.hidden` should be from 1 to 2,147,483,648, found 0"),
        ("residual = 1", "`residual` should be true or false, found 1"),
        ("name = 5", "`name` should be a line of text"),
        ("norm.eps = 0", "`norm.eps` should be above 0, found 0"),
        ("norm.eps = nan", "`norm.eps` should be a number, found nan"),
        ("embedding_scale = inf", "`embedding_scale` should be a number, found inf"),
        ("steps = []", 'should be a list of "attention" and "ffn"'),
        ("steps = ['ffn', 'ffn']", 'should be a list of "attention" and "ffn", each once at most'),
        ("steps = 'ffn'", 'should be a list of "attention" and "ffn"'),
        ("blocks = 3", "should be [[blocks]]"),
        ("blocks = []", "should be [[blocks]]"),
        (
            "[[blocks]]\ncount = 2",
            "`layers` can't stand beside [[blocks]], which have a `count` each, found 2",
        ),
    ],
)
def test_values_that_can_t_be(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention.window = 4\nattention.causal = false", "`attention.window` needs causal attention"),
        ("attention.kv_heads = 3", "`attention.kv_heads` must divide heads, 4"),
        ("attention.kv_heads = 2\nattention.kind = 'mha'", 'must be heads, 4, for kind "mha"'),
        ("attention.kv_heads = 2\nattention.kind = 'mqa'", 'must be 1 for kind "mqa"'),
        ("attention.kind = 'gqa'", "`attention.kv_heads` is missing"),
        ("attention.kv_rank = 8", '`attention.kv_rank` goes with kind "mla"'),
        ("norm = { kind = 'none', place = 'pre' }", '`norm.place` has no meaning for kind "none"'),
        ("norm = { kind = 'scalenorm', bias = true }", '`norm.bias` goes with kind "layernorm"'),
        ("norm = { kind = 'affine', eps = 1e-5 }", '`norm.eps` has no meaning for kind "affine"'),
        ("norm = 'none'\nfinal_norm = true", "`final_norm` asks for a norm"),
        ("positions = { kind = 'learned', theta = 1e4 }", '`positions.theta` goes with kind "rope"'),
        ("positions.dim = 5", "must be even, because channels turn in pairs, found 5"),
        ("positions.dim = 18", "`positions.dim` should be from 1 to 16, found 18"),
        ("positions.scaling = { kind = 'linear' }", "`positions.scaling.factor` is missing"),
        ("positions.scaling = { kind = 'linear', factor = 2, beta_fast = 3 }", 'goes with kind "yarn"'),
        (
            "positions.scaling = { kind = 'llama3', factor = 2, low_freq_factor = 5 }",
            "should be above low_freq",
        ),
        ("head = { kind = 'none', bias = true }", "`head.bias` has no meaning without a head"),
        ("ffn.experts = { count = 4, used = 5 }", "`ffn.experts.used` can't be more than count, 4, found 5"),
        ("ffn.experts = { used = 5 }", "`ffn.experts.count` is missing: how many experts there are"),
        ("ffn.experts = { count = 4, used = 2, groups = 3 }", "`ffn.experts.groups` must divide count, 4"),
        (
            "ffn.experts = { count = 4, used = 3, groups = 2, groups_kept = 1 }",
            "leaves 2 experts to choose 3",
        ),
    ],
)
def test_settings_that_don_t_go_together(text: str, message: str) -> None:
    assert message in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LATENT.replace("}", ", causal = false }"), '`attention.causal` doesn\'t go with kind "mla"'),
        (LATENT + "\npositions = 'none'", 'can only be "mla" with positions "rope"'),
        (LATENT + "\npositions.dim = 4", "`positions.dim` is said by `attention.rope_dim`"),
        (LATENT.replace("rope_dim = 6", "rope_dim = 5"), "`attention.rope_dim` must be even"),
        (LATENT.replace(", kv_rank = 24", ""), "`attention.kv_rank` is missing: width of the latent"),
        ("attention.heads = 5", "`attention.heads` must divide dim, 64, where no head_dim is given, found 5"),
        ("", "`attention.heads` is missing: how many query heads there are"),
    ],
)
def test_attention_that_can_t_be(text: str, message: str) -> None:
    assert message in refused(text, NO_ATTENTION)


def test_an_odd_head_can_t_turn() -> None:
    message = refused("", "dim = 6\nvocab = 9\nlayers = 1\nattention.heads = 2")
    assert "must be even" in message and 'a head is 3 wide; say another width, or positions "none"' in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[blocks]]\ncount = 2\n[[blocks]]\nffn.hiden = 3",
         "in the second [[blocks]], `ffn.hiden` is no key of this table. Did you mean `hidden`?"),
        ("[[blocks]]\ndim = 3", "in the first [[blocks]], `dim` is no key of this table"),
        ("[[blocks]]\npositions = 'learned'", "can't be learned for one block"),
        ("[[blocks]]\nattention.kind = 'gqa'", "in the first [[blocks]], `attention.kv_heads` is missing"),
        ("[[blocks]]\nsteps = ['attention']\nffn.hidden = 3",
         "in the first [[blocks]], `ffn` describes what no block does: `steps` lacks \"ffn\""),
        ("[attention]\nheads = 4\nkv_rank = 3\n[[blocks]]", "`attention.kv_rank` goes with kind \"mla\""),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_block_is_said_with_its_place(text: str, message: str) -> None:
    base = "dim = 64\nvocab = 100\n" + ("" if "[attention]" in text else "attention.heads = 4\n")
    assert message in refused(text, base)


@pytest.mark.parametrize("key", ["dim", "vocab", "layers"])
def test_what_is_missing_is_named(key: str) -> None:
    lines = [line for line in BASE.splitlines() if not line.startswith(key)]
    assert refused("", "\n".join(lines)).startswith(f"`{key}` is missing: ")


@pytest.mark.parametrize(
    "text",
    [
        "dim = 64\nvocab = 100\nlayers = 1000000000\nattention.heads = 4",
        "dim = 64\nvocab = 100\nlayers = 10000\nrepeat = 10000\nattention.heads = 4",
        "dim = 64\nvocab = 100\nattention.heads = 4\n" + "[[blocks]]\ncount = 9000\n" * 3,
        "dim = 64\nvocab = 100\nlayers = 10000\nattention.heads = 4\nffn.experts = {count = 10000, used = 1}",
        "dim = 64\nvocab = 100\nlayers = 1\nattention.heads = 4\nffn.experts = {count = 100000000, used = 1}",
        "dim = 99999999999999999999\nvocab = 100\nlayers = 1\nattention.heads = 4",
    ],
)
def test_hostile_sizes_are_refused_at_once(text: str) -> None:
    start = time.process_time()
    refused("", text)
    assert time.process_time() - start < 1


def test_the_largest_sizes_are_counted_at_once() -> None:
    start = time.process_time()
    found = ledger(made("", f"dim = {2**30}\nvocab = {2**31}\nlayers = 10000\nattention.heads = {2**20}"))
    assert found.parameters > 10000 * 7 * 2**60 and time.process_time() - start < 1


# --------------------------------------------------------------------------------------------
# The reference

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "designs.md"


def test_examples_of_the_reference_are_models() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)
    layers = [len(made("", text).blocks) for text in blocks]
    assert layers == [6, 24, 1]


def test_the_reference_lists_every_key_and_word() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z0-9_]+)`", text))
    keys: set[str] = set()
    words: set[str] = set()

    class Watched(Section):
        def finish(self) -> None:
            keys.update(self.asked, self.reasons)
            super().finish()

    def choice(view: View, key: str, options: Any, *rest: Any) -> str:
        words.update(options)
        return original(view, key, options, *rest)

    original = View.choice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassgear.model.designs.build.Section", Watched)
        patch.setattr("glassgear.model.designs.sections.Section", Watched)
        patch.setattr(View, "choice", choice)
        made("", KINDS)
        made(LATENT, NO_ATTENTION)
        for kind in ("linear", "llama3", "yarn"):
            made(f"norm = 'layernorm'\npositions.scaling = {{ kind = '{kind}', factor = 2 }}")
    missing = (
        (keys | words) - listed - {"blocks", "routed"}
    )  # [[blocks]] has a chapter; routed needn't be said
    assert len(keys) > 60 and not missing

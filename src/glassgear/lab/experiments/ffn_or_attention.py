"""Attention and feed-forward networks: who sees whom, what each holds and takes, what is lost without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassgear.errors import TokenizerError
from glassgear.lab.frame import (
    BY_HAND,
    INNER_GEARS,
    Cell,
    Claim,
    Column,
    Experiment,
    Figure,
    NotHereError,
    Result,
    Settings,
    Table,
    Verdict,
    option,
)
from glassgear.lab.models import model_of, random_model, stories, title, trained_model
from glassgear.lab.sublayers import (
    KINDS,
    Locality,
    Size,
    blocks_with,
    locality,
    loss,
    operations,
    seconds,
    size,
    without,
)
from glassgear.lab.training import Recipe, Text, story, text_of, train
from glassgear.language_model import LanguageModel
from glassgear.measure import random_ids
from glassgear.model import presets
from glassgear.model.designs import design as designed
from glassgear.model.ledger import ledger

__all__ = ["EXPERIMENT", "Losses", "Sublayers", "Trained", "shape"]

SAID = 8  # times the attention's parameters, by the article's ledger
LEDGER = ("llama-3-8b", "llama-2-7b", "mistral-7b", "qwen2.5-7b", "glm-4-9b", "deepseek-v3", "gpt2")
DEPTHS = (2, 4, 8)
HEADS = 4
TOY: dict[str, Any] = {"dim": 48, "layers": 2, "attention": {"heads": HEADS}, "ffn": {"hidden": 128}}


@dataclass(frozen=True)
class Sublayers(Settings):
    """The model that is looked into, and how long others are trained."""

    model: str | None = option(
        None, "The model that is looked into. [default: the one at hand, or one that is trained here]"
    )
    tokens: int = option(256, "Tokens of the text that it reads.", small=64, least=8)
    before: int = option(1000, "Tokens behind which a single one is timed.", small=48, least=8)
    repeats: int = option(10, "How often each is timed; the quickest counts.", small=3, least=1)
    dim: int = option(64, "Width of the trained models of 2 layers; deeper ones are narrower.", small=32,
                      least=16)  # fmt: skip
    steps: int = option(300, "Steps of training.", small=40, least=20)
    rate: float = option(1e-2, "The peak of the learning rate.", least=0)
    seeds: int = option(3, "Trainings of each shape; they tell what is chance.", small=2, least=2)
    text: str | None = option(None, "A file to train on. [default: stories by rule]")


# --- a model, as it is ------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Nats a token: whole, without one sublayer (kind -> by layer), and without all of a kind."""

    whole: float
    one: dict[str, list[float]]
    all: dict[str, float]


def _model(settings: Sublayers, text: Text) -> tuple[LanguageModel, list[int] | None]:
    """What is looked into, and a text that it knows; None: it knows none, its weights are random."""
    found = model_of(settings, settings.model, threads=1)
    if found is not None:
        found.require_causal()
        blocks_with(found.gears)
        count = min(settings.tokens, found.context)
        try:
            random = np.random.default_rng(settings.seed)
            ids = found.encode("".join(story(random) for _ in range(1 + count // 40)))
            return found, ids[:count]
        except TokenizerError:
            return found, stories(found, count, settings.seed)
    try:
        recipe = Recipe(steps=max(2 * settings.steps, 160), context=64)
        _, module = train(TOY, text, recipe, settings.seed)
    except NotHereError:
        return random_model({"name": "random model", **TOY, "vocab": 64}, settings.seed, threads=1), None
    return trained_model(module, threads=1), [int(i) for i in text.held_out[: min(settings.tokens, 64)]]


def _losses(model: LanguageModel, ids: Sequence[int]) -> Losses:
    blocks, gears = blocks_with(model.gears), model.gears
    one = {kind: [loss(model, ids, without(gears, kind, [i])) for i in blocks] for kind in KINDS}
    return Losses(loss(model, ids), one, {kind: loss(model, ids, without(gears, kind)) for kind in KINDS})


def _times(model: LanguageModel, settings: Sublayers) -> tuple[Table, dict[str, float]]:
    """Milliseconds and shares: a prompt, a token behind it, a token behind many."""
    far = min(settings.before, model.context - 1)
    near = min(128, far)
    ids = random_ids(model.gears.vocab, far + 1, settings.seed)
    passes = ((f"a prompt of {near}", near, 0), (f"the token behind {near}", near + 1, near),
              (f"the token behind {far}", far + 1, far))  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for name, length, before in passes[: 2 if far == near else 3]:
        took = seconds(model, ids[:length], before, settings.repeats)
        ops = operations(model.gears, length - 1)
        share = took["ffn"] / (took["ffn"] + took["attention"])
        rows.append((name, *(1e3 * took[kind] for kind in (*KINDS, "head")), share,
                     ops["ffn"] / sum(ops.values()) if before else None))  # fmt: skip
    columns = (
        Column("pass"), Column("attention, ms", ".2f"), Column("FFN, ms", ".2f"), Column("head, ms", ".2f"),
        Column("FFN of both", ".0%"), Column("of operations", ".0%"),
    )  # fmt: skip
    facts = {"time_share_prompt": rows[0][4], "time_share_near": rows[1][4], "time_share_far": rows[-1][4]}
    return Table(f"Time, {title(model)}, one thread", columns, tuple(rows)), facts  # type: ignore[return-value]


# --- depth against width ----------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A shape, and its loss on held-out text for each seed, nats a token."""

    layers: int
    dim: int
    hidden: int
    parameters: int
    losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.losses))


def shape(dim: int, layers: int, vocab: int) -> tuple[dict[str, Any], int]:
    """A design of so many layers with as many parameters as one of `DEPTHS[0]` layers and this width.

    A layer has some 12 dim^2 parameters, so the width goes with the root of the layers; what is left is made
    up for by the network's hidden width.

    Returns:
        The design, and its parameters.
    """

    def made(width: int, hidden: int, count: int) -> tuple[dict[str, Any], int]:
        found = {"dim": width, "layers": count, "attention": {"heads": HEADS}, "ffn": {"hidden": hidden}}
        return found, ledger(designed({"vocab": vocab, **found}, "design")).parameters

    wanted = made(dim, 8 * dim // 3, DEPTHS[0])[1]
    step = 2 * HEADS  # an even width for each head
    width = max(step, round(dim * (DEPTHS[0] / layers) ** 0.5 / step) * step)
    hidden = 8 * width // 3
    short = wanted - made(width, hidden, layers)[1]
    return made(width, hidden + round(short / (3 * width * layers)), layers)


def _trained(settings: Sublayers, text: Text) -> list[Trained]:
    recipe = Recipe(steps=settings.steps, rate=settings.rate)
    found = []
    for layers in DEPTHS:
        design, parameters = shape(settings.dim, layers, text.vocab)
        losses = tuple(
            train(design, text, recipe, settings.seed + i)[0].held_out for i in range(settings.seeds)
        )
        found.append(Trained(layers, design["dim"], design["ffn"]["hidden"], parameters, losses))
    return found


def _depth_facts(found: list[Trained]) -> dict[str, float]:
    """Loss of the deepest less that of the shallowest, and how far apart seeds are at most."""
    spread = max(max(one.losses) - min(one.losses) for one in found)
    return {
        **{f"loss_{one.layers}_layers": one.mean for one in found},
        "deep_less_wide": found[-1].mean - found[0].mean, "spread_of_seeds": spread,
    }  # fmt: skip


# --- all together -----------------------------------------------------------------------------


def run(settings: Sublayers) -> Result:
    """Count, time, cut out, exchange a neighbour, and train deep and wide ones."""
    text = text_of(settings.text, settings.seed)
    model, ids = _model(settings, text)
    sizes = {name: size(presets.model(name)) for name in LEDGER} | {title(model): size(model.gears)}
    times, facts = _times(model, settings)
    read = ids or random_ids(model.gears.vocab, 32, settings.seed)
    near = locality(model, read[:32], next(i for i in reversed(read) if i != read[:32][-2]))
    facts |= {
        "ffn_over_attention": sizes["llama-3-8b"].ratio, "attention_change": near.attention,
        "ffn_change": near.ffn, "logits_without_attention": near.logits,
    }  # fmt: skip
    tables, notes = [_ledger(sizes), times, _neighbour(near, model)], [
        "Each time is that of the sublayer with its norm and its sum; the backend is stopped behind each.",
        f"The neighbour: the last token but one of {len(read[:32])} is another; what the last row reads is "
        "put back in front of each sublayer, so a change can only have come from other rows.",
    ]  # fmt: skip
    lost = None
    if ids is not None:
        lost = _losses(model, ids)
        tables.append(_lost(lost, model, len(ids)))
        facts |= {"loss": lost.whole, **{f"loss_without_{kind}": lost.all[kind] for kind in KINDS},
                  **{f"worst_without_{kind}": max(lost.one[kind]) for kind in KINDS}}  # fmt: skip
    trained: list[Trained] = []
    try:
        trained = _trained(settings, text)
        tables.append(_shapes(trained, settings, text))
        facts |= _depth_facts(trained)
    except NotHereError as trouble:
        notes.append(f"nothing was trained: {trouble}")
    return Result(
        _verdict(sizes, near, facts), tuple(tables),
        (Figure("sublayers", lambda canvas: _draw(canvas, times, lost, trained)),), facts, tuple(notes),
    )  # fmt: skip


def _verdict(sizes: dict[str, Size], near: Locality, facts: dict[str, float]) -> Verdict:
    ratio = sizes["llama-3-8b"].ratio
    local = near.ffn == 0 and near.logits == 0 and near.attention_moved > 0
    english = (
        f"a neighbour reaches a row through attention alone, as said: with another one the outputs of "
        f"{near.attention_moved} attentions change by {near.attention:.0%}, those of networks by nothing. "
        f"LLaMA-3-8B's FFN has {ratio:.1f} times the attention's parameters, not {SAID}."
        if local
        else "with another neighbour the row of a feed-forward network changes, which shouldn't be."
    )
    chinese = (
        f"邻居词元只能通过注意力影响一行：换掉邻居后，{near.attention_moved} 层注意力的输出改变 "
        f"{near.attention:.0%}，FFN 的输出分毫不变。"
        f"LLaMA-3-8B 的 FFN 参数是注意力的 {ratio:.1f} 倍，不是 {SAID} 倍。"
        if local
        else "换掉邻居后 FFN 这一行的输出变了，与说法不符。"
    )
    if "loss" in facts:
        whole, cut = facts["loss"], [facts[f"loss_without_{kind}"] for kind in KINDS]
        english += (
            f" Without any attention the loss goes from {whole:.2f} to {cut[0]:.2f} nats a token, without "
            f"any feed-forward network to {cut[1]:.2f}."
        )
        chinese += (
            f"去掉全部注意力，每词元损失从 {whole:.2f} 升到 {cut[0]:.2f} nat；"
            f"去掉全部 FFN 则到 {cut[1]:.2f}。"
        )
    if "deep_less_wide" in facts:
        gain, spread = -facts["deep_less_wide"], facts["spread_of_seeds"]
        word, chinese_word = ("do as well as", "没有差别")
        if abs(gain) > spread:
            word, chinese_word = ("are better than", "更好") if gain > 0 else ("are worse than", "更差")
        english += (
            f" With equal parameters {DEPTHS[-1]} narrow layers {word} {DEPTHS[0]} wide ones here: "
            f"{-gain:+.3f} nats a token, where seeds are up to {spread:.3f} apart."
        )
        chinese += (
            f"参数相同时，{DEPTHS[-1]} 个窄层与 {DEPTHS[0]} 个宽层相比{chinese_word}："
            f"每词元 {-gain:+.3f} nat，不同种子之间最多相差 {spread:.3f}。"
        )
    return Verdict("depends" if local else "refuted", english, chinese)


def _ledger(sizes: dict[str, Size]) -> Table:
    columns = (
        Column("model"), Column("width", ",d"), Column("inside", ",d"), Column("wider", ".1f"),
        Column("attention, M", ",.2f"), Column("FFN, M", ",.2f"), Column("more", ".1f"),
        Column("of all", ".0%"),
    )  # fmt: skip
    rows = tuple(
        (name, one.dim, one.hidden, one.hidden / one.dim, one.attention / 1e6, one.active / 1e6,
         one.active / one.attention, one.share) for name, one in sizes.items()
    )  # fmt: skip
    return Table(
        "The FFN's width inside, and millions of parameters of a layer; of experts, those in use",
        columns,
        rows,
    )


def _neighbour(near: Locality, model: LanguageModel) -> Table:
    layers = len(blocks_with(model.gears))
    columns = (Column("what a row gets"), Column("layers where it changes"), Column("by", ".2%"))
    return Table(
        f"Another neighbour, the row's own inputs as they were ({title(model)})", columns,
        (("from attention", f"{near.attention_moved} of {layers}", near.attention),
         ("from the FFN", f"{near.ffn_moved} of {layers}", near.ffn)),
    )  # fmt: skip


def _lost(lost: Losses, model: LanguageModel, tokens: int) -> Table:
    columns = (Column("without"), Column("attention", ".3f"), Column("FFN", ".3f"))
    layers = blocks_with(model.gears)
    rows: list[tuple[Cell, ...]] = [("nothing", lost.whole, lost.whole)]
    rows += [(f"that of layer {i}", *(lost.one[kind][n] for kind in KINDS)) for n, i in enumerate(layers)]
    rows.append(("all", *(lost.all[kind] for kind in KINDS)))
    return Table(f"Loss of {title(model)} on {tokens} tokens, nats a token, without", columns, tuple(rows))


def _shapes(trained: list[Trained], settings: Sublayers, text: Text) -> Table:
    columns = (
        Column("layers", "d"), Column("width", "d"), Column("hidden", "d"), Column("parameters", ",d"),
        Column("loss", ".3f"), Column("lowest", ".3f"), Column("highest", ".3f"),
    )  # fmt: skip
    rows = tuple(
        (one.layers, one.dim, one.hidden, one.parameters, one.mean, min(one.losses), max(one.losses))
        for one in trained
    )
    name = f"Deep or wide: {settings.steps} steps on {text.name}, held out, {settings.seeds} seeds"
    return Table(name, columns, rows)


def _draw(canvas: Any, times: Table, lost: Losses | None, trained: list[Trained]) -> None:
    left, middle, right = canvas.subplots(1, 3, width_ratios=(3, 2, 2))
    if lost is not None:
        for kind, name in zip(KINDS, ("attention", "FFN"), strict=True):
            left.plot([value - lost.whole for value in lost.one[kind]], "o-", ms=3, label=name)
        left.axhline(0, color="grey", lw=0.6)
        left.set_yscale("symlog", linthresh=0.1)  # of some the loss is lower
        left.set(title="loss added without one", xlabel="layer", ylabel="nats a token")
        left.legend()
    names = [str(row[0]).replace(" of ", "\nof ").replace(" behind ", "\nbehind ") for row in times.rows]
    shares = np.array([row[4] for row in times.rows], float)
    middle.bar(names, 1 - shares, label="attention")
    middle.bar(names, shares, bottom=1 - shares, label="FFN")
    middle.set(title="share of time")
    middle.tick_params("x", labelsize=7)
    middle.legend(loc="lower center", fontsize=8)
    for one in trained:
        right.plot([one.layers] * len(one.losses), one.losses, "o", color="C0", alpha=0.6)
    right.plot([one.layers for one in trained], [one.mean for one in trained], "-", color="C0")
    right.set(title="equal parameters", xlabel="layers", ylabel="nats a token, held out")


EXPERIMENT = Experiment(
    "ffn-or-attention",
    "What do attention and FFN each see, hold, take, and give?",
    Claim(
        "attention relates tokens, the FFN refines each alone and has 8 times its parameters; deep and "
        "narrow networks need fewer than wide and shallow ones",
        f"{INNER_GEARS}; {BY_HAND}",
    ),
    Sublayers,
    run,
)

"""Attention: turned queries and keys, scores, softmax weights, and what is mixed with them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from glassgear.backends.reference.attention import capped
from glassgear.backends.reference.rope import rotation
from glassgear.backends.reference.softmax import softmax
from glassgear.model.gears import Attention, LatentAttention, Rope
from glassgear.model.rope import attention_factor, inverse_frequencies
from glassgear.trace.explain import kernels, mixing
from glassgear.trace.explain.desk import Desk, Row
from glassgear.trace.explain.explanation import Made, Step
from glassgear.trace.explain.linear import EXACT_SUM
from glassgear.trace.explain.terms import Input, Listed, Term, Terms
from glassgear.trace.flow import Node

__all__ = ["CPU_MIX", "UNSEEN", "mixed", "rotated", "scores", "softmax_weight", "weight_inputs"]

Floats = NDArray[np.float32]
UNSEEN = "a token after this one, or outside of the window: its score is -inf and its weight 0"
CPU_MIX = (
    "the CPU kernel's order: pages of 64 tokens with a running maximum, token by token with one rounding, "
    "divided by the sum of exponentials at the end"
)
CPU_CHANNELS = "the CPU kernel's order: channel by channel, each multiplied and added with one rounding"
CPU_CODES = "the CPU kernel's: query and key as int16 codes, their products summed exactly"
CPU_MIX_CODES = (
    "the CPU kernel's order: pages of 64 tokens with a running maximum, weights and values as int16 codes "
    "whose products are summed exactly, divided by the sum of exponentials at the end"
)


# --- rotation --------------------------------------------------------------------------------


def rotated(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """A channel of a turned pair, or one that isn't turned."""
    rope, (head, channel) = node.gear, index
    assert isinstance(rope, Rope)
    x = desk.row(node.reads["x"], token)
    start = _start(node, head)
    half = rope.dim // 2
    if channel >= rope.dim:
        one = x.input(start + channel, f"channel {channel}")
        steps = (Step("channel", f"only the first {rope.dim} channels are turned: it stays as it is"),)
        return Made(one.value, (one,), steps=steps, magnitude=abs(one.value), order="a copy")
    if rope.pairing == "half":
        pair, second, places = channel % half, channel >= half, (channel % half, channel % half + half)
    else:
        pair, second, places = channel // 2, channel % 2 == 1, (channel // 2 * 2, channel // 2 * 2 + 1)
    inputs = tuple(x.input(start + p, f"channel {p}") for p in places)
    a, b = (np.float32(one.value) for one in inputs)
    cos, sin = (table[0, pair] for table in rotation(rope, np.array([token], np.int64)))
    first, other = (a * sin, b * cos) if second else (a * cos, -(b * sin))
    names = ("sin", "cos") if second else ("cos", "-sin")
    factors = (sin, cos) if second else (cos, -sin)
    terms = Terms.of(
        Term(one.name, (i,), (("input", one.value), (name, float(by))), float(value))
        for i, (one, name, by, value) in enumerate(zip(inputs, names, factors, (first, other), strict=True))
    )
    result = np.float32(first + other)
    return Made(
        float(result), inputs, terms, _turn(rope, token, pair, cos, sin), (),
        abs(float(first)) + abs(float(other)), "float32 operations in the order of the formula",
        summed="the pair, turned",
    )  # fmt: skip


def _start(node: Node, head: int) -> int:
    """Where the channels that are turned begin in what is read."""
    owner = node.owner
    if isinstance(owner, Attention):
        return head * owner.head_dim
    assert isinstance(owner, LatentAttention)
    query = node.path.endswith("query_rotated")
    return head * owner.head_dim + owner.plain_dim if query else owner.kv_rank


def _turn(rope: Rope, token: int, pair: int, cos: np.float32, sin: np.float32) -> tuple[Step, ...]:
    frequency = np.float32(inverse_frequencies(rope)[pair])
    plain = f"{rope.theta:g}^(-{2 * pair}/{rope.dim})"
    scaled = f", scaled by {rope.scaling.kind}" if rope.scaling else ""
    factor = attention_factor(rope)
    by = f" * {factor:g}" if factor != 1 else ""
    return (
        Step("pair", f"number {pair} of {rope.dim // 2}, in the pairing `{rope.pairing}`"),
        Step("frequency", f"{plain}{scaled}", float(frequency)),
        Step("angle", f"position {token} * frequency, radians", float(np.float32(token) * frequency)),
        Step("cos", f"of the angle{by}", float(cos)),
        Step("sin", f"of the angle{by}", float(sin)),
    )


# --- scores ----------------------------------------------------------------------------------


def scores(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """Q k * scale of one head and one seen token."""
    gear, (head, other) = node.gear, index
    assert isinstance(gear, Attention)
    first, last = desk.seen(token, gear.causal, gear.window)
    if not first <= other <= last:
        return Made(-math.inf, steps=(Step("mask", UNSEEN),), order="the mask")
    width, key_head = gear.head_dim, head // (gear.heads // gear.kv_heads)
    query, key = desk.row(node.reads["query"], token), desk.row(node.reads["key"], other)
    q = query.values[head * width : (head + 1) * width]
    k = key.values[key_head * width : (key_head + 1) * width]
    inputs = query.inputs(
        range(head * width, (head + 1) * width), lambda c: f"query channel {c}"
    ) + key.inputs(
        range(key_head * width, (key_head + 1) * width), lambda c: f"key channel {c} of {desk.named(other)}"
    )
    scale, running = np.float32(gear.scale), None
    if desk.cache == "codes":
        coded, kept = mixing.coded_query(q, scale), mixing.coded_by_length(k[None])
        products = mixing.code_scores(coded, kept)
        result, order = mixing.shown_scores(products, coded.unit, gear.cap)[0], CPU_CODES
        held = kept.worth[0]
        exact = coded.worth * held
    else:
        held = desk.kept(k).astype(np.float64)
        exact = q.astype(np.float64) * held * float(scale)
        result, order = np.float32((q.astype(np.float64) * held).sum()) * scale, EXACT_SUM
        if desk.cpu:
            running = kernels.accumulate(q * scale, held.astype(np.float32))
            result, order = running[-1], CPU_CHANNELS
    places = np.arange(width)
    terms = Terms.columns(
        lambda c: f"channel {c}", np.stack([places, width + places], axis=1),
        (("query", q), (desk.keeping("key"), held)), exact, running,
    )  # fmt: skip
    steps = [
        Step("key head", f"query head {head} reads key head {key_head} of {gear.kv_heads}"),
        Step("scale", _scale_words(gear), float(scale)),
    ]
    magnitude = float(np.abs(exact).sum())
    if gear.cap:
        steps += [Step("before the cap", "the sum", float(exact.sum())),
                  Step("cap", "s becomes cap * tanh(s / cap)", gear.cap)]  # fmt: skip
        if desk.cache != "codes":
            bent = mixing.capped_scores if desk.cpu else capped
            result = np.float32(bent(np.asarray(result, np.float32), gear.cap))
        # tanh by way of an exponential rounds to the cap's own last digits.
        magnitude += gear.cap if desk.cpu else 0.0
    return Made(
        float(result), inputs, terms, tuple(steps), (), magnitude, order,
        summed="scale times query times key",
    )  # fmt: skip


def _scale_words(gear: Attention | LatentAttention) -> str:
    return "of the model" if gear.score_scale is not None else f"1 / sqrt({gear.head_dim})"


# --- softmax ---------------------------------------------------------------------------------


def softmax_weight(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """exp(s - max) / sum of the same. All backends show weights that NumPy computed from scores."""
    head, other = index
    found = desk.row(node.reads["scores"], token)
    length = desk.span(token)[1]
    row = found.values.reshape(found.shape)[head, :length]
    seen = np.flatnonzero(row > -np.inf)
    result = softmax(row[None, None, :])[0, 0, other]
    inputs = found.inputs(
        (head * found.shape[1] + seen).tolist(), lambda i: f"score of {desk.named(int(seen[i]))}"
    )
    top = row.max()
    e = np.exp(row - top)
    total = e.sum()
    terms = Terms.columns(
        lambda i: desk.named(int(seen[i])), np.arange(len(seen)), (("score", row[seen]),), e[seen]
    )
    if row[other] == -np.inf:
        return Made(0.0, inputs, steps=(Step("mask", UNSEEN),), order="the mask")
    steps = (
        Step("maximum", f"over {len(seen)} seen tokens, taken off every score", float(top)),
        Step("exponential", f"of the score of {desk.named(other)}, less the maximum", float(e[other])),
        Step("sum", "of all exponentials", float(total)),
        Step("weight", "exponential / sum"),
    )
    return Made(float(result), inputs, terms, steps, (), 1.0, "NumPy's float32 softmax",
                summed="the exponentials")  # fmt: skip


# --- mixing ----------------------------------------------------------------------------------


def mixed(desk: Desk, node: Node, token: int, index: tuple[int, ...]) -> Made:
    """The weighted sum of one channel of the values of a head's seen tokens."""
    gear, (head, channel) = node.gear, index
    assert isinstance(gear, Attention)
    width, value_head = gear.head_dim, head // (gear.heads // gear.kv_heads)
    first, last = desk.seen(token, gear.causal, gear.window)
    rows = desk.rows(node.reads["value"], first, last)
    here = rows[:, value_head * width : (value_head + 1) * width]
    values = np.concatenate([np.zeros((first, width), np.float32), here])  # [last + 1, head_dim]
    found = desk.row(node.reads["weights"], token)
    weights = found.values.reshape(found.shape)[head, first : last + 1]
    result, shares, held, order = _mix(desk, node, (token, head, channel), weights, values)
    inputs = weight_inputs(desk, found, head, first, last)
    place, places = value_head * width + channel, np.arange(last + 1 - first)
    inputs += Listed(
        len(places),
        lambda i: desk.row(node.reads["value"], first + i).input(place, f"value of {desk.named(first + i)}"),
    )
    terms = Terms.columns(
        lambda i: desk.named(first + i), np.stack([places, len(places) + places], axis=1),
        (("weight", weights), (desk.keeping("value"), held)), shares * held,
    )  # fmt: skip
    steps = (Step("value head", f"query head {head} reads value head {value_head} of {gear.kv_heads}"),)
    return Made(
        float(result), inputs, terms, steps, (), float(np.abs(shares * held).sum()), order,
        summed="weight times value",
    )  # fmt: skip


Doubles = NDArray[np.float64]


def _mix(
    desk: Desk, node: Node, place: tuple[int, int, int], weights: Floats, values: Floats
) -> tuple[np.float32, Doubles, Doubles, str]:
    """The mixed number, each seen token's share in it, its value as it is kept, and the order.

    Args:
        desk: whose arithmetic.
        node: of the mixed values.
        place: token, head and channel.
        weights: of the seen tokens, [seen].
        values: of all tokens up to the last seen one, zeros for those before the first, [last + 1, head_dim].
    """
    gear, (token, head, channel) = node.gear, place
    assert isinstance(gear, Attention)
    first, last = desk.seen(token, gear.causal, gear.window)
    kernel = desk.cpu and not desk.changes((*node.reads["scores"], *node.reads["weights"]))
    coded = mixing.coded_by_size(values) if desk.cache == "codes" else None
    if coded is not None and kernel:
        products, worth = _code_products(desk, node, place)
        own = mixing.attend_codes(products, worth, gear.cap, first, last, coded)
        return own.mixed[channel], own.shares[first:], coded.worth[first:, channel], CPU_MIX_CODES
    kept = desk.kept(values[first:, channel]) if coded is None else coded.worth[first:, channel]
    if not kernel:  # weights that were changed are multiplied by NumPy
        shares = weights.astype(np.float64)
        return np.float32((shares * kept).sum()), shares, kept.astype(np.float64), EXACT_SUM
    scores = desk.row(node.reads["scores"], token)
    column = desk.kept(values[:, channel : channel + 1])
    own = mixing.attend(scores.values.reshape(scores.shape)[head, : last + 1], first, last, column)
    return own.mixed[0], own.shares[first:], kept.astype(np.float64), CPU_MIX


def _code_products(desk: Desk, node: Node, place: tuple[int, int, int]) -> tuple[Floats, np.float32]:
    """Scores of all seen tokens before they are multiplied by what the query's codes are worth."""
    gear, (token, head, _) = node.gear, place
    assert isinstance(gear, Attention)
    (path,) = node.reads["scores"]
    reads, width, key_head = desk.flow[path].reads, gear.head_dim, head // (gear.heads // gear.kv_heads)
    first, last = desk.seen(token, gear.causal, gear.window)
    query = mixing.coded_query(desk.heads(reads["query"], token, width)[head], np.float32(gear.scale))
    keys = desk.rows(reads["key"], first, last)[:, key_head * width : (key_head + 1) * width]
    products = mixing.code_scores(query, mixing.coded_by_length(keys))
    return np.concatenate([np.zeros(first, np.float32), products]), query.unit


def weight_inputs(desk: Desk, found: Row, head: int, first: int, last: int) -> Listed[Input]:
    """The softmax weights of a head's seen tokens."""
    start = head * found.shape[1]
    return found.inputs(
        range(start + first, start + last + 1), lambda i: f"weight of {desk.named(first + i)}"
    )

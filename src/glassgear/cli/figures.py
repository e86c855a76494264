"""The figures of a ledger as lines for people: what `show` and `params` say below their drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from glassgear.cli import console
from glassgear.cli.table import count, flop, room, size
from glassgear.model.gears import Experts, Model, walk

if TYPE_CHECKING:
    from glassgear.model.ledger import Ledger

__all__ = [
    "CACHE_BYTES",
    "Fact",
    "cache",
    "expert_words",
    "parameters",
    "print_facts",
    "weight_bytes",
    "work",
]

Fact = tuple[str, str]
NAMES = 14  # width of the names
TIE = "\u00a0"  # a space at which no line ends; printed as any other
CACHE_BYTES = {"f16": 2, "f32": 4}
TOGETHER = ("F16", "BF16")  # of one size
QUANTISED = ("Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0")


def print_facts(facts: Iterable[Fact]) -> None:
    """A line each: a dim name, and what there is to say; a name that is empty goes on."""
    limit = room()
    for name, value in facts:
        text = console.visible(value)
        lines = textwrap.wrap(text, max(30, limit - NAMES - 1)) if limit else [text]
        for number, line in enumerate(lines):
            head = console.style(f"{'' if number else name:<{NAMES}}", dim=True)
            click.echo(f"{head} {line.replace(TIE, ' ')}", color=console.may_colour())


def parameters(counted: Ledger) -> list[Fact]:
    """Parameters, and what differs from them: buffers, and what one token meets."""
    facts = [("parameters", f"{counted.parameters:,} ({count(counted.parameters)})")]
    if counted.buffers:
        facts.append((
            "buffers",
            f"{counted.buffers:,} more values that no gradient changes ({_buffers(counted.model)}); "
            f"{counted.count.values:,} values in all",
        ))  # fmt: skip
    if experts := expert_words(counted.model):
        facts.append((
            "active",
            f"{counted.active:,} ({count(counted.active)}) a token: {experts}, {_ends(counted.model)}",
        ))  # fmt: skip
    return facts


def _ends(model: Model) -> str:
    if model.head is None:
        return "and one row of the embedding"
    return (
        "and the whole head, which is the embedding's table"
        if model.head.tied
        else "one row of the embedding, and the whole head"
    )


def _buffers(model: Model) -> str:
    routed = any(isinstance(gear, Experts) and gear.router.correction for gear in _distinct(model))
    return "the routers' corrections" if routed else "BatchNorm's statistics"


def expert_words(model: Model) -> str:
    """`8 of 256 experts`, and the shared one; empty for a model without any."""
    for gear in _distinct(model):
        if isinstance(gear, Experts):
            shared = " and the shared one" if gear.shared else ""
            return f"{gear.router.used} of {gear.router.count} experts{shared}"
    return ""


def _distinct(model: Model) -> Iterable[object]:
    for block in {id(block): block for block in model.blocks}.values():
        for step in block.steps:
            yield from (
                (gear for _, gear in walk(step.gear)) if not isinstance(step.gear, Experts) else (step.gear,)
            )


def cache(counted: Ledger, tokens: int) -> list[Fact]:
    """What a text of so many tokens takes in the KV cache."""
    if not counted.cache_values:
        why = "no token sees another" if counted.model.causal else "tokens see those after them"
        return [("KV cache", f"none is needed: {why}")]
    sizes = ", ".join(f"{size(counted.cache_values * tokens * n)} in {k}" for k, n in CACHE_BYTES.items())
    return [("KV cache", f"{sizes} for {tokens:,} tokens ({counted.cache_values:,} values a token)")]


def work(counted: Ledger, tokens: int) -> list[Fact]:
    """Operations for a token of a prompt, and for the one after it."""
    prompt = f"{flop(counted.prompt_flops(tokens) / tokens)} a token in a prompt of {tokens:,}"
    if not counted.model.causal:
        return [("work", prompt.replace("prompt", "text"))]
    return [("work", f"{prompt}, {flop(counted.flops_per_token(tokens))} for the next one")]


def weight_bytes(counted: Ledger) -> dict[str, int]:
    """Bytes of all weights by type: `F32`, `F16`, ...

    Floats hold every value. Quantised types hold matrices; vectors, routers and the tables of positions
    and types are float32 beside them, and rows that aren't whole blocks get the type that `glassgear
    convert` gives them.
    """
    from glassgear.weights.quant import TYPES
    from glassgear.weights.quantize import fitting_type

    values = counted.count.values
    found = {"F32": 4 * values, **dict.fromkeys(TOGETHER, 2 * values)}
    for kind in QUANTISED:
        total = 0
        for (shape, may_shrink), times in counted.count.shapes.items():
            block = TYPES[fitting_type(kind, shape[-1]) if may_shrink else "F32"]
            each = 1
            for axis in shape:
                each *= axis
            total += times * (each // block.values) * block.nbytes
        found[kind] = total
    return found

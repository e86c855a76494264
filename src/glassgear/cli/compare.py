"""`glassgear compare`: the choices of several models side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.figures import expert_words
from glassgear.cli.gear_words import activation, heads, place, theta
from glassgear.cli.opening import open_checkpoint
from glassgear.cli.options import Command
from glassgear.cli.options import option as command_option
from glassgear.cli.output import json_line
from glassgear.cli.table import count, room, size, table
from glassgear.model.gears import (
    FFN,
    Attention,
    Block,
    Bottleneck,
    Experts,
    GatedFFN,
    Gear,
    LatentAttention,
    Model,
    Residual,
)

if TYPE_CHECKING:
    from glassgear.model.ledger import Ledger

__all__ = ["command"]

EXAMPLES = """
glassgear compare llama-2-7b llama-3-8b qwen2.5-7b glm-4-9b mistral-7b deepseek-v3
glassgear compare my.toml gpt2
glassgear compare llama-3-8b model.gguf --json
"""
TOKENS = 1000  # for which the cache is told


@click.command(cls=Command, short_help="Set the choices of models side by side.", examples=EXAMPLES)
@click.argument("models", nargs=-1, required=True)
@command_option("--json", "as_json", is_flag=True, section="Options", help="One JSON object.")
def command(models: tuple[str, ...], as_json: bool) -> None:
    """Set MODELS side by side: their networks, attention, norms, positions and totals.

    Each is a file or folder with weights, a model file (TOML), or the name of a published config
    (`glassgear params` lists them). No weight is read.
    """
    from glassgear.model.ledger import ledger

    found = [(name, ledger(open_checkpoint(name).model)) for name in models]
    if as_json:
        json_line({"models": [{"name": name, **_as_json(counted)} for name, counted in found]})
        return
    rows = [(title, [text(counted) for _, counted in found]) for title, text in FACTS]
    parts = _pages([name for name, _ in found], rows)
    click.echo("\n\n".join(parts), color=console.may_colour())
    _often_read(models)


def _often_read(models: Iterable[str]) -> None:
    """What is often read about these models and doesn't hold."""
    from glassgear.model.presets import PRESETS

    lines = [
        f"  {name}: {reading.wrong} \u2192 {reading.right}"
        for name in dict.fromkeys(models)
        if name in PRESETS
        for reading in PRESETS[name].often_read
        if reading.choice
    ]
    if not lines:
        return
    click.echo(console.style("\nOften read, and what holds:", bold=True), color=console.may_colour())
    limit = room()
    for line in lines:
        click.echo("\n".join(textwrap.wrap(line, limit, subsequent_indent="    ")) if limit else line)


def _pages(names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Tables of a column for each model, as many below each other as the terminal needs."""
    limit = room()
    titles = max(console.cells(title) for title, _ in rows)
    widths = [
        max(console.cells(text) for text in (name, *(cells[i] for _, cells in rows)))
        for i, name in enumerate(names)
    ]
    pages, left = [], list(range(len(names)))
    while left:
        taken = [left.pop(0)]
        while left and (limit is None or titles + sum(2 + widths[i] for i in [*taken, left[0]]) <= limit):
            taken.append(left.pop(0))
        body = [(title, *(cells[i] for i in taken)) for title, cells in rows if any(cells[i] for i in taken)]
        pages.append(table(("", *(names[i] for i in taken)), body))
    return pages


# ------------------------------------------------------------------------------------------------
# Facts, each of a whole model; where its layers differ, of each kind of layer


def _kinds(model: Model) -> list[tuple[Block, int]]:
    """The distinct blocks of a model and how many there are of each, in the order in which they come."""
    times: dict[Block, int] = {}
    for block in model.blocks:
        times[block] = times.get(block, 0) + 1
    return list(times.items())


def _by_kind(model: Model, describe: Callable[[Block], str]) -> str:
    """What a description comes to for each kind of layer; once if all give the same."""
    found: dict[str, int] = {}
    for block, times in _kinds(model):
        text = describe(block)
        found[text] = found.get(text, 0) + times
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{text or 'none'} (\u00d7{times})" for text, times in found.items())


def _steps(block: Block) -> tuple[Residual, ...]:
    """The sublayers of a block, those inside a bottleneck included."""
    return tuple(
        inner
        for step in block.steps
        for inner in (step.gear.steps if isinstance(step.gear, Bottleneck) else (step,))
    )


def _network(block: Block) -> FFN | GatedFFN | Experts | None:
    return next((s.gear for s in _steps(block) if isinstance(s.gear, FFN | GatedFFN | Experts)), None)


def _one(gear: FFN | GatedFFN | Experts) -> FFN | GatedFFN:
    return gear.expert if isinstance(gear, Experts) else gear


def _attention(block: Block) -> Attention | LatentAttention | None:
    return next((s.gear for s in _steps(block) if isinstance(s.gear, Attention | LatentAttention)), None)


def _width(block: Block) -> str:
    network = _network(block)
    if network is None:
        return ""
    many = sum(isinstance(s.gear, FFN | GatedFFN) for s in _steps(block))
    each = " an expert" if isinstance(network, Experts) else f" \u00d7 {many}" if many > 1 else ""
    return f"{_one(network).up.outputs:,}{each}"


def _multiple(block: Block) -> str:
    network = _network(block)
    return "" if network is None else f"{_one(network).up.outputs / _one(network).up.inputs:.2f}\u00d7"


def _activation(block: Block) -> str:
    network = _network(block)
    return "" if network is None else activation(network)


def _experts(block: Block) -> str:
    network = _network(block)
    if not isinstance(network, Experts):
        return ""
    shared = " + 1 shared" if network.shared else ""
    return f"{network.router.used} of {network.router.count}{shared}"


def _heads(block: Block) -> str:
    gear = _attention(block)
    return "" if gear is None else heads(gear)


def _head_dim(block: Block) -> str:
    gear = _attention(block)
    return "" if gear is None else str(gear.head_dim)


def _window(block: Block) -> str:
    gear = _attention(block)
    if gear is None:
        return ""
    if isinstance(gear, LatentAttention) or (gear.causal and not gear.window):
        return "all before it"
    return f"the last {gear.window:,}" if gear.causal else "all"


def _norms(block: Block) -> str:
    norms = [n for s in _steps(block) for n in (s.norm, s.post_norm, s.sum_norm) if n is not None]
    return " / ".join(dict.fromkeys(type(norm).__name__ for norm in norms))


def _positions(model: Model) -> str:
    def rope(block: Block) -> str:
        gear = _attention(block)
        if gear is None or gear.rope is None:
            return ""
        part = "" if gear.rope.dim == gear.head_dim else f" {gear.rope.dim} of {gear.head_dim}"
        scaling = f" {gear.rope.scaling.kind}" if gear.rope.scaling else ""
        return f"RoPE{part}{scaling} \u03b8 {theta(gear.rope)}"

    found = [_by_kind(model, rope), "learned" if model.positions else ""]
    return " + ".join(filter(None, found)) or "none"


def _head(model: Model) -> str:
    if model.head is None:
        return "none"
    return "tied" if model.head.tied else "its own"


def _ratio(counted: Ledger) -> str:
    from glassgear.model.ledger import purposes

    split = purposes(counted.model)
    ffn, attention = split.get("ffn", 0), split.get("attention", 0)
    return f"{ffn / attention:.1f}\u00d7" if ffn and attention else ""


def _of_blocks(describe: Callable[[Block], str]) -> Callable[[Ledger], str]:
    return lambda counted: _by_kind(counted.model, describe)


FACTS: tuple[tuple[str, Callable[[Ledger], str]], ...] = (
    ("parameters", lambda c: f"{c.parameters:,}"),
    ("active", lambda c: f"{c.active:,}" if expert_words(c.model) else ""),
    ("layers", lambda c: f"{len(c.model.blocks):,}"),
    ("width", lambda c: f"{c.model.dim:,}"),
    ("FFN width", _of_blocks(_width)),
    ("multiple", _of_blocks(_multiple)),
    ("activation", _of_blocks(_activation)),
    ("experts", _of_blocks(_experts)),
    ("attention", _of_blocks(_heads)),
    ("head width", _of_blocks(_head_dim)),
    ("a token sees", _of_blocks(_window)),
    ("FFN : attention", _ratio),
    ("norm", _of_blocks(_norms)),
    ("placed", _of_blocks(lambda block: place(block.steps))),
    ("positions", lambda c: _positions(c.model)),
    ("context", lambda c: f"{c.model.context:,}"),
    ("vocabulary", lambda c: f"{c.model.vocab:,}"),
    ("head", lambda c: _head(c.model)),
    (f"f16 cache, {TOKENS:,}", lambda c: size(2 * TOKENS * c.cache_values) if c.cache_values else "none"),
    ("work a token", lambda c: f"{count(c.flops_per_token(0))}FLOP"),
)


def _as_json(counted: Ledger) -> dict[str, Any]:
    model = counted.model
    return {
        "family": model.family,
        "parameters": counted.parameters,
        "buffers": counted.buffers,
        "active": counted.active,
        "width": model.dim,
        "context": model.context,
        "vocabulary": model.vocab,
        "head": _head(model),
        "positions": _positions(model),
        "cache_values_per_token": counted.cache_values,
        "layers": [_layer(block, times) for block, times in _kinds(model)],
    }


def _layer(block: Block, times: int) -> dict[str, Any]:
    network, attention = _network(block), _attention(block)
    found: dict[str, Any] = {"count": times, "norm": _norms(block), "placed": place(block.steps)}
    if network is not None:
        one = _one(network)
        found["ffn"] = {
            "width": one.up.outputs,
            "multiple": one.up.outputs / one.up.inputs,
            "gated": isinstance(one, GatedFFN),
            "activation": one.activation,
            "experts": _routing(network),
        }
    if attention is not None:
        latent = isinstance(attention, LatentAttention)
        found["attention"] = {
            "kind": heads(attention).partition(",")[0],
            "heads": attention.heads,
            "kv_heads": None if isinstance(attention, LatentAttention) else attention.kv_heads,
            "head_dim": attention.head_dim,
            "latent": attention.kv_rank if isinstance(attention, LatentAttention) else None,
            "causal": latent or getattr(attention, "causal", True),
            "window": getattr(attention, "window", 0),
            "rope_theta": attention.rope.theta if attention.rope else None,
        }
    return found


def _routing(gear: Gear) -> dict[str, Any] | None:
    if not isinstance(gear, Experts):
        return None
    return {"count": gear.router.count, "used": gear.router.used, "shared": gear.shared is not None}

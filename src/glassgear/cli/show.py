"""`glassgear show`: what a model is made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.figures import Fact, cache, parameters, print_facts, work
from glassgear.cli.narrow import wrapped
from glassgear.cli.opening import open_checkpoint
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.show_tree import Cell, Column, draw, shape_of
from glassgear.cli.table import flop, room, size
from glassgear.errors import GlassgearError

if TYPE_CHECKING:
    from glassgear.model.ledger import Ledger
    from glassgear.model.outline import Node
    from glassgear.text.base import Tokenizer
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["command", "title"]

EXAMPLES = """
glassgear show smollm2-135m
glassgear show model.gguf --all                        every block, not one for all
glassgear show model.gguf --json | jq .parameters
"""


@click.command(cls=Command, short_help="Show what a model is made of.", examples=EXAMPLES)
@click.argument("model")
@option("--all", "every", is_flag=True, section="Options", help="Show blocks that are alike one by one.")
@option("--json", "as_json", is_flag=True, section="Options", help="One JSON object, every tensor listed.")
def command(model: str, every: bool, as_json: bool) -> None:
    """Draw the gears of MODEL in the order in which a token meets them.

    Each line has its shape, its parameters, their bytes in the file and how they are stored.
    Blocks that are alike are drawn once. No weight is read, so this is quick for any size.
    """
    from glassgear.model.ledger import ledger
    from glassgear.model.outline import outline

    checkpoint = open_checkpoint(model)
    stored = {path: (t.type, t.nbytes) for path, t in checkpoint.tensors.items()}
    counted = ledger(checkpoint.model, stored)
    tokenizer, trouble = _tokenizer(checkpoint)
    if as_json:
        json_line(_described(checkpoint, counted, tokenizer))
        return
    colour = console.may_colour()
    click.echo(title(checkpoint), color=colour)
    columns = COLUMNS if stored else COLUMNS[:-2]
    click.echo("\n".join(draw(outline(counted, every=every), columns)) + "\n", color=colour)
    print_facts([*_totals(checkpoint, counted), *_text_facts(tokenizer, trouble)])
    for notice in [*checkpoint.notices, *(tokenizer.warnings if tokenizer else ())]:
        console.note(notice)


def _sum(text: Callable[[Node], str]) -> Callable[[Node], Cell]:
    """A figure of a gear's own tensors, or dim where it is the sum over its parts."""
    return lambda node: Cell(text(node) if node.count.values else "", dim=not node.tensors)


COLUMNS = (
    Column(lambda node: Cell(type(node.gear).__name__, dim=True), needed=1),
    Column(lambda node: Cell(shape_of(node)), wraps=True),
    Column(_sum(lambda node: f"{node.count.values:,}"), right=True),
    Column(_sum(lambda node: size(node.nbytes)), right=True, needed=2),
    Column(lambda node: Cell(" ".join(node.types), fg="cyan"), needed=3),
)


def _tokenizer(checkpoint: Checkpoint) -> tuple[Tokenizer | None, str]:
    """The model's tokenizer, or why there is none."""
    from glassgear.loading import load_tokenizer

    if checkpoint.vocabulary is None:
        return None, "none: --tokenizer names one where a command needs it"
    found = checkpoint.vocabulary
    try:
        return load_tokenizer(found if isinstance(found, Path) else checkpoint.path), ""
    except GlassgearError as trouble:
        return None, f"can't be read: {trouble}"


def title(checkpoint: Checkpoint) -> str:
    """The model's name, and dim beside it its family and where it comes from."""
    name, limit = console.visible(Path(checkpoint.path).name), room()
    facts = " \u00b7 ".join(["", *filter(None, [checkpoint.model.family, checkpoint.container])])
    if limit is not None:
        place = "x" * console.cells(name)  # one word, whatever the name is
        facts = "\n".join(wrapped(place + facts, limit)).removeprefix(place)
    return console.style(name, bold=True) + console.style(facts, dim=True) + "\n"


def _totals(checkpoint: Checkpoint, counted: Ledger) -> list[Fact]:
    context = checkpoint.model.context
    weights = f"{counted.nbytes:,} bytes ({size(counted.nbytes)})"
    return [
        *parameters(counted),
        ("weights", weights if checkpoint.tensors else f"none here; {size(counted.nbytes)} in f32"),
        ("context", f"{context:,} tokens"),
        *_reach(counted, context),
    ]


def _reach(counted: Ledger, context: int) -> list[Fact]:
    if not counted.cache_values:
        return [*cache(counted, context), *work(counted, context)]
    whole = counted.kv_bytes_per_token * context
    return [
        (
            "KV cache",
            f"{counted.kv_bytes_per_token:,} bytes a token in f32, {size(whole)} for the whole context",
        ),
        (
            "work",
            f"{flop(counted.flops_per_token())} for the first token, "
            f"{flop(counted.flops_per_token(context - 1))} for the last of the context",
        ),
    ]


def _text_facts(tokenizer: Tokenizer | None, trouble: str) -> list[tuple[str, str]]:
    if tokenizer is None:
        return [("tokenizer", trouble)]
    ends = ", ".join(tokenizer.piece(token) for token in sorted(tokenizer.end_ids))
    facts = [
        f"{tokenizer.kind}, {tokenizer.vocab_size:,} entries",
        f"starts a text with {tokenizer.piece(tokenizer.bos_id)}"
        if tokenizer.adds_bos and tokenizer.bos_id is not None
        else "starts a text with nothing",
        f"ends it at {ends}" if ends else "",
    ]
    return [
        ("tokenizer", "; ".join(filter(None, facts))),
        ("chat template", "yes" if tokenizer.chat_template else "no"),
    ]


def _described(checkpoint: Checkpoint, counted: Ledger, tokenizer: Tokenizer | None) -> dict[str, Any]:
    context = checkpoint.model.context
    return {
        "path": checkpoint.path,
        "container": checkpoint.container,
        "family": checkpoint.model.family,
        "parameters": counted.parameters,
        "buffers": counted.buffers,
        "active": counted.active,
        "bytes": counted.nbytes,
        "context": context,
        "kv_bytes_per_token": counted.kv_bytes_per_token,
        "flops_first_token": counted.flops_per_token(),
        "flops_last_token": counted.flops_per_token(context - 1),
        "tensors": [
            {
                "path": row.path,
                "gear": row.gear,
                "shape": list(row.shape),
                "parameters": row.parameters,
                **({"buffers": row.buffers} if row.buffers else {}),
                "type": row.type,
                "bytes": row.nbytes,
            }
            for row in counted.rows
        ],
        "tokenizer": None
        if tokenizer is None
        else {
            "kind": tokenizer.kind,
            "entries": tokenizer.vocab_size,
            "bos_id": tokenizer.bos_id,
            "adds_bos": tokenizer.adds_bos,
            "end_ids": sorted(tokenizer.end_ids | checkpoint.end_ids),
            "chat_template": bool(tokenizer.chat_template),
        },
        "notices": [*checkpoint.notices, *(tokenizer.warnings if tokenizer else ())],
    }

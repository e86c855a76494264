"""`glassgear show`: what a model is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.opening import open_checkpoint
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.show_tree import tree_lines
from glassgear.cli.table import count, size
from glassgear.errors import GlassgearError

if TYPE_CHECKING:
    from glassgear.model.ledger import Ledger
    from glassgear.text.base import Tokenizer
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["command"]

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

    checkpoint = open_checkpoint(model)
    stored = {path: (t.type, t.nbytes) for path, t in checkpoint.tensors.items()}
    counted = ledger(checkpoint.model, stored)
    tokenizer, trouble = _tokenizer(checkpoint)
    if as_json:
        json_line(_described(checkpoint, counted, tokenizer))
        return
    colour = console.may_colour()
    click.echo(_title(checkpoint), color=colour)
    click.echo("\n".join(tree_lines(checkpoint.model, counted.rows, every)) + "\n", color=colour)
    for name, value in [*_totals(checkpoint, counted), *_text_facts(tokenizer, trouble)]:
        click.echo(f"{console.style(f'{name:<14}', dim=True)} {console.visible(value)}", color=colour)
    for notice in [*checkpoint.notices, *(tokenizer.warnings if tokenizer else ())]:
        console.note(notice)


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


def _title(checkpoint: Checkpoint) -> str:
    name = console.style(console.visible(Path(checkpoint.path).name), bold=True)
    facts = [checkpoint.model.family, checkpoint.container]
    return name + console.style(" \u00b7 ".join(["", *filter(None, facts)]), dim=True) + "\n"


def _totals(checkpoint: Checkpoint, counted: Ledger) -> list[tuple[str, str]]:
    context = checkpoint.model.context
    whole = counted.kv_bytes_per_token * context
    return [
        ("parameters", f"{counted.parameters:,} ({count(counted.parameters)})"),
        ("weights", f"{counted.nbytes:,} bytes ({size(counted.nbytes)})"),
        ("context", f"{context:,} tokens"),
        (
            "KV cache",
            f"{counted.kv_bytes_per_token:,} bytes a token in f32, {size(whole)} for the whole context",
        ),
        (
            "work",
            f"{count(counted.flops_per_token())}FLOP for the first token, "
            f"{count(counted.flops_per_token(context - 1))}FLOP for the last of the context",
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

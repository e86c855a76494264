"""`glassgear params`: the ledger of a model: what each gear holds, what it takes and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console, figures
from glassgear.cli.opening import open_checkpoint, print_notices
from glassgear.cli.options import Command, option
from glassgear.cli.output import json_line
from glassgear.cli.show import title
from glassgear.cli.show_tree import Cell, Column, draw, shape_of
from glassgear.cli.table import room, size, table

if TYPE_CHECKING:
    from glassgear.cli.figures import Fact
    from glassgear.model.ledger import Ledger
    from glassgear.model.outline import Node
    from glassgear.weights.checkpoint import Checkpoint

__all__ = ["command"]

EXAMPLES = """
glassgear params                                       the published configs by name
glassgear params deepseek-v3                           from a published config, without its files
glassgear params llama-3-8b --story                    how one number becomes eight billion
glassgear params my.toml --tokens 4000                 a design of one's own, for texts of 4,000 tokens
glassgear params model.gguf --json | jq .weights       what a file takes, and would take otherwise
"""


@click.command(cls=Command, short_help="Count what a model holds and costs.", examples=EXAMPLES)
@click.argument("model", required=False)
@option("--story", is_flag=True, section="Options", help="Tell the sum step by step, from one parameter on.")
@option(
    "--tokens",
    type=click.IntRange(1, 10_000_000),
    default=1000,
    metavar="N",
    section="Options",
    help="The length of text for which cache and work are told. [default: 1000]",
)
@option(
    "--plot",
    type=click.Path(dir_okay=False),
    metavar="PNG",
    section="Options",
    help="Also draw where the parameters are, into a file (needs matplotlib).",
)
@option("--json", "as_json", is_flag=True, section="Options", help="One JSON object.")
def command(model: str | None, story: bool, tokens: int, plot: str | None, as_json: bool) -> None:
    """Count the parameters of MODEL gear by gear, and what they take and cost.

    MODEL is a file or folder with weights, a model file (TOML), or the name of a published config;
    without MODEL these are listed. No weight is read, and no memory for any is taken.
    """
    from glassgear.model.ledger import ledger
    from glassgear.model.outline import outline

    if model is None:
        _list(as_json)
        return
    checkpoint = open_checkpoint(model)
    stored = {path: (t.type, t.nbytes) for path, t in checkpoint.tensors.items()}
    counted = ledger(checkpoint.model, stored)
    root = outline(counted)
    if plot is not None:
        from glassgear.cli.params_plot import save_plot

        save_plot(plot, model, counted)
    if as_json:
        json_line(_described(checkpoint, counted, root, tokens))
    elif story:
        from glassgear.cli.params_story import story_lines

        click.echo("\n".join(story_lines(model, checkpoint.model)), color=console.may_colour())
    else:
        _print(checkpoint, counted, root, tokens)
    print_notices(checkpoint.notices)
    if plot is not None:
        console.say(f"drawn into {plot}")


def _list(as_json: bool) -> None:
    """The published configs."""
    from glassgear.model import presets
    from glassgear.model.ledger import ledger

    rows = [(name, one, ledger(presets.model(name))) for name, one in presets.PRESETS.items()]
    if as_json:
        configs = [
            {"name": name, "about": one.about, "source": one.source, "parameters": counted.parameters}
            for name, one, counted in rows
        ]
        json_line({"configs": configs})
        return
    cells = [(name, f"{counted.parameters:,}", one.about, one.source) for name, one, counted in rows]
    head, limit = ("name", "parameters", "model", "source"), room()
    drawn = table(head, cells, right={1})
    if limit is not None and max(map(console.cells, click.unstyle(drawn).splitlines())) > limit:
        drawn = table(head[:3], [row[:3] for row in cells], right={1})
    click.echo(drawn, color=console.may_colour())


def _print(checkpoint: Checkpoint, counted: Ledger, root: Node, tokens: int) -> None:
    click.echo(title(checkpoint), color=console.may_colour())
    lines = draw(root, _columns(counted), lambda node: bool(node.count.values) or bool(_tied(node)))
    click.echo("\n".join(lines) + "\n", color=console.may_colour())
    figures.print_facts([
        *figures.parameters(counted), *_layers(root), *_weights(checkpoint, counted),
        *figures.cache(counted, tokens), *figures.work(counted, tokens),
    ])  # fmt: skip


def _tied(node: Node) -> bool:
    return getattr(node.gear, "tied", False)


def _columns(counted: Ledger) -> tuple[Column, ...]:
    def figure(node: Node, number: int, text: str) -> Cell:
        return Cell(text if number else "", dim=not node.tensors)

    def in_all(node: Node) -> int:
        return node.count.parameters * node.times

    return (
        Column(lambda node: Cell(type(node.gear).__name__, dim=True), needed=1, title="gear"),
        Column(lambda node: Cell(shape_of(node)), title="shape", wraps=True),
        Column(lambda node: figure(node, node.count.parameters, f"{node.count.parameters:,}"), right=True,
               title="parameters"),
        Column(lambda node: figure(node, in_all(node), f"{in_all(node):,}"), right=True, needed=2,
               title="in all"),
        Column(lambda node: figure(node, in_all(node), f"{in_all(node) / counted.parameters:.2%}"),
               right=True, title="share"),
    )  # fmt: skip


def _layers(root: Node) -> list[Fact]:
    """Each kind of layer: its parameters by what they are for."""
    from glassgear.model.gears import Block
    from glassgear.model.ledger import purposes

    facts: list[Fact] = []
    for node in root.parts:
        if isinstance(node.gear, Block):
            split = purposes(node.gear)
            parts = ", ".join(f"{name} {number:,}" for name, number in split.items())
            name = "" if facts else "a layer"
            facts.append(
                (name, f"{node.count.parameters:,}, {len(node.names):,} of them: {parts}{_ratio(split)}")
            )
    return facts


def _ratio(split: Mapping[str, int]) -> str:
    if not split.get("attention") or not split.get("ffn"):
        return ""
    return f" (ffn {split['ffn'] / split['attention']:.1f} times attention)"


def _weights(checkpoint: Checkpoint, counted: Ledger) -> list[Fact]:
    sizes = figures.weight_bytes(counted)
    others = {kind: nbytes for kind, nbytes in sizes.items() if kind not in ("F16", "BF16")}
    others = {"F32": others.pop("F32"), "F16 or BF16": sizes["F16"], **others}
    told = ", ".join(
        f"{size(nbytes)} in {kind.lower()}".replace(" ", figures.TIE) for kind, nbytes in others.items()
    )
    stored = (
        [("weights", f"{counted.nbytes:,} bytes ({size(counted.nbytes)}) as stored")]
        if checkpoint.tensors
        else []
    )
    return [*stored, ("" if stored else "weights", told)]


def _described(checkpoint: Checkpoint, counted: Ledger, root: Node, tokens: int) -> dict[str, Any]:
    from glassgear.model.gears import Block
    from glassgear.model.ledger import purposes

    return {
        "path": checkpoint.path,
        "container": checkpoint.container,
        "family": counted.model.family,
        "parameters": counted.parameters,
        "buffers": counted.buffers,
        "values": counted.count.values,
        "active": counted.active,
        "purposes": purposes(counted.model),
        "layers": [
            {"count": len(node.names), "parameters": node.count.parameters, **purposes(node.gear)}
            for node in root.parts
            if isinstance(node.gear, Block)
        ],
        "context": counted.model.context,
        "weights": {
            **({"stored": counted.nbytes} if checkpoint.tensors else {}),
            **{kind.lower(): nbytes for kind, nbytes in figures.weight_bytes(counted).items()},
        },
        "cache_values_per_token": counted.cache_values,
        "kv_cache": {
            "tokens": tokens, **{k: counted.cache_values * tokens * n for k, n in figures.CACHE_BYTES.items()}
        },
        "flops": {
            "tokens": tokens,
            "prompt_per_token": counted.prompt_flops(tokens) / tokens,
            "decode_per_token": counted.flops_per_token(tokens) if counted.model.causal else None,
        },
        "gears": [_row(node, counted) for node in root.walk() if node.count.values and node.path],
    }  # fmt: skip


def _row(node: Node, counted: Ledger) -> dict[str, Any]:
    return {
        "path": node.path,
        "gear": type(node.gear).__name__,
        "times": node.times,
        "shapes": {name: list(shape) for name, shape in node.tensors.items()},
        "parameters": node.count.parameters,
        "buffers": node.count.buffers,
        "in_all": node.count.parameters * node.times,
        "share": node.count.parameters * node.times / counted.parameters,
    }

"""The ledger of a model as a sum told step by step: from one parameter to all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from glassgear.cli import console
from glassgear.cli.gear_words import activation, heads
from glassgear.cli.table import count, room
from glassgear.model.gears import (
    FFN,
    Attention,
    Block,
    Bottleneck,
    Experts,
    GatedFFN,
    Gear,
    LatentAttention,
    Linear,
    Model,
    tensors,
)
from glassgear.model.ledger import Counts, ledger, purposes
from glassgear.model.outline import Node, outline

__all__ = ["story_lines"]

WIDTH = 18  # of a figure with its sign


def story_lines(name: str, model: Model) -> list[str]:
    """The story, styled.

    Args:
        name: what the user called the model; of a published config, misreadings are told too.
        model: its tree.
    """
    return [line.rstrip() for line in _Story(name, model).lines()]


class _Story:
    def __init__(self, name: str, model: Model) -> None:
        self._name = name
        self._model = model
        self._ledger = ledger(model)
        self._root = outline(self._ledger)
        self._counts = Counts()
        self._sum = 0

    def lines(self) -> Iterator[str]:
        total = self._ledger.parameters
        yield console.style(f"{self._name}: from one parameter to {total:,}", bold=True)
        yield ""
        model = self._model
        yield _line("1", "one number that training found")
        yield _line(f"{model.embed.dim:,}", "one token as a vector: a row of the embedding")
        for node in self._root.parts:
            if isinstance(node.gear, Block):
                yield from self._layer(node)
            elif node.count.parameters or getattr(node.gear, "tied", False):
                yield from self._outside(node)
        yield ""
        yield _line(f"= {total:,}", f"parameters in all ({count(total)})", bold=True)
        yield from self._shares(total)
        yield from self._active()
        yield from self._misreadings()

    def _outside(self, node: Node) -> Iterator[str]:
        number = node.count.parameters
        self._sum += number
        what = f"{node.names[0].replace('_', ' ')}: {_outside_words(node.gear, self._model)}"
        yield _line(f"+ {number:,}", what, f"{self._sum:,} so far")

    def _layer(self, node: Node) -> Iterator[str]:
        block, times = node.gear, len(node.names)
        assert isinstance(block, Block)
        split = purposes(block)
        yield ""
        kind = "A layer" if times == len(self._model.blocks) else f"A layer of the {times:,} of one kind"
        yield console.style(f"{kind}:", bold=True)
        for step in block.steps:
            yield from self._sublayer(step.gear)
        norms = [part for part in node.parts if part.tensors]  # all else in a block are sublayers
        if norms:
            kinds = ", ".join(dict.fromkeys(type(part.gear).__name__ for part in norms))
            yield _line(f"{sum(part.count.parameters for part in norms):,}", f"its norms ({kinds})")
        one = node.count.parameters
        ratio = ""
        if split.get("attention") and split.get("ffn"):
            ratio = f"ffn {split['ffn'] / split['attention']:.1f} times attention"
        yield _line(f"= {one:,}", "a layer", ratio)
        self._sum += times * one
        yield _line(f"+ {times * one:,}", f"{times:,} of them", f"{self._sum:,} so far")

    def _sublayer(self, gear: Gear) -> Iterator[str]:
        if isinstance(gear, Attention | LatentAttention):
            for name, part in gear.parts.items():
                if number := self._counts.of(part).parameters:
                    yield _line(f"{number:,}", f"{name.replace('_', ' ')}{_matrix(part)}")
            yield _line(f"= {self._counts.of(gear).parameters:,}", f"attention ({heads(gear)})")
        elif isinstance(gear, Experts):
            yield from self._experts(gear)
        elif isinstance(gear, FFN | GatedFFN):
            yield from self._network(gear)
        elif isinstance(gear, Bottleneck):
            for name, part in gear.parts.items():
                if isinstance(part, Linear):
                    yield _line(f"{self._counts.of(part).parameters:,}", f"{name}{_matrix(part)}")
                else:
                    yield from self._sublayer(part)
            yield _line(f"= {self._counts.of(gear).parameters:,}", "the bottleneck with the norms in it")

    def _network(self, gear: FFN | GatedFFN, what: str = "feed-forward network") -> Iterator[str]:
        for name, part in gear.parts.items():
            yield _line(f"{self._counts.of(part).parameters:,}", f"{name}{_matrix(part)}")
        times = gear.up.outputs / gear.up.inputs
        words = f"{what} ({activation(gear)}, {times:.2g} times as wide as the stream)"
        yield _line(f"= {self._counts.of(gear).parameters:,}", words)

    def _experts(self, gear: Experts) -> Iterator[str]:
        router = gear.router
        yield _line(f"{self._counts.of(router).parameters:,}", f"router [{router.count}, {router.dim}]")
        yield from self._network(gear.expert, "one expert")
        routed = router.count * self._counts.of(gear.expert).parameters
        yield _line(f"+ {routed:,}", f"{router.count:,} of them, of which a token uses {router.used}")
        if gear.shared is not None:
            yield _line(
                f"+ {self._counts.of(gear.shared).parameters:,}", "the shared expert, which every token uses"
            )
        yield _line(f"= {self._counts.of(gear).parameters:,}", "all experts and the router")

    def _shares(self, total: int) -> Iterator[str]:
        split = purposes(self._model)
        shares = ", ".join(
            f"{name} {number / total:.1%}" if number >= total / 2000 else f"{name} below 0.1%"
            for name, number in split.items()
        )
        yield _line("", shares)
        if split.get("ffn") and split.get("attention"):
            yield _line("", f"ffn holds {split['ffn'] / split['attention']:.1f} times what attention holds")

    def _active(self) -> Iterator[str]:
        counted = self._ledger
        if counted.buffers:
            yield _line(
                f"+ {counted.buffers:,}",
                f"values that no gradient changes: {counted.count.values:,} values in all",
            )
        if any(isinstance(step.gear, Experts) for block in self._model.blocks for step in block.steps):
            yield _line(
                f"{counted.active:,}",
                f"of these act on one token ({counted.active / counted.parameters:.1%})",
            )

    def _misreadings(self) -> Iterator[str]:
        from glassgear.model.presets import PRESETS

        preset = PRESETS.get(self._name)
        if preset is None or not preset.often_read:
            return
        yield ""
        yield console.style("Often read, and what holds:", bold=True)
        for reading in preset.often_read:
            yield from _wrapped(f"  {reading.wrong}", "  ")
            yield from _wrapped(f"    {reading.right}", "    ")


def _line(number: str, what: str, beside: str = "", bold: bool = False) -> str:
    """A figure, what it is, and dim beside it what it comes to."""
    limit = room()
    figure = console.padded(number, WIDTH, right=True)
    if beside and limit is not None and WIDTH + 36 + len(beside) > limit:
        space = " " * (WIDTH + 2)
        told = console.style("\n".join(_wrapped(f"{figure}  {what}", space)), bold=bold)
        return told + "\n" + console.style("\n".join(_wrapped(space + beside, space)), dim=True)
    if beside:
        what = console.padded(what, 52 if limit is None or limit >= 100 else 32)
        return console.style(f"{figure}  {what}", bold=bold) + console.style(f"  {beside}", dim=True)
    return console.style("\n".join(_wrapped(f"{figure}  {what}", " " * (WIDTH + 2))), bold=bold)


def _wrapped(text: str, indent: str) -> Sequence[str]:
    """A text in lines that the terminal has room for, all but the first indented."""
    limit = room()
    return textwrap.wrap(text, limit, subsequent_indent=indent) if limit else [text]


def _matrix(gear: Gear) -> str:
    if not isinstance(gear, Linear):
        return ""
    return f" [{gear.outputs}, {gear.inputs}]" + (" and bias" if gear.bias else "")


def _outside_words(gear: Gear, model: Model) -> str:
    if gear is model.embed:
        return f"{model.embed.vocab:,} rows of {model.embed.dim:,}"
    if gear is model.head:
        return "the embedding's table again (tied)" if model.head.tied else f"{model.vocab:,} rows of its own"
    return " + ".join(str(list(shape)) for shape in tensors(gear).values())

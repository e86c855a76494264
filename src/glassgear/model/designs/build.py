"""The whole model from a whole file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassgear.errors import FormatError, SettingError
from glassgear.model.designs import gears as make
from glassgear.model.designs.sections import Section, View
from glassgear.model.gears import (
    Block,
    Embed,
    LearnedPositions,
    Linear,
    Model,
    Pooler,
    Residual,
    TokenTypes,
)

__all__ = ["design"]

MOST_LAYERS = 10_000
MOST_NETWORKS = 100_000  # feed-forward networks in all, experts counted one by one
STEPS = ("attention", "ffn")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def design(values: Mapping[str, Any], path: str) -> Model:
    """The model that a file describes.

    Args:
        values: its tables.
        path: the file, for messages.

    Raises:
        FormatError: a key that is unknown, missing, out of range or doesn't go with the others.
    """
    section = Section(values, path)
    section.asked.add("weights")  # values, which are read where files are: weights/given_weights.py
    top = View([section], path)
    try:
        model = _model(top, section)
    except SettingError as trouble:  # what gears refuse and no check here has named
        raise FormatError(path, str(trouble)) from None
    section.finish()
    return model


def _model(top: View, section: Section) -> Model:
    dim = top.integer("dim", what="width of the residual stream")
    vocab = top.integer("vocab", what="entries of the vocabulary")
    context = top.integer("context", 1024)
    blocks = _blocks(top, section, dim, context)
    norms = top.inner("norm")
    learned = make.positions_kind(top.inner("positions")) == "learned"
    types = top.integer("token_types", 0, least=0)
    norm = make.norm(norms, dim)
    # What leaves a pre-norm block has no norm behind it yet.
    bare = norm is not None and any(step.norm is not None for step in blocks[-1].steps)
    final, entry = top.flag("final_norm", bare), top.flag("embedding_norm", False)
    for key, wanted in (("final_norm", final), ("embedding_norm", entry)):
        if wanted and norm is None:
            top.refuse(key, 'asks for a norm, but the kind of [norm] is "none"')
    pooled = top.flag("pooler", False)
    return Model(
        Embed(vocab, dim, top.number("embedding_scale", 1.0, above=0)),
        blocks,
        norm if final else None,
        make.head(top.inner("head"), dim, vocab),
        context=context,
        family=top.text("name", "own design") or "own design",
        positions=LearnedPositions(context, dim) if learned else None,
        token_types=TokenTypes(types, dim) if types else None,
        embed_norm=norm if entry else None,
        pooler=Pooler(Linear(dim, dim, bias=True)) if pooled else None,
    )


def _blocks(top: View, section: Section, dim: int, context: int) -> tuple[Block, ...]:
    kinds = _kinds(top, section)
    repeat = top.integer("repeat", 1, most=MOST_LAYERS)
    counts = [own.integer("count", 1, most=MOST_LAYERS) if kinds else 1 for own in _views(kinds)]
    if not kinds:
        counts = [
            top.integer("layers", what="how many blocks there are, or write [[blocks]]", most=MOST_LAYERS)
        ]
    if sum(counts) * repeat > MOST_LAYERS:
        raise FormatError(top.path, f"asks for {sum(counts) * repeat:,} blocks; {MOST_LAYERS:,} are the most")
    made = []
    for own in kinds or (None,):
        sections = [section] if own is None else [own, section]
        made.append(_block(View(sections, top.path, place=own.place if own else ""), dim, context))
        if own is not None:
            own.finish()
    each = sum(
        n * make.networks_of(s.gear) for n, block in zip(counts, made, strict=True) for s in block.steps
    )
    if each * repeat > MOST_NETWORKS:
        raise FormatError(
            top.path, f"asks for {each * repeat:,} networks, experts included; {MOST_NETWORKS:,} are the most"
        )
    return tuple(block for n, block in zip(counts, made, strict=True) for _ in range(n)) * repeat


def _kinds(top: View, section: Section) -> list[Section]:
    """The `[[blocks]]` of a file; none where it says `layers`."""
    if not top.has("blocks"):
        return []
    found = section.values["blocks"]
    if not isinstance(found, list) or not found or not all(isinstance(one, Mapping) for one in found):
        section.refuse("blocks", "should be [[blocks]], a table for each kind of block")
    if "layers" in section.values:
        section.refuse("layers", "can't stand beside [[blocks]], which have a `count` each")
    return [
        Section(one, section.path, place=f"in the {_ordinal(i)} [[blocks]], ") for i, one in enumerate(found)
    ]


def _views(kinds: list[Section]) -> list[View]:
    return [View([own], own.path, place=own.place) for own in kinds]


def _ordinal(index: int) -> str:
    return ORDINALS[index] if index < len(ORDINALS) else f"{index + 1}th"


def _block(view: View, dim: int, context: int) -> Block:
    """One kind of block: its steps, each with its norms."""
    norms, positions = view.inner("norm"), view.inner("positions")
    place = make.norm_place(norms)
    skip = view.flag("residual", True)
    kind = _positions_of(view, positions)
    norm = make.norm(norms, dim)
    before = norm if place in ("pre", "sandwich") else None
    after = norm if place == "sandwich" else None
    on_sum = norm if place == "post" else None
    steps = []
    wanted = _steps(view)
    for name in set(STEPS) - set(wanted):
        view.inapplicable([name], f'describes what no block does: `steps` lacks "{name}"')
    for step in wanted:
        gear = (
            make.attention(view.inner("attention"), positions, norms, dim, context, kind == "rope")
            if step == "attention"
            else make.ffn(view.inner("ffn"), dim)
        )
        steps.append(Residual(before, gear, after, on_sum, skip))
    return Block(tuple(steps))


def _positions_of(view: View, positions: View) -> str:
    """What attention gets: `rope` or not; learned positions are the model's, not a block's."""
    kind = make.positions_kind(positions)
    first = view.sections[0].inner("positions") if len(view.sections) > 1 else None
    if first is not None and first.values.get("kind") == "learned":
        first.refuse(
            "kind", "can't be learned for one block: learned positions are added once, to the embedding"
        )
    return kind


def _steps(view: View) -> list[str]:
    if not view.has("steps"):
        return list(STEPS)
    found = next(s.values["steps"] for s in view.sections if "steps" in s.values)
    good = isinstance(found, list) and found and all(step in STEPS for step in found)
    if not good or len(set(found)) != len(found):
        view.refuse("steps", 'should be a list of "attention" and "ffn", each once at most')
    return list(found)

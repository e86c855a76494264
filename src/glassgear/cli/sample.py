"""`glassgear sample`: how the next token is chosen, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.ids_mode import prompt_ids, tokenizer_of
from glassgear.cli.language import language_option, speaking
from glassgear.cli.opening import open_model
from glassgear.cli.options import (
    Command,
    Option,
    as_text,
    model_options,
    option,
    sampling_options,
    sampling_settings,
    with_seed,
)
from glassgear.cli.output import json_line, quoted
from glassgear.cli.table import room
from glassgear.cli.trace_views import Name, cut, figure, is_slim, is_tight, left_out, new_table, share, show

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel
    from glassgear.languages import Words
    from glassgear.sampling import Draw, Sampler, Stage

__all__ = ["command"]

TOP = 10
FEW = 3  # removed tokens that are named for each stage
OUTPUT = "Output"

EXAMPLES = """
glassgear sample smollm2-135m "The sky is"                   with the settings of `run`
glassgear sample smollm2-135m "The sky is" -t 1.5 -k 0 -p 0.9 --min-p 0
glassgear sample smollm2-135m "a b c a b" --repeat-penalty 1.3 --seed 7 --steps 3
glassgear sample smollm2-135m "The sky is" -t 0              the likeliest: nothing is drawn
glassgear sample smollm2-135m "The sky is" --json | jq .stages
"""


@click.command(cls=Command, short_help="How the next token is chosen, stage by stage.", examples=EXAMPLES)
@click.argument("model")
@click.argument("prompt", required=False, callback=as_text)
@option("-n", "--steps", type=click.IntRange(1, 10_000), default=1, metavar="N", section=OUTPUT,
        help="Choose N tokens, one after the other. [default: 1]")  # fmt: skip
@option("--top", type=click.IntRange(1, 1000), default=TOP, metavar="N", section=OUTPUT,
        help=f"List the N likeliest candidates. [default: {TOP}]")  # fmt: skip
@option("--json", "as_json", is_flag=True, section=OUTPUT, help="A JSON object for each token, on a line.")
@language_option(OUTPUT)
@sampling_options
@option("--chat", is_flag=True, section="Model", help="PROMPT is a message: use the model's chat template.")
@option("--special", is_flag=True, section="Model",
        help="Read control tokens in the prompt as what they are.")  # fmt: skip
@option("--random", is_flag=True, section="Model",
        help="Take random weights, the same for the same --seed [default: 0]: for model files and published "
             "configs, which have none.")  # fmt: skip
@model_options
def command(model: str, prompt: str | None, **given: Any) -> None:
    """Show how MODEL's next token after PROMPT is chosen.

    The logits go through bias and penalties, then top-k, top-p, min-p and the temperature, in this order;
    what a filter keeps doesn't depend on the temperature. Each stage has a line: how many tokens it kept,
    how many it removed, and the likeliest of these. Then a random number says which token it is: each has
    a part of the line from 0 to 1, as long as it is probable. With the same seed and the same settings the
    tokens are those of `glassgear run`.
    """
    with speaking(given["lang"]) as words:
        _sample(model, prompt, given, words)


def _sample(model: str, prompt: str | None, given: dict[str, Any], words: Words) -> None:
    if given["random"] and given["seed"] is None:
        given["seed"] = 0
    settings = with_seed(sampling_settings(given))
    loaded = open_model(model, given)
    loaded.require_causal()
    tokenizer = tokenizer_of(loaded)

    def name(token: int) -> str:
        return quoted(tokenizer, token) if tokenizer else str(token)

    text = console.read_stdin() if prompt == "-" else prompt
    ids = prompt_ids(loaded, text, given)
    for number, choice in enumerate(_choices(loaded, ids, settings, given["steps"], words)):
        if given["as_json"]:
            json_line(_described(choice, name, given["top"]))
            continue
        if number:
            show("")
        _show(choice, name, given["top"], words)


@dataclass(frozen=True)
class Choice:
    """How one id was chosen.

    Attributes:
        step: its number, from 1.
        stages: in order.
        draw: None where nothing was drawn.
        id: what was chosen.
        seed: of the random numbers.
        end: whether it ends the text.
    """

    step: int
    stages: Sequence[Stage]
    draw: Draw | None
    id: int
    seed: int
    end: bool


def _choices(
    model: LanguageModel, ids: list[int], settings: dict[str, Any], count: int, words: Words
) -> Iterator[Choice]:
    """The ids that `run` would choose, each with how."""
    from glassgear.backends.base import Chunk
    from glassgear.sampling import Sampler, Sampling

    model.check_length(len(ids), "the prompt")
    sampler = Sampler(Sampling(**(dict(model.checkpoint.sampling) | settings)))
    backend, ids = model.backend, list(ids)
    track = backend.open()
    try:
        for step in range(1, count + 1):
            with console.status("Running ..."):
                logits = backend.step([Chunk(track, ids[track.length :])])[0][-1]
            choice = _choose(sampler, logits, ids, step, model.end_ids)
            yield choice
            ids.append(choice.id)
            if choice.end:
                return
            if len(ids) > model.context:
                console.note(words(f"the context of {model.context:,} tokens is full"))
                return
    finally:
        backend.close(track)


def _choose(sampler: Sampler, logits: Any, ids: list[int], step: int, ends: frozenset[int]) -> Choice:
    stages, drawn = sampler.stages(logits, ids), sampler.draw(logits, ids)
    chosen = sampler.next(logits, ids)
    assert drawn is None or drawn.id == chosen
    return Choice(step, stages, drawn, chosen, sampler.seed, chosen in ends)


# --- what to show -----------------------------------------------------------------------------


def _removed(before: Stage, after: Stage, count: int) -> tuple[int, list[tuple[int, float]]]:
    """How many ids a stage removed, and the likeliest of them with their probability before it."""
    import numpy as np

    gone = ~np.isin(before.ids, after.ids, assume_unique=True)
    ids, p = before.ids[gone], before.probabilities[gone]
    best = np.argsort(-p, kind="stable")[:count]
    return len(ids), [(int(ids[i]), float(p[i])) for i in best]


def _likeliest(stage: Stage) -> tuple[int, float]:
    place = int(stage.logits.argmax())
    return int(stage.ids[place]), float(stage.probabilities[place])


def _candidates(choice: Choice, count: int) -> list[dict[str, Any]]:
    """The likeliest ids at first, and the chosen one: before all stages, behind them, and who removed it."""
    import numpy as np

    first, last = choice.stages[0], choice.stages[-1]
    p = first.probabilities
    order = np.argsort(-first.logits, kind="stable")
    places = order[:count].tolist()
    chosen = int(np.searchsorted(first.ids, choice.id))
    if chosen not in places:
        places.append(chosen)
    final = dict(zip(last.ids.tolist(), last.probabilities.tolist(), strict=True))
    return [
        {
            "id": int(first.ids[i]), "logit": float(first.logits[i]), "probability": float(p[i]),
            "final": final.get(int(first.ids[i]), 0.0),
            "removed_by": _remover(choice.stages, int(first.ids[i])),
        }
        for i in places
    ]  # fmt: skip


def _remover(stages: Sequence[Stage], token: int) -> str | None:
    import numpy as np

    for stage in stages:
        place = int(np.searchsorted(stage.ids, token))
        if place == len(stage.ids) or stage.ids[place] != token:
            return stage.name
    return None


def _show(choice: Choice, name: Name, top: int, words: Words) -> None:
    from rich.text import Text

    heads: tuple[str, ...] = ("stage", "setting", "kept", "removed", "likeliest", "removed, the likeliest")
    if is_slim():  # the setting below the stage, and how many were removed alone
        heads = ("stage", *heads[2:5])
    stages = new_table(*map(words, heads), right=[1, 2] if is_slim() else [2, 3])
    for before, stage in zip([None, *choice.stages], choice.stages, strict=False):
        count, gone = (0, []) if before is None else _removed(before, stage, FEW)
        best, p = _likeliest(stage)
        told, setting = words(stage.name), words(stage.setting)
        called = cut(name(best)) if is_tight() else name(best)
        numbers = (f"{len(stage.ids):,}", f"{count:,}" if count else "", f"{called} {share(p)}")
        if is_slim():
            stages.add_row(f"{told}\n  {setting}" if setting else told, *numbers)
        else:
            removed = ", ".join(f"{name(i)} {share(q)}" for i, q in gone)
            stages.add_row(told, setting, *numbers, removed)
    heads = ("id", "candidate", *(() if is_tight() else ("logit",)), "before", "after", "")
    rows = new_table(*map(words, heads), right=(0, *range(2, len(heads) - 1)))
    for row in _candidates(choice, top):
        mark = "chosen" if row["id"] == choice.id else ""
        note = f"removed by {row['removed_by']}" if row["removed_by"] else mark
        style = "bold green" if mark else "dim" if row["removed_by"] else ""
        after = share(row["final"]) if row["final"] else ""
        logit = () if is_tight() else (figure(row["logit"]),)
        called = cut(name(row["id"])) if is_tight() else name(row["id"])
        texts = (called, *logit, share(row["probability"]), after, words(note))
        rows.add_row(str(row["id"]), *(Text(text, style=style) for text in texts))
    title = words(f"Token {choice.step} after the prompt")
    no_room = left_out(("removed, the likeliest",) if is_slim() else (), words)
    nor_here = left_out(("logit",) if is_tight() else (), words)
    show(title, stages, *no_room, "", rows, *nor_here, "", *map(words, _verdict(choice, name)))


def _verdict(choice: Choice, name: Name) -> Iterator[str]:
    """Why it is this one."""
    told = f"{name(choice.id)} (id {choice.id})"
    if choice.draw is None:
        yield f"Greedy: {told} has the largest logit; nothing is drawn."
    else:
        drawn = choice.draw
        yield f"0 {_line(drawn)} 1"
        yield (
            f"The random number is {drawn.number:.6f} (seed {choice.seed}); it falls between "
            f"{drawn.low:.6f} and {drawn.high:.6f}, the part of {told}."
        )
    if choice.end:
        yield "It ends the text."


def _line(drawn: Draw) -> str:
    """The line from 0 to 1: the chosen token's part of it, and where the number fell."""
    width = max(20, min(70, (room() or 80) - 5))
    low, high = int(drawn.low * width), max(int(drawn.low * width) + 1, round(drawn.high * width))
    cells = ["\u2588" if low <= i < high else "\u2500" for i in range(width)]
    cells[min(width - 1, int(drawn.number * width))] = "\u25c6"
    return "".join(cells)


def _described(choice: Choice, name: Name, top: int) -> dict[str, Any]:
    def told(token: int, p: float) -> dict[str, Any]:
        return {"id": token, "text": name(token), "probability": p}

    stages = []
    for before, stage in zip([None, *choice.stages], choice.stages, strict=False):
        count, gone = (0, []) if before is None else _removed(before, stage, FEW)
        stages.append({
            "name": stage.name, "setting": stage.setting, "kept": len(stage.ids), "removed_count": count,
            "removed": [told(*one) for one in gone], "likeliest": told(*_likeliest(stage)),
        })  # fmt: skip
    drawn = choice.draw
    return {
        "step": choice.step,
        "stages": stages,
        "candidates": [row | {"text": name(row["id"])} for row in _candidates(choice, top)],
        "draw": None if drawn is None else {"number": drawn.number, "interval": [drawn.low, drawn.high]},
        "chosen": {"id": choice.id, "text": name(choice.id), "end": choice.end},
        "seed": choice.seed,
    }


for _parameter in command.params:  # there is no --stats here
    if isinstance(_parameter, Option) and _parameter.name == "seed":
        _parameter.help = "The same seed gives the same tokens. [default: a new one, which is shown]"

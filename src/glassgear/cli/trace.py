"""`glassgear trace`: every value between a prompt and the next token."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from glassgear.cli import console
from glassgear.cli.ids_mode import prompt_ids, tokenizer_of
from glassgear.cli.language import language_option, speaking
from glassgear.cli.opening import open_model
from glassgear.cli.options import Command, as_text, model_options, option
from glassgear.cli.output import json_line, quoted
from glassgear.cli.table import size
from glassgear.cli.zeroing import zero_option, zeroing_of
from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.backends.base import Hook
    from glassgear.language_model import LanguageModel
    from glassgear.languages import Words
    from glassgear.trace.trace import Trace

__all__ = ["command"]

RECORD, VIEW, CHANGE, MODEL = "What is recorded", "What is shown", "What is changed", "Model"
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
TOP = 5

EXAMPLES = """
glassgear trace smollm2-135m "The capital of France is"      figures of every value
glassgear trace smollm2-135m "The capital of France is" --lens     what each layer would say
glassgear trace smollm2-135m "a b a b a" --heads --select "blocks.3.*"
glassgear trace smollm2-135m "Hi" --growth --token 1         how the stream grows
glassgear trace smollm2-135m "Hi" --chat -n 8 --save hi.safetensors
glassgear trace --open hi.safetensors --all --select "blocks.*.ffn.*"
glassgear trace smollm2-135m "1, 2, 3," --zero blocks.3.attention.mixed:4
glassgear trace my.toml "1 2 3" --random --json | jq .values
"""


def _bytes(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Callback: `500MB`, `2G`, `1000000`."""
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([kmg]i?|)b?\s*", value, re.IGNORECASE)
    if not found or not float(found[1]):
        raise click.BadParameter(f"{value!r:.40} isn't a size such as 500MB or 2G", ctx, parameter)
    return int(float(found[1]) * UNITS[found[2].lower()])


@click.command(cls=Command, short_help="Record every value on the way to a token.", examples=EXAMPLES)
@click.argument("model", required=False)
@click.argument("prompt", required=False, callback=as_text)
@option("-n", "--max-tokens", type=click.IntRange(min=0), default=0, metavar="N", section=RECORD,
        help="Add N tokens, the likeliest ones, and record their steps. [default: 0]")  # fmt: skip
@option("--select", multiple=True, callback=as_text, metavar="PATTERN", section=RECORD,
        help="Only values whose path fits, such as 'blocks.*.attention.*'; may be given several times. "
             "[default: what is shown needs; else everything]")  # fmt: skip
@option("--limit", callback=_bytes, metavar="SIZE", section=RECORD,
        help="Refuse what would take more memory. [default: 2Gi]")  # fmt: skip
@option("--save", type=click.Path(dir_okay=False), metavar="FILE", section=RECORD,
        help="Keep the values, as safetensors.")  # fmt: skip
@option("--open", "opened", type=click.Path(), metavar="FILE", section=RECORD,
        help="Show values that were saved, instead of running a model (--lens needs MODEL).")  # fmt: skip
@option("--all", "every", is_flag=True, section=VIEW, help="A row for each path, not for each kind of gear.")
@option("--growth", is_flag=True, section=VIEW, help="How the residual stream grows, layer by layer.")
@option("--heads", is_flag=True, section=VIEW, help="What each attention head looks at.")
@option("--lens", is_flag=True, section=VIEW,
        help="What each layer would say, and which one decided (logit lens).")  # fmt: skip
@option("--token", type=int, metavar="T", section=VIEW,
        help="Look at this token, counted from 0; negative: from the end. "
             "[default: the last for --heads and --lens, else all]")  # fmt: skip
@option("--top", type=click.IntRange(1, 50), metavar="N", section=VIEW,
        help=f"How many tokens to list. [default: 3 for --heads, else {TOP}]")  # fmt: skip
@option("--json", "as_json", is_flag=True, section=VIEW, help="One JSON object.")
@language_option(VIEW)
@zero_option(CHANGE, "and show what that does to the next token, and with -n to the text")
@option("--chat", is_flag=True, section=MODEL, help="PROMPT is a message: use the model's chat template.")
@option("--system", callback=as_text, metavar="TEXT", section=MODEL, help="A system message before it.")
@option("--special", is_flag=True, section=MODEL, help="Read control tokens in the prompt as what they are.")
@option("--random", is_flag=True, section=MODEL,
        help="Take random weights: for model files and published configs, which have none.")  # fmt: skip
@option("--seed", type=click.IntRange(min=0), metavar="N", section=MODEL,
        help="Of random weights. [default: 0]")  # fmt: skip
@model_options
def command(model: str | None, prompt: str | None, **given: Any) -> None:
    """Run PROMPT through MODEL, and show the values on the way to the next token.

    Every value has a path, such as `blocks.3.attention.weights`: `glassgear show MODEL` draws the gears.
    Without an option, what is shown are the shape, mean, standard deviation, smallest and largest number,
    norm and share of zeros of each kind; NaN and infinity stand out in red. Nothing is computed twice:
    these are the numbers of the run itself, and looking changes none of them.
    """
    with speaking(given["lang"]) as words:
        _trace(model, prompt, given, words)


def _trace(model: str | None, prompt: str | None, given: dict[str, Any], words: Words) -> None:
    if given["opened"] is not None:
        if prompt is not None or given["zero"] or given["save"] or given["max_tokens"] or given["chat"]:
            raise click.UsageError(
                "--open shows what was saved: it takes no PROMPT, --zero, --save, --max-tokens or --chat"
            )
        opened = _opened(given)
        loaded = open_model(model, given) if model is not None else None
        if loaded is not None:
            from glassgear.trace.belonging import check_model

            check_model(opened, loaded.backend, loaded.checkpoint.path)
        _show(opened, loaded, given, words)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL' (or --open FILE).")
    if given["system"] is not None and not given["chat"]:
        raise click.UsageError("--system is part of a conversation: give --chat, too")
    if given["save"] is not None:
        from glassgear.trace.trace import check_folder

        check_folder(given["save"])
    loaded = open_model(model, given)
    ids = prompt_ids(loaded, console.read_stdin() if prompt == "-" else prompt, given)
    if prompt is None:
        console.note(words("without a prompt, this traces the model's start token alone"))
    if given["max_tokens"]:
        loaded.require_causal()
    zeroing = zeroing_of(loaded, given["zero"])
    changed = None if zeroing is None else zeroing()
    views = _views(given) or given["save"] is not None or given["every"] or bool(given["select"])
    trace = _record(loaded, ids, changed, given) if views or changed is None else None
    effect = None if changed is None else _effect(loaded, ids, changed, given["top"] or TOP)
    if effect is not None and given["max_tokens"]:
        from glassgear.cli.trace_parts import Continued

        made = None if trace is None else list(trace.ids[trace.prompt :])
        before = _continued(loaded, ids, None, given["max_tokens"])
        effect["continued"] = Continued(
            len(ids), before, made or _continued(loaded, ids, changed, given["max_tokens"])
        )
    if given["save"] is not None and trace is not None:
        trace.save(given["save"])
        if not given["as_json"]:
            took = size(os.path.getsize(given["save"]))
            told = f"{len(trace)} values of {trace.tokens} tokens in {given['save']} ({took})"
            console.say(words(told))
    _show(trace, loaded, given, words, effect)


def _views(given: Mapping[str, Any]) -> bool:
    return bool(given["growth"] or given["heads"] or given["lens"])


def _opened(given: Mapping[str, Any]) -> Trace:
    from glassgear.trace import Trace

    trace = Trace.open(given["opened"])
    if not given["select"]:
        return trace
    chosen = trace.select(*given["select"])
    if not chosen:
        trace[given["select"][0]]  # names near paths; one that is there was selected
    return chosen


def _record(model: LanguageModel, ids: list[int], change: Hook | None, given: Mapping[str, Any]) -> Trace:
    with console.status("Running ..."):
        return model.trace(
            ids,
            max_tokens=given["max_tokens"],
            select=given["select"] or _needed(model, given),
            limit=given["limit"],
            change=change,
        )


def _needed(model: LanguageModel, given: Mapping[str, Any]) -> tuple[str, ...]:
    """Patterns of what the views look at."""
    found: list[str] = []
    if given["growth"]:
        for number, block in enumerate(model.gears.blocks):
            steps = [f"blocks.{number}.{step.step}" for step in block.steps]
            found += [f"blocks.{number}", *steps, *(f"{step}_post_norm" for step in steps)]
    if given["heads"]:
        found.append("*.attention.weights")
    if given["lens"]:
        found += [*(f"blocks.{number}" for number in range(len(model.gears.blocks))), "head"]
    everything = given["every"] or not found or given["save"] is not None
    return ("*",) if everything else tuple(found)


# --- changes ----------------------------------------------------------------------------------


def _effect(model: LanguageModel, ids: list[int], hook: Hook, top: int) -> dict[str, Any]:
    """The likeliest next tokens without and with a change."""
    if model.gears.head is None:
        raise SettingError("this model has no head, so there is no next token to compare: see --growth")
    model.require_causal()
    import numpy as np

    from glassgear.sampling import logprobs

    rows = [_logits(model, ids, hook) for hook in (None, hook)]
    before, after = (logprobs(row) for row in rows)
    order = [np.argsort(-p, kind="stable")[:top] for p in (before, after)]
    return {
        "before": [{"id": int(i), "probability": _p(before[i]), "after": _p(after[i])} for i in order[0]],
        "after": [{"id": int(i), "probability": _p(after[i]), "before": _p(before[i])} for i in order[1]],
        "divergence": _divergence(before, after),
    }


def _continued(model: LanguageModel, ids: list[int], hook: Hook | None, count: int) -> list[int]:
    """The likeliest ids after a prompt, one after the other, as a trace takes them."""
    from glassgear.trace.shown import shown_by

    smallest = min(shown_by(model.backend).items(), key=lambda pair: pair[1].nbytes)[0]  # some value is kept
    with console.status("Running ..."):
        made = model.trace(ids, max_tokens=count, select=smallest, change=hook)
    return list(made.ids[made.prompt :])


def _p(logprob: Any) -> float:
    import math

    return math.exp(float(logprob))


def _divergence(before: Any, after: Any) -> float:
    """How far the second distribution is from the first, in nats (Kullback-Leibler)."""
    import numpy as np

    p = np.exp(before.astype(np.float64))
    terms = np.where(p > 0, p * (before.astype(np.float64) - after.astype(np.float64)), 0.0)
    return max(0.0, float(terms.sum()))


def _logits(model: LanguageModel, ids: list[int], hook: Hook | None) -> Any:
    """Logits after the last id of a prompt."""
    from glassgear.backends.base import Chunk

    backend = model.backend
    track = backend.open()
    try:
        return backend.step([Chunk(track, ids, "last")], hook)[0][0]
    finally:
        backend.close(track)


# --- output -----------------------------------------------------------------------------------


def _show(
    trace: Trace | None, model: LanguageModel | None, given: Mapping[str, Any], words: Words,
    effect: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    tokenizer = tokenizer_of(model) if model is not None else None

    def name(token: int) -> str:
        if tokenizer is not None and 0 <= token < tokenizer.vocab_size:
            return quoted(tokenizer, token)
        texts = {} if trace is None else dict(zip(trace.ids, trace.texts, strict=False))
        return console.visible(texts.get(token, str(token)))

    from glassgear.cli.trace_parts import Parts

    parts = Parts(trace, model, given, name, words)
    if given["as_json"]:
        json_line(parts.as_json(effect))
    else:
        parts.print(effect)

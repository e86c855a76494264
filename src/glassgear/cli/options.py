"""Options that several commands share, and help that lists them by what they are for."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from glassgear.loading import BACKENDS, DTYPES
from glassgear.sampling_settings import Sampling

__all__ = [
    "Command",
    "Option",
    "as_text",
    "limit_options",
    "model_options",
    "option",
    "sampling_options",
    "sampling_settings",
    "with_seed",
]

F = TypeVar("F", bound=Callable[..., Any])


class Option(click.Option):
    """An option that says under which heading of the help it stands."""

    def __init__(self, *args: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What click puts behind the help; without ranges, which the help says in words."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class Command(click.Command):
    """A command whose help has its options by heading, and its examples as they stand.

    Args:
        examples: lines of the help's end; empty: none.
    """

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = inspect.cleandoc(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, a list for each heading in the order in which they first occur."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Help"), []).append(record)
        width = max(len(name) for records in sections.values() for name, _ in records)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.splitlines():
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n" if line else "\n")


def as_text(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Callback of options that take text: a lone surrogate stands for a byte that isn't UTF-8."""
    for text in value if isinstance(value, tuple) else (value,):
        if text is not None and any("\ud800" <= c <= "\udfff" for c in text):
            raise click.BadParameter("isn't valid UTF-8", ctx, parameter)
    return value


def option(*names: str, section: str, **attributes: Any) -> Callable[[F], F]:
    """`click.option` with a heading."""
    return click.option(*names, cls=Option, section=section, **attributes)


def _all(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def model_options(function: F) -> F:
    """How the model is loaded: becomes the keyword arguments of `opening.open_model`."""
    title = "Model"
    return _all(
        option("--tokenizer", metavar="PATH", section=title,
               help="Use another tokenizer than the model's own: a tokenizer.json, .bin or .model, "
                    "or a GGUF."),
        option("-c", "--ctx", "--ctx-size", "context", type=click.IntRange(min=1), metavar="N", section=title,
               help="Most tokens of prompt and answer that the model sees at once; the one it writes last "
                    "may be one more. [default: what it was trained for]"),
        option("--cache-type", type=click.Choice(["f32", "f16"]), section=title,
               help="Keep keys and values in 32 or 16 bits."),
        option("--threads", type=click.IntRange(min=1), metavar="N", section=title,
               help="CPU threads to use. [default: as many as pay off]"),
        option("--backend", type=click.Choice(BACKENDS), section=title, help="What runs the model."),
        option("--device", metavar="NAME", section=title,
               help="Of the torch backend: cpu, cuda, cuda:1, ... [default: cpu]"),
        option("--dtype", type=click.Choice(DTYPES), section=title,
               help="Of the torch backend: what it computes in. [default: float32]"),
    )(function)  # fmt: skip


def sampling_options(function: F) -> F:
    """How ids are chosen: becomes the argument of `sampling_settings`."""
    title = "Sampling"
    unit = click.FloatRange(0, 1)
    return _all(
        option("-t", "--temperature", "--temp", type=click.FloatRange(min=0), metavar="T", section=title,
               help=f"0 takes the likeliest token; higher is freer. [default: {Sampling.temperature:g}]"),
        option("-k", "--top-k", type=click.IntRange(min=-1), metavar="N", section=title,
               help=f"Keep the N likeliest tokens; 0: all. [default: {Sampling.top_k}]"),
        option("-p", "--top-p", type=unit, metavar="P", section=title,
               help="Keep the likeliest tokens whose total reaches P; 1: all. "
                    f"[default: {Sampling.top_p:g}]"),
        option("--min-p", type=unit, metavar="P", section=title,
               help="Keep tokens at least P times as likely as the likeliest; 0: all. "
                    f"[default: {Sampling.min_p:g}]"),
        option("--repeat-penalty", "repetition_penalty", type=click.FloatRange(min=0, min_open=True),
               metavar="X", section=title, help="Divide the scores of recent tokens. [default: 1, off]"),
        option("--presence-penalty", type=float, metavar="X", section=title,
               help="Lower the score of each recent token once. [default: 0, off]"),
        option("--frequency-penalty", type=float, metavar="X", section=title,
               help="Lower it for each time that the token occurred. [default: 0, off]"),
        option("-s", "--seed", type=click.IntRange(min=0), metavar="N", section=title,
               help="The same seed gives the same text. [default: a new one, shown by --stats]"),
    )(function)  # fmt: skip


SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed",
)  # fmt: skip


def sampling_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling options that were given, checked.

    A model may recommend settings of its own; they apply where the user said nothing.

    Raises:
        SettingError: a value is out of range.
    """
    chosen = {name: given[name] for name in SAMPLING if given.get(name) is not None}
    Sampling(**chosen)
    return chosen


def with_seed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a new seed if they have none, so that it can be told afterwards."""
    return {"seed": secrets.randbits(32), **settings}


def limit_options(tokens: str) -> Callable[[F], F]:
    """Where a text ends. `tokens` says in the help what holds without `-n`."""
    title = "Where to stop"
    return _all(
        option("-n", "--max-tokens", "--n-predict", type=click.IntRange(min=-1), metavar="N", section=title,
               help=f"Most new tokens; -1: until the context is full. [default: {tokens}]"),
        option("--stop", multiple=True, callback=as_text, metavar="TEXT", section=title,
               help="Stop before this text. May be given several times."),
        option("--ignore-eos", is_flag=True, section=title, help="Go on past the model's end tokens."),
    )  # fmt: skip

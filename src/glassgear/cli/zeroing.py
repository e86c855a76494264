"""`--zero`: what a run sets to zero, as `trace` and `explain` take it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from glassgear.cli.options import as_text, option

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel
    from glassgear.trace.changes import Zeroing

__all__ = ["zero_option", "zeroing_of"]

F = TypeVar("F", bound=Callable[..., Any])


def zero_option(section: str, purpose: str) -> Callable[[F], F]:
    """`--zero`, which may be given several times; becomes the argument `zero`.

    Args:
        section: the heading of the help under which it stands.
        purpose: what it is for, as the help's sentence ends.
    """
    return option(
        "--zero",
        multiple=True,
        callback=as_text,
        metavar="PATH[:HEAD]",
        section=section,
        help=f"Set a value to zero, such as blocks.3.attention, or one head of it (:4), {purpose}. "
        "A block, such as blocks.3, then adds nothing to the stream. May be given several times.",
    )


def zeroing_of(model: LanguageModel, zeros: Sequence[str]) -> Zeroing | None:
    """What sets these values to zero; None: there are none.

    Raises:
        click.BadParameter: a head that isn't a number.
        SettingError: no such value or head.
    """
    if not zeros:
        return None
    from glassgear.trace.changes import Zero, hook_of
    from glassgear.trace.shown import shown_by

    changes = []
    for text in zeros:
        path, colon, head = text.partition(":")
        if colon and not re.fullmatch(r"\d{1,6}", head):
            raise click.BadParameter(
                f"{text!r:.80}: a head is a number, as in blocks.3.attention:4", param_hint="--zero"
            )
        changes.append(Zero(path, int(head) if colon else None))
    axes = {path: shown.axes for path, shown in shown_by(model.backend).items()}
    return hook_of(model.gears, axes, changes)

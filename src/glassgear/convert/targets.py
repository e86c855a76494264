"""What the three kinds of targets share: a plan, and the refusal of what a target can't say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from glassgear.convert.compare import differences
from glassgear.convert.vocabularies import Content, read_content
from glassgear.errors import SettingError, UnsupportedError
from glassgear.model.families import FAMILIES
from glassgear.model.families.base import Family
from glassgear.model.gears import Model
from glassgear.weights.checkpoint import Checkpoint

__all__ = ["Plan", "as_unsupported", "content_of", "end_ids_of", "families_for", "refuse_differences"]


_GENERAL = ("llama", "mistral")


@dataclass(frozen=True)
class Plan:
    """A conversion in which nothing is left that could be refused.

    Attributes:
        nbytes: of the weights.
        types: tensor in the target -> its type.
        write: does it.
        notices: what a user should know.
    """

    nbytes: int
    types: Mapping[str, str]
    write: Callable[[], None]
    notices: tuple[str, ...] = ()


def content_of(checkpoint: Checkpoint) -> Content | None:
    """The tokenizer of the source, if it came with one."""
    if checkpoint.vocabulary is None:
        return None
    return read_content(checkpoint.vocabulary, checkpoint.path)


def end_ids_of(checkpoint: Checkpoint, content: Content | None) -> frozenset[int]:
    """The ids that end an answer, as the source means them."""
    return checkpoint.end_ids | (content.tokenizer.end_ids if content else frozenset())


def as_unsupported(checkpoint: Checkpoint, error: UnsupportedError | SettingError) -> UnsupportedError:
    """Why a model can't be written under a family's names, as an error about the source."""
    return error if isinstance(error, UnsupportedError) else UnsupportedError(checkpoint.path, str(error))


def families_for(model: Model) -> list[Family]:
    """Families under whose names a tree may be written: its own first, then those of the same gears.

    Models of several families are Llamas to GGUF; whether that says all of a model, the comparison tells.
    """
    own = [family for family in FAMILIES if family.name == model.family]
    return own + [family for family in FAMILIES if family.name in _GENERAL and family not in own]


def refuse_differences(path: str, ours: Model, theirs: Model, target: str) -> None:
    """Refuse a target that would make another model.

    Args:
        path: the source, for the message.
        ours: the tree that is to be converted.
        theirs: the tree that a reader of the target would make.
        target: the kind of target, in words.

    Raises:
        UnsupportedError: they differ; the message says in what.
    """
    found = list(differences(ours, theirs))
    if found:
        said = "; ".join(f"{where} is {here}, there it would be {there}" for where, here, there in found[:2])
        more = f" (and {len(found) - 2} more)" if len(found) > 2 else ""
        raise UnsupportedError(
            path, f"can't be written as {target}, which has no way to say this: {said}{more}"
        )

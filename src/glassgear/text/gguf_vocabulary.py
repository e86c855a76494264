"""The vocabulary in GGUF metadata, checked: `tokenizer.ggml.*` and `tokenizer.chat_template*`.

In: a mapping of metadata, as `weights/gguf.py` reads it. Out: a `Vocabulary`, and for BPE the
merges and the rule for words. Keys and defaults: `docs/gguf.md` of ggml-org/ggml and llama.cpp's
`llama-vocab.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glassgear.errors import FormatError
from glassgear.text.ends import LOOKS_LIKE_CONTROL
from glassgear.text.pretokenizers import RULES, WordRule
from glassgear.text.vocabulary import Kind, Vocabulary

__all__ = ["merges_of", "read_vocabulary", "word_rule"]

_ROLES = {
    "bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id", "eom": "eom_token_id",
    "unk": "unknown_token_id", "pad": "padding_token_id", "mask": "mask_token_id", "cls": "cls_token_id",
    "sep": "seperator_token_id",  # so spelled by the format
}  # fmt: skip
_LLAMA_ROLES = {"unk": 0, "bos": 1, "eos": 2}  # where a `llama` vocabulary doesn't say


def read_vocabulary(metadata: Mapping[str, Any], path: str, *, adds_bos: bool = False) -> Vocabulary:
    """The pieces, kinds and settings.

    Args:
        metadata: key -> value; arrays are lists or NumPy arrays.
        path: the file, for messages.
        adds_bos: what holds where the file doesn't say.

    Raises:
        FormatError: there are no pieces, or lists that don't fit together.
    """
    pieces = _strings(metadata, "tokenizer.ggml.tokens", path)
    if not pieces:
        raise FormatError(path, "names a kind of tokenizer but holds no `tokenizer.ggml.tokens`")
    warnings: list[str] = []
    kinds = _kinds(metadata, path, pieces, warnings)
    scores = _numbers(metadata, "tokenizer.ggml.scores", path, len(pieces), float)
    is_llama = metadata.get("tokenizer.ggml.model") == "llama"
    if is_llama and not scores:
        warnings.append("the file has no scores for its tokens: texts will be cut in unusual places")
    return Vocabulary(
        path,
        pieces,
        kinds,
        scores,
        roles=_roles(metadata, len(pieces), _LLAMA_ROLES if is_llama else {}, warnings),
        adds_bos=_flag(metadata, "add_bos_token", path, adds_bos),
        adds_eos=_flag(metadata, "add_eos_token", path, False),
        space_prefix=_flag(metadata, "add_space_prefix", path, is_llama),
        squeezes_spaces=_flag(metadata, "remove_extra_whitespaces", path, False),
        chat_template=_chat_template(metadata),
        warnings=tuple(warnings),
    )


def merges_of(metadata: Mapping[str, Any], path: str) -> list[tuple[str, str]]:
    """The merges, as pairs. Files write `a b`; a list of pairs is understood too."""
    key = "tokenizer.ggml.merges"
    found = metadata.get(key)
    if found is None:
        return []
    if not isinstance(found, list | tuple):
        raise FormatError(path, f"`{key}` should be a list")
    merges: list[Any] = []
    if set(map(type, found)) == {str}:
        merges = [tuple(merge.split(" ")) for merge in found]
        if set(map(len, merges)) == {2}:
            return merges
        merges = []
    for place, merge in enumerate(found):
        pair = tuple(merge.split(" ")) if isinstance(merge, str) else merge
        if isinstance(pair, list | tuple) and len(pair) != 2 and isinstance(merge, str) and " " in merge[1:]:
            cut = merge.index(" ", 1)  # a piece with a space in it, or one that is a space
            pair = (merge[:cut], merge[cut + 1 :])
        if not isinstance(pair, list | tuple) or list(map(type, pair)) != [str, str]:
            raise FormatError(path, f"merge {place} should be two pieces, found {merge!r:.60}")
        merges.append(tuple(pair))
    return merges


def word_rule(metadata: Mapping[str, Any]) -> tuple[WordRule, str | None]:
    """The rule by which text is cut into words, and a warning if it is a guess."""
    name = metadata.get("tokenizer.ggml.pre")
    if name is None or name == "":
        return RULES["default"], (
            "the file doesn't say how its tokenizer cuts text into words (no `tokenizer.ggml.pre`): "
            "ids may differ from those that the model was trained with. Get a newer conversion"
        )
    if isinstance(name, str) and name in RULES:
        return RULES[name], None
    return RULES["default"], (
        f"the way in which the tokenizer cuts text into words is unknown here: {name!r:.60}. The default is "
        "used instead, so ids may differ from those that the model was trained with"
    )


def _kinds(metadata: Mapping[str, Any], path: str, pieces: Sequence[str], warnings: list[str]) -> list[int]:
    found = _numbers(metadata, "tokenizer.ggml.token_type", path, len(pieces), int)
    kinds: list[int] = found or [Kind.NORMAL] * len(pieces)
    alike = sorted(LOOKS_LIKE_CONTROL.intersection(pieces))
    mistaken = [
        token for token in map(pieces.index, alike) if kinds[token] not in (Kind.CONTROL, Kind.UNKNOWN)
    ]
    if mistaken:
        names = ", ".join(pieces[token] for token in mistaken)
        warnings.append(f"the file calls {names} plain text; taken for control tokens, as their names say")
        for token in mistaken:
            kinds[token] = Kind.CONTROL
    return kinds


def _roles(
    metadata: Mapping[str, Any], count: int, defaults: Mapping[str, int], warnings: list[str]
) -> dict[str, int]:
    roles = {role: token for role, token in defaults.items() if token < count}
    for role, key in _ROLES.items():
        token = metadata.get(f"tokenizer.ggml.{key}")
        if not isinstance(token, int) or isinstance(token, bool) or token in (-1, 0xFFFFFFFF):
            continue  # none, in the ways in which files say so
        if 0 <= token < count:
            roles[role] = token
        else:
            warnings.append(f"`{key}` is {token}, outside the vocabulary of {count:,}: ignored")
    return roles


def _chat_template(metadata: Mapping[str, Any]) -> str | dict[str, str] | None:
    """One template, or several by name."""
    prefix = "tokenizer.chat_template"
    named = {
        key.removeprefix(prefix + "."): value
        for key, value in metadata.items()
        if key.startswith(prefix + ".") and isinstance(value, str)
    }
    plain = metadata.get(prefix)
    if not isinstance(plain, str):
        return named or None
    return {"default": plain, **named} if named else plain


def _strings(metadata: Mapping[str, Any], key: str, path: str) -> list[str]:
    found = metadata.get(key)
    if found is None:
        return []
    if not isinstance(found, list | tuple) or not set(map(type, found)) <= {str}:
        raise FormatError(path, f"`{key}` should be a list of texts")
    return list(found)


def _numbers(
    metadata: Mapping[str, Any], key: str, path: str, count: int, kind: type[int] | type[float]
) -> list[Any]:
    found = metadata.get(key)
    if found is None:
        return []
    values = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(values, list) or len(values) < count:
        held = f"{len(values):,} entries" if isinstance(values, list) else repr(values)[:40]
        raise FormatError(
            path, f"`{key}` should have one entry for each of {count:,} tokens, but holds {held}"
        )
    if not set(map(type, values)) <= {int, kind}:
        raise FormatError(path, f"`{key}` should be a list of numbers")
    return values[:count]


def _flag(metadata: Mapping[str, Any], name: str, path: str, default: bool) -> bool:
    found = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(found, bool):
        raise FormatError(path, f"`tokenizer.ggml.{name}` should be true or false, found {found!r:.40}")
    return found

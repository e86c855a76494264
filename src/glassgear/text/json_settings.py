"""What lies beside a `tokenizer.json`: its config, special tokens, added tokens, chat templates.

In: the path of `tokenizer.json`. Out: `Settings`. A file that is missing says nothing; one that
is damaged is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassgear.errors import FormatError
from glassgear.reading import utf8_text
from glassgear.text.files import read_bytes, read_json

__all__ = ["Settings", "read_settings"]

_ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


@dataclass(frozen=True)
class Settings:
    """See the module.

    Attributes:
        special_tokens: as in `Tokenizer`.
        special_texts: every text that a config calls special.
        added: added tokens, as dicts with `content` and `id` and the options of `AddedToken`.
        adds_bos, adds_eos: what the config says, or None.
        chat_template: as in `Tokenizer`.
        warnings: as in `Tokenizer`.
    """

    special_tokens: dict[str, str] = field(default_factory=dict)
    special_texts: frozenset[str] = frozenset()
    added: tuple[dict[str, Any], ...] = ()
    adds_bos: bool | None = None
    adds_eos: bool | None = None
    chat_template: str | dict[str, str] | None = None
    warnings: tuple[str, ...] = ()


def read_settings(path: Path) -> Settings:
    """Read what lies beside a `tokenizer.json`.

    Raises:
        FormatError: one of the files is damaged.
    """
    folder = path.parent
    config = _beside(folder / "tokenizer_config.json")
    tokens = _beside(folder / "special_tokens_map.json") | config
    special_tokens = {
        f"{role}_token": text for role in _ROLES if (text := _text(tokens.get(f"{role}_token"))) is not None
    }
    more = tokens.get("additional_special_tokens") or tokens.get("extra_special_tokens") or []
    listed = more if isinstance(more, list) else list(more.values()) if isinstance(more, dict) else []
    special_texts = {text for entry in listed if (text := _text(entry)) is not None}
    return Settings(
        special_tokens,
        frozenset(special_texts | set(special_tokens.values())),
        _added(folder, config),
        _flag(config.get("add_bos_token")),
        _flag(config.get("add_eos_token")),
        _chat_template(folder, config.get("chat_template")),
    )


def _beside(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(value: Any) -> str | None:
    """A token is its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _added(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    found: list[dict[str, Any]] = []
    decoder = config.get("added_tokens_decoder")
    for token, entry in (decoder if isinstance(decoder, dict) else {}).items():
        if isinstance(entry, dict) and _text(entry) is not None:
            found.append({**entry, "id": _id(folder / "tokenizer_config.json", token)})
    for text, token in _beside(folder / "added_tokens.json").items():
        if text:
            found.append({"content": text, "id": _id(folder / "added_tokens.json", token)})
    return tuple(found)


def _id(path: Path, token: Any) -> int:
    if isinstance(token, int) and not isinstance(token, bool):
        return token
    if isinstance(token, str) and len(token) < 12 and token.isascii() and token.isdigit():
        return int(token)
    raise FormatError(path, f"an id of an added token should be a number, found {token!r:.40}")


def _chat_template(folder: Path, inline: Any) -> str | dict[str, str] | None:
    """Templates have files of their own in newer folders; those go before the config's."""
    named: dict[str, str] = {}
    if isinstance(inline, list):  # [{"name": ..., "template": ...}]
        for entry in inline:
            if isinstance(entry, dict) and isinstance(entry.get("template"), str):
                named[str(entry.get("name", "default"))] = entry["template"]
    elif isinstance(inline, str):
        named["default"] = inline
    if (folder / "chat_template.jinja").is_file():
        named["default"] = _template(folder / "chat_template.jinja")
    more = folder / "additional_chat_templates"
    for path in sorted(more.glob("*.jinja")) if more.is_dir() else []:
        named[path.stem] = _template(path)
    return named["default"] if set(named) == {"default"} else named or None


def _template(path: Path) -> str:
    return utf8_text(path, read_bytes(path), encoding="utf-8")

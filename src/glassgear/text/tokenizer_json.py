"""Hugging Face's `tokenizer.json`, and what the files beside it say.

In: the file. Out: a tokenizer that gives the ids of the `tokenizers` library, which does the
work, with two differences: control tokens are read from text only where it is trusted, and
text is decoded by adding up the bytes of ids wherever the model's decoder amounts to that, so
that streams lose nothing and no clean-up eats spaces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassgear.errors import FormatError, TokenizerError
from glassgear.text.backend import called, encoded, from_json
from glassgear.text.ends import end_ids
from glassgear.text.files import parse_json
from glassgear.text.frames import Frame
from glassgear.text.json_decoding import Spelling, changes, spelling
from glassgear.text.json_settings import Settings, read_settings
from glassgear.text.vocabulary import FramedTokenizer
from glassgear.text.written import WrittenToken, WrittenTokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

__all__ = ["JsonTokenizer", "read_tokenizer_json"]

_KINDS = {"BPE": "bpe", "WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "words"}
_MOST_IDS = 1 << 31
_NO_SCORE = -1e9  # worse than any way to spell a text


def read_tokenizer_json(path: Path, data: bytes) -> JsonTokenizer:
    """The tokenizer in a `tokenizer.json`.

    Args:
        path: the file; `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and
            chat templates beside it are read too.
        data: what the file holds.

    Raises:
        FormatError: not JSON, or no tokenizer.
    """
    description = parse_json(path, data)
    model = description.get("model")
    if not isinstance(model, dict):
        raise FormatError(path, "has no `model`: it is no tokenizer.json")
    if model.get("type", "BPE") == "BPE" and not model.get("merges"):
        raise FormatError(path, "holds a BPE model without merges: every character would be a token")
    # The library checks the form of everything that it knows; what it takes can be relied on.
    backend = from_json(path, data.decode("utf-8-sig"))
    if model.get("type") == "Unigram":
        description = _without_control_pieces(description)
        backend = from_json(path, json.dumps(description))
    return JsonTokenizer(path, description, backend, read_settings(path))


def _without_control_pieces(description: dict[str, Any]) -> dict[str, Any]:
    """A Unigram model finds `</s>` in any text, since it is a piece with the best of scores."""
    control = {token["content"] for token in _added(description) if token.get("special") is True}
    model = description["model"]
    pieces = [
        [entry[0], _NO_SCORE] if isinstance(entry, list) and entry and entry[0] in control else entry
        for entry in model.get("vocab") or []
    ]
    return {**description, "model": {**model, "vocab": pieces}}


class JsonTokenizer(FramedTokenizer):
    """See the module. Made by `read_tokenizer_json`."""

    def __init__(
        self, path: Path, description: Mapping[str, Any], backend: Backend, settings: Settings
    ) -> None:
        """Take over what the files say.

        Raises:
            FormatError: ids that contradict each other.
        """
        self._backend = _prepared(backend)
        self._inner = _not_at_the_start(path, description) or self._backend
        model = description["model"]
        self.kind = _KINDS.get(str(model.get("type", "BPE")), "bpe")
        self._pieces = {token: piece for piece, token in backend.get_vocab(with_added_tokens=True).items()}
        self._take_added(path, description, settings)
        self.vocab_size = max(self._pieces, default=-1) + 1
        if self.vocab_size > _MOST_IDS:
            raise FormatError(path, f"holds the id {self.vocab_size - 1:,}: no vocabulary is that large")
        self._spelling: Spelling | None = spelling(description)
        self.joins = self._spelling is not None
        self._spelled: dict[int, bytes] = {}
        self.normalises = changes(description)
        self.chat_template = settings.chat_template
        self.warnings = settings.warnings
        known = {text: token for token, text in self._pieces.items()}
        self._take_roles(path, known, settings)
        self._forbid(_unknown_ids(known, model, settings))

    def _take_added(self, path: Path, description: Mapping[str, Any], settings: Settings) -> None:
        """Set `_written`, `special` and `_added_texts`, and complete `_pieces`."""
        known = {text: token for token, text in self._pieces.items()}
        control: dict[str, WrittenToken] = {}
        anywhere: dict[str, WrittenToken] = {}
        self._added_texts = {entry["content"] for entry in _added(description)}
        named = [{"content": text, "special": True} for text in settings.special_texts if text in known]
        for entry in [*named, *settings.added, *_added(description)]:
            text = entry["content"]
            written = _written(path, entry, known.get(text, entry.get("id")))
            self._pieces.setdefault(written.id, text)
            if entry.get("special") is True or text in settings.special_texts:
                control[text] = written
            elif text not in self._added_texts:
                anywhere[text] = written  # the library doesn't know it
        self.special = dict(sorted(((text, token.id) for text, token in control.items()), key=itemgetter(1)))
        self._written = WrittenTokens(anywhere, control)

    def _take_roles(self, path: Path, known: Mapping[str, int], settings: Settings) -> None:
        """Set what opens, closes and ends a text."""
        named = settings.special_tokens
        roles = {
            role: known[text] for role in ("bos", "eos") if (text := named.get(f"{role}_token", "")) in known
        }
        head, tail = _frame(path, self._backend)
        self._pair = _pair_frame(self._backend)
        if strange := set(head + tail) - set(self._pieces):
            raise FormatError(path, f"puts the id {min(strange)} around texts, which its vocabulary lacks")
        self.eos_id = roles.get("eos")
        self.bos_id = roles.get("bos")
        if self.bos_id is None and self.joins and len(head) == 1:
            self.bos_id = head[0]
            named = {"bos_token": self._pieces[head[0]], **named}
        if settings.adds_bos is not None or settings.adds_eos is not None:
            # As in transformers: what the config says replaces what tokenizer.json does.
            head = (self.bos_id,) if settings.adds_bos and self.bos_id is not None else ()
            tail = (self.eos_id,) if settings.adds_eos and self.eos_id is not None else ()
            self._pair = None
        self._head, self._tail, self.special_tokens = head, tail, named
        self.adds_bos = self.bos_id is not None and head[:1] == (self.bos_id,)
        self.adds_eos = self.eos_id is not None and tail[-1:] == (self.eos_id,)
        self.end_ids = end_ids(self.special, roles)

    def _forbid(self, unknown: set[int]) -> None:
        """Set which ids plain text must never give: control tokens, but for the unknown one."""
        self._forbidden = self._special_ids() - unknown
        names = (name for name, token in self.special.items() if token in self._forbidden and len(name) > 1)
        self._forbidden_names = sorted(names, key=len, reverse=True)

    def _encode_text(self, text: str, starts: bool) -> list[int]:
        ids = encoded(self._backend if starts else self._inner, text)
        if self._forbidden.isdisjoint(ids) or len(text) == 1:
            return ids
        # A word that is spelled like a control token was looked up whole. In two parts it isn't.
        parts = _cut_inside(text, self._forbidden_names) or list(text)
        return [
            token
            for place, part in enumerate(parts)
            for token in self._encode_text(part, starts and not place)
        ]

    @property
    def leading_space(self) -> bool:
        """Whether encoding puts a space in front, which decoding takes off the start of a text."""
        return self._spelling is not None and self._spelling.takes_first_space

    def piece(self, token: int) -> str:
        """The vocabulary entry as the file spells it."""
        return self._piece(token)

    def token_bytes(self, token: int) -> bytes:
        """See `Tokenizer.token_bytes`."""
        found = self._spelled.get(token)
        if found is None:
            found = self._spelled[token] = self._spell(token)
        return found

    def _spell(self, token: int) -> bytes:
        piece = self._piece(token)
        if token in self._special_ids():
            return piece.encode()
        if self._spelling is None:
            return _guess(piece, self.kind)
        return self._spelling.added(piece) if piece in self._added_texts else self._spelling.plain(piece)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """See `Tokenizer.decode`; by the library where text isn't joined bytes."""
        if self._spelling is not None:
            return super().decode(ids, skip_special)
        kept = [token for token in ids if not (skip_special and self.is_special(token))]
        for token in kept:
            self._piece(token)
        text: str = called(
            lambda: self._backend.decode(kept, skip_special_tokens=False), "ids can't be decoded"
        )
        return text

    def _piece(self, token: int) -> str:
        found = self._pieces.get(token)
        if found is None:
            raise TokenizerError(f"the vocabulary has no id {token}; its ids end at {self.vocab_size - 1}")
        return found


def _added(description: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in description.get("added_tokens") or []:
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and entry["content"]:
            yield entry


def _written(path: Path, entry: Mapping[str, Any], token: Any) -> WrittenToken:
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < _MOST_IDS:
        raise FormatError(path, f"the added token {entry['content']!r:.40} has no id, but {token!r:.40}")
    return WrittenToken(
        token,
        takes_left=entry.get("lstrip") is True,
        takes_right=entry.get("rstrip") is True,
        whole_word=entry.get("single_word") is True,
    )


def _unknown_ids(known: Mapping[str, int], model: Mapping[str, Any], settings: Settings) -> set[int]:
    """Ids of what can't be spelled, which may come of any text."""
    names = (settings.special_tokens.get("unk_token"), model.get("unk_token"))
    found = {known[name] for name in names if isinstance(name, str) and name in known}
    unigram = model.get("unk_id")
    return found | {unigram} if isinstance(unigram, int) else found


def _frame(path: Path, backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the library puts around a text, found by looking at one."""
    for probe in ("a", "0", "."):
        try:
            bare = encoded(backend, probe)
            full = encoded(backend, probe, framed=True)
        except TokenizerError as error:
            raise FormatError(path, f"is no tokenizer that works: {error}") from None
        for at in range(len(full) - len(bare) + 1):
            if bare and full[at : at + len(bare)] == bare:
                return tuple(full[:at]), tuple(full[at + len(bare) :])
    return (), ()


def _pair_frame(backend: Backend) -> Frame | None:
    """What the library puts around and between two texts, found by looking at a pair."""
    for probe in ("a", "0", "."):
        found = called(lambda: backend.encode(probe, probe), "a pair of texts can't be encoded")  # noqa: B023
        marked, texts = list(zip(found.ids, found.type_ids, strict=True)), found.sequence_ids
        if 0 not in texts or 1 not in texts:
            continue
        first, second = texts.index(0), texts.index(1)
        first_end, second_end = (len(texts) - texts[::-1].index(one) for one in (0, 1))
        if first_end <= second:
            return Frame(
                head=tuple(marked[:first]),
                tail=tuple(marked[second_end:]),
                middle=tuple(marked[first_end:second]),
                types=(found.type_ids[first], found.type_ids[second]),
            )
    return None


def _not_at_the_start(path: Path, description: Mapping[str, Any]) -> Backend | None:
    """An engine for text behind a token, for models that put a space in front of a text's start only."""
    words = json.dumps(description.get("pre_tokenizer"))
    inner = words.replace('"prepend_scheme": "first"', '"prepend_scheme": "never"')
    if inner == words:
        return None
    return _prepared(from_json(path, json.dumps({**description, "pre_tokenizer": json.loads(inner)})))


def _prepared(backend: Backend) -> Backend:
    backend.no_padding()
    backend.no_truncation()
    # Control tokens are cut out of text before the library sees it.
    backend.encode_special_tokens = True
    return backend


def _cut_inside(text: str, names: Sequence[str]) -> list[str]:
    """The text in parts that cut through each of the names in it; empty if there is none."""
    if not names:
        return []
    places = [match.start() + 1 for match in re.finditer("|".join(map(re.escape, names)), text)]
    borders = [0, *places, len(text)]
    return [text[start:stop] for start, stop in pairwise(borders)] if places else []


def _guess(piece: str, kind: str) -> bytes:
    """The bytes of a piece whose text depends on its neighbours."""
    if kind == "wordpiece":
        return (piece[2:] if piece.startswith("##") else f" {piece}").encode()
    return piece.replace("▁", " ").encode()

"""The parts of what `glassgear trace` says: each view as a table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassgear.cli import console
from glassgear.cli.ids_mode import tokenizer_of
from glassgear.cli.trace_views import (
    Name,
    Said,
    cut,
    figure,
    is_slim,
    kinds,
    left_out,
    new_table,
    only,
    shape_text,
    share,
    show,
    show_figures,
    show_growth,
    show_heads,
    show_lens,
)
from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.language_model import LanguageModel
    from glassgear.languages import Words
    from glassgear.trace.trace import Trace
    from glassgear.trace.views import Summary

__all__ = ["Continued", "Parts"]

LOOKS, SAID = 3, 5  # tokens listed for each head, and for each layer, unless another number is asked for


@dataclass(frozen=True)
class Continued:
    """How a text goes on, without and with a change.

    Attributes:
        prompt: tokens before.
        before: the ids that follow without the change.
        after: those that follow with it.
    """

    prompt: int
    before: Sequence[int]
    after: Sequence[int]

    @property
    def parts_at(self) -> int | None:
        """Number of the first token that isn't the same in both; the prompt's first is 0."""
        if self.before == self.after:
            return None
        same = [one == other for one, other in zip(self.before, self.after, strict=False)]
        return self.prompt + (same.index(False) if False in same else len(same))


@dataclass(frozen=True)
class Parts:
    """What is asked for.

    Attributes:
        trace: what was recorded, if anything was.
        model: for the logit lens; None where a file is shown without one.
        given: the command's options.
        name: what a token is called.
        words: the language of the tables.
    """

    trace: Trace | None
    model: LanguageModel | None
    given: Mapping[str, Any]
    name: Name
    words: Words = str

    def print(self, effect: dict[str, Any] | None) -> None:
        """Tables, one below the other."""
        made = list(self._tables(effect))
        for number, part in enumerate(made):
            if number:
                show("")
            part()

    def _tables(self, effect: dict[str, Any] | None) -> Iterator[Any]:
        from functools import partial

        if effect is not None:
            yield partial(self._show_effect, effect)
        if self.trace is None:
            return
        trace = self.trace
        if self.given["growth"]:
            yield partial(show_growth, self._growth(), self._token_or_none(), self.words)
        if self.given["heads"]:
            token = self._token()
            yield partial(show_heads, self._heads(token), token, trace.ids, self.name, self.words)
        if self.given["lens"]:
            yield partial(show_lens, self._lens(), self.name, self.words)
        if self._wants_figures(effect):
            yield partial(show_figures, list(self._figures()), self.words)

    def as_json(self, effect: dict[str, Any] | None) -> dict[str, Any]:
        """The same as plain data."""
        trace, out = self.trace, {}
        if trace is not None:
            out = {
                "model": trace.model, "backend": trace.backend, "family": trace.family,
                "prompt": trace.prompt, "tokens": trace.tokens, "ids": list(trace.ids),
                "texts": list(trace.texts), "bytes": trace.nbytes,
            }  # fmt: skip
        if effect is not None:
            named = {
                side: [row | {"text": self.name(row["id"])} for row in effect[side]]
                for side in ("before", "after")
            }
            out |= {"zeroed": list(self.given["zero"]), "next": {"divergence": effect["divergence"]} | named}
            if "continued" in effect:
                out["continued"] = self._continued_json(effect["continued"])
        if trace is not None and self.given["growth"]:
            out["growth"] = [
                {"path": row.path, "tokens": list(row.tokens), "stream": row.stream.tolist()}
                | {"added": {step: norms.tolist() for step, norms in row.steps.items()}}
                for row in self._growth()
            ]
        if trace is not None and self.given["heads"]:
            token = self._token()
            found = self._heads(token).items()
            layers = {path: [[vars(look) for look in looks] for looks in each] for path, each in found}
            out["heads"] = {"token": token, "layers": layers}
        if trace is not None and self.given["lens"]:
            out["lens"] = self._lens_json()
        if self._wants_figures(effect):
            out["values"] = [row.to_json() | {"count": count} for row, count, _ in self._figures()]
        return out

    def _wants_figures(self, effect: dict[str, Any] | None) -> bool:
        """The table is what is shown if nothing else is asked for."""
        asked = any(self.given[view] for view in ("growth", "heads", "lens"))
        return self.trace is not None and (self.given["every"] or not asked)

    # --- tokens -----------------------------------------------------------------------------

    def _token(self) -> int:
        """The position that is looked at; by default the last that was run."""
        assert self.trace is not None
        token, count = self.given["token"], self.trace.tokens
        token = -1 if token is None else token
        if not -count <= token < count:
            raise SettingError(f"there is no token {token}: tokens 0 to {count - 1} were run")
        return int(token % count)

    def _token_or_none(self) -> int | None:
        return None if self.given["token"] is None else self._token()

    # --- views ------------------------------------------------------------------------------

    def _figures(self) -> Iterator[tuple[Summary, int, str]]:
        from glassgear.trace.views import summary_of_all

        assert self.trace is not None
        token = self._token_or_none()
        groups = {path: [v] for path, v in self.trace.items()} if self.given["every"] else kinds(self.trace)
        for path, values in groups.items():
            kept = values if token is None else [v for v in (only(v, token) for v in values) if v is not None]
            if kept:
                yield summary_of_all(path, kept), len(kept), shape_text(kept)

    def _growth(self) -> Any:
        from glassgear.trace.views import growth

        assert self.trace is not None
        rows = growth(self.trace)
        if not rows:
            raise SettingError("growth needs the outputs of blocks: record `blocks.*`, or select nothing")
        return rows

    def _heads(self, token: int) -> Any:
        from glassgear.trace.views import heads

        assert self.trace is not None
        found = heads(self.trace, token, self.given["top"] or LOOKS)
        if not found:
            raise SettingError("there are no attention weights: record `*.attention.weights`")
        return found

    def _lens(self) -> Said:
        from glassgear.trace.views import Lens, lens

        assert self.trace is not None
        if self.model is None:
            raise SettingError("the logit lens needs the model's head: name the MODEL beside --open")
        token = self._token()
        made_by = Lens(self.model.gears, self.model.checkpoint.tensors)
        layers, decided = lens(self.trace, made_by, token, self.given["top"] or SAID)
        return Said(layers, decided, token, self.trace.ids)

    def _lens_json(self) -> dict[str, Any]:
        from glassgear.trace.views import COMPUTED_BY

        said = self._lens()
        layers = [
            {
                "path": layer.path, "final": layer.final, "rank": layer.rank,
                "top": [{"id": i, "text": self.name(i), "probability": p} for i, p in layer.top],
            }
            for layer in said.layers
        ]  # fmt: skip
        decided = said.layers[said.decided].path
        return {"token": said.token, "layers": layers, "decided": decided, "computed_by": COMPUTED_BY}

    # --- changes ----------------------------------------------------------------------------

    def _show_effect(self, effect: dict[str, Any]) -> None:
        """The next token's candidates as they are, beside those after the change."""
        from rich.text import Text

        heads: tuple[str, ...] = ("", "as it is", "p", "p then", "", "changed", "p", "p before")
        if is_slim():
            heads = ("", "as it is", "p", "changed", "p")
        made = new_table(*map(self.words, heads), right=(0, 2, 4) if is_slim() else (0, 2, 3, 6, 7))
        for place, (one, other) in enumerate(zip(effect["before"], effect["after"], strict=True), 1):
            same = one["id"] == other["id"]
            first, second = (self.name(row["id"]) for row in (one, other))
            if is_slim():
                first, second = cut(first), cut(second)
            before = (first, share(one["probability"]))
            after = (Text(second, style="" if same else "yellow"), share(other["probability"]))
            if is_slim():
                made.add_row(str(place), *before, *after)
            else:
                made.add_row(str(place), *before, share(one["after"]), "", *after, share(other["before"]))
        zeroed, continued = ", ".join(self.given["zero"]), effect.get("continued")
        which = "The next token" if continued is None else "The first token after the prompt"
        show(
            self.words(f"{which}, with {zeroed} set to zero"), made,
            *left_out(("p then", "p before") if is_slim() else (), self.words),
            self.words(f"The change is worth {figure(effect['divergence'])} nats (KL divergence)."),
            *(() if continued is None else self._continued_lines(continued)),
        )  # fmt: skip

    def _continued_lines(self, made: Continued) -> Iterator[str]:
        """What the model goes on to say as it is, and after the change."""
        yield ""
        yield self.words("How the text goes on, the likeliest token each time:")
        yield self.words(f"as it is: {self._text(made.before)}")
        yield self.words(f"changed: {self._text(made.after)}")
        if made.parts_at is None:
            yield self.words("Both are the same.")
        else:
            yield self.words(f"They part at token {made.parts_at - made.prompt + 1} after the prompt.")

    def _continued_json(self, made: Continued) -> dict[str, Any]:
        def told(ids: Sequence[int]) -> dict[str, Any]:
            return {"ids": list(ids), "texts": [self.name(token) for token in ids]}

        return {"before": told(made.before), "after": told(made.after), "parts_at": made.parts_at}

    def _text(self, ids: Sequence[int]) -> str:
        """Ids as a text in quotes; without a tokenizer as they are."""
        tokenizer = tokenizer_of(self.model) if self.model is not None else None
        if tokenizer is None:
            return " ".join(map(str, ids))
        # Not `decode`, which takes the space off that a text's first word begins with.
        made = b"".join(
            tokenizer.piece(token).encode() if tokenizer.is_special(token) else tokenizer.token_bytes(token)
            for token in ids
        )
        return console.visible(json.dumps(made.decode(errors="replace"), ensure_ascii=False))

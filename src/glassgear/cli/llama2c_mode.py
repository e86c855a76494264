"""`glassgear run --llama2c`: what the program of karpathy/llama2.c prints, letter for letter.

The rules are those of run.c at commit 350e04f (`generate`, `decode`, `safe_printf`): the prompt
follows BOS and is printed like the rest, `-n` counts every position, the end is id 1, a newline
closes the text. One thing differs: bytes beyond ASCII are printed, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from glassgear.generate import Piece
    from glassgear.language_model import LanguageModel

__all__ = ["Llama2c", "refuse_other_options"]

END = 1  # BOS, which parts the texts that these models were trained on
TEMPERATURE, TOP_P = 1.0, 0.9  # the program's defaults
SILENT = {bytes([code]) for code in range(128) if not (32 <= code < 127 or 9 <= code <= 13)}

FOREIGN = {
    "top_k": "-k", "min_p": "--min-p", "repetition_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty", "frequency_penalty": "--frequency-penalty",
    "stop": "--stop", "ignore_eos": "--ignore-eos", "special": "--special",
}  # fmt: skip


def refuse_other_options(given: Mapping[str, Any]) -> None:
    """Refuse what llama2.c doesn't have, rather than ignore it."""
    wrong = [name for key, name in FOREIGN.items() if given.get(key) not in (None, False, ())]
    if given.get("echo") is not None:
        wrong.append("--echo" if given["echo"] else "--no-echo")
    if wrong:
        raise click.UsageError(f"llama2.c has no {', '.join(wrong)}: leave it out with --llama2c")


class Llama2c:
    """One run of that program.

    Attributes:
        ids: the prompt, BOS first.
        seed: the seed in use.
    """

    def __init__(
        self, model: LanguageModel, prompt: str | None, given: Mapping[str, Any], steps: int
    ) -> None:
        from glassgear.llama2c_sampling import Llama2cSampler
        from glassgear.text.stream import TextStream

        temperature, top_p = given["temperature"], given["top_p"]
        self._model = model
        self._sampler = Llama2cSampler(
            TEMPERATURE if temperature is None else temperature,
            TOP_P if top_p is None else top_p,
            given["seed"],
        )
        self._stream = TextStream(model.tokenizer)
        self._steps = steps if 0 < steps <= model.context else model.context
        self._logprobs = given["logprobs"]
        self.seed = self._sampler.seed
        self.ids = [END, *model.tokenizer.encode(prompt or "", add_special=True)]
        if self.ids[1:2] == [END]:
            del self.ids[0]

    def pieces(self) -> Iterator[Piece]:
        """The text as it is made; the prompt's own piece has no ids."""
        from glassgear.generate import Piece

        shown = self.ids[1 : self._steps + 1]
        left = self._steps - len(shown)
        yield Piece(self._text(shown), finish_reason=None if left else "length")
        if not left:
            return
        made = self._model.generate(
            list(self.ids), sampler=self._sampler, max_tokens=left, end_ids=frozenset({END}),
            logprobs=self._logprobs,
        )  # fmt: skip
        for piece in made:
            text = self._text(token for token in piece.ids if token != END)
            if piece.finish_reason is not None:
                text += self._stream.finish()
            yield Piece(text, piece.ids, piece.logprobs, piece.finish_reason)

    def _text(self, tokens: Iterable[int]) -> str:
        spoken = (t for t in tokens if self._model.tokenizer.token_bytes(t) not in SILENT)
        return "".join(self._stream.push(token) for token in spoken)

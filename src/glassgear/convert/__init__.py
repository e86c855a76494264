"""From one kind of file to another: GGUF, Hugging Face folder, llama2.c `.bin`, and other types of weights.

A model is opened as always, as a tree of gears and a stored tensor for each parameter. Its settings
are written in the target's words and read back before anything else is done; what can't be said
there is refused. Then tensors are streamed one by one.
"""

from __future__ import annotations

from glassgear.convert.job import KINDS, Summary, Wanted, check_options, convert, kind_of

__all__ = ["KINDS", "Summary", "Wanted", "check_options", "convert", "kind_of"]

"""Which ids end an answer.

A file names one end token, often two (`eos`, `eot`, `eom`), yet chat models end their turns
with tokens that no field names. The names are known, and few; the list follows llama.cpp's
(`llama-vocab.cpp`, end-of-generation tokens).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LOOKS_LIKE_CONTROL", "end_ids"]

# Written like this, a piece can't be meant as text, whatever its kind says.
LOOKS_LIKE_CONTROL = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",  # Llama 3, Granite
        "<|im_end|>", "<|endoftext|>",  # ChatML, GPT-2 and many others
        "<end_of_turn>", "<turn|>", "<|tool_response>",  # Gemma
        "<|end|>", "<|return|>", "<|call|>",  # Phi-3, gpt-oss
        "<|calls|>", "<|flush|>",  # Solar
        "<｜end▁of▁sentence｜>",  # DeepSeek
        "<end_of_utterance>",  # SmolVLM
    }
)  # fmt: skip

# These end a text only if the file calls them control tokens: `</s>` also closes struck-out HTML.
ENDS_IF_CONTROL = frozenset(
    {
        "</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~[",
        "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",  # a code model goes on to another file
    }
)  # fmt: skip

# With both of one row in the vocabulary, `<|end|>` parts the messages inside one answer.
_MANY_MESSAGES = (("<|return|>", "<|call|>"), ("<|flush|>", "<|calls|>"), ("<|flush|>", "<|call|>"))


def end_ids(special: Mapping[str, int], roles: Mapping[str, int]) -> frozenset[int]:
    """The ids that end an answer.

    Args:
        special: control tokens, text -> id.
        roles: what the file says: `eos`, `eot`, `eom` -> id.
    """
    named = {roles[role] for role in ("eos", "eot", "eom") if role in roles}
    known = {text: token for text, token in special.items() if text in LOOKS_LIKE_CONTROL | ENDS_IF_CONTROL}
    if any(first in known and second in known for first, second in _MANY_MESSAGES):
        known.pop("<|end|>", None)
    if "<|tool_response>" in known:  # Gemma 4, where `</s>` is a tag of HTML
        known.pop("</s>", None)
    return frozenset(named | set(known.values()))

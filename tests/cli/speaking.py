"""A model whose next token depends on the last one alone, so that every text it makes is known.

Attention and feed-forward weights are zero: the residual stream carries the embedding, one
channel for each token, straight to the head, whose rows say who follows whom.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from glassgear.text.byte_letters import LETTER_OF
from glassgear.weights import gguf_write
from tests.models import stored

START, END, TEXT_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SPECIAL = (START, END, TEXT_END)
PIECES = [LETTER_OF[byte] for byte in range(256)] + ["zq", *SPECIAL]
IDS = {piece: place for place, piece in enumerate(PIECES)}
DIM = 264

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BARE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
"""A template that ends with the last message, whose last letter then decides the answer."""

# After a line break it says "H!" and ends its turn; letters follow each other to the "."; "L"
# never ends; "E" begins an "é" of two bytes, "F" a character that breaks off, "O" an escape code.
FOLLOWS: dict[int, int | str] = {
    **{ord(a): ord(b) for a, b in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True)},
    ord("z"): ord("."), ord("."): TEXT_END, ord("\n"): ord("H"), ord("H"): ord("!"), ord("!"): END,
    ord("L"): ord("L"), ord("E"): 0xC3, 0xC3: 0xA9, 0xA9: ord("."), ord("F"): 0xF0, 0xF0: ord("."),
    ord("O"): 0x1B, 0x1B: ord("["), ord("["): ord("."), ord(" "): ord("x"),
}  # fmt: skip


def successors() -> list[int]:
    """The id that follows each id."""
    out = [IDS["."]] * len(PIECES)
    for byte, follower in FOLLOWS.items():
        out[byte] = IDS[follower] if isinstance(follower, str) else follower
    out[IDS[TEXT_END]] = ord("w")  # a text that starts from nothing
    return out


def write_speaker(path: Path, *, context: int = 512, template: str | None = CHATML, **metadata: Any) -> None:
    """Write it as a GGUF."""
    vocab, hidden = len(PIECES), 8
    embed, head = np.zeros((vocab, DIM), np.float32), np.zeros((vocab, DIM), np.float32)
    embed[np.arange(vocab), np.arange(vocab)] = 1
    head[successors(), np.arange(vocab)] = 2
    zeros = {
        "attn_q": (DIM, DIM), "attn_k": (DIM // 2, DIM), "attn_v": (DIM // 2, DIM), "attn_output": (DIM, DIM),
        "ffn_gate": (hidden, DIM), "ffn_up": (hidden, DIM), "ffn_down": (DIM, hidden),
    }  # fmt: skip
    tensors = [stored("token_embd.weight", embed), stored("output.weight", head)]
    tensors += [stored("output_norm.weight", np.ones(DIM))]
    for layer in range(2):
        tensors += [stored(f"blk.{layer}.{n}_norm.weight", np.ones(DIM)) for n in ("attn", "ffn")]
        tensors += [stored(f"blk.{layer}.{n}.weight", np.zeros(s)) for n, s in zeros.items()]
    settings: dict[str, Any] = {
        "general.architecture": "llama", "llama.embedding_length": DIM, "llama.block_count": 2,
        "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1, "llama.context_length": context,
        "llama.feed_forward_length": hidden, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": [1] * 257 + [3] * 3, "tokenizer.ggml.merges": ["z q"],
        "tokenizer.ggml.eos_token_id": IDS[TEXT_END],
    }  # fmt: skip
    if template is not None:
        settings["tokenizer.chat_template"] = template
    gguf_write.write(path, settings | metadata, tensors)

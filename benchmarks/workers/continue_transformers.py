"""Continue a text with transformers: FOLDER COUNT TEXT. Prints JSON: the text's ids, and COUNT likeliest ids.

Run in a Python that has transformers and torch. The tokenizer is the folder's own, read by transformers.
"""

from __future__ import annotations

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, count: int, text: str) -> None:
    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    made: list[int] = []
    given, cache = ids, None
    with torch.no_grad():
        for _ in range(count):
            out = model(torch.tensor([given]), past_key_values=cache, use_cache=True)
            made.append(int(out.logits[0, -1].argmax()))
            given, cache = made[-1:], out.past_key_values
    print(json.dumps({"ids": ids, "made": made}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

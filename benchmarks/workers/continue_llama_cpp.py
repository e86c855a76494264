"""Continue a text with llama.cpp: MODEL COUNT TEXT [IDS].

Prints JSON: the text's ids, and COUNT likeliest ids. With IDS, a JSON list, they are what the text goes
on with, whatever llama.cpp finds likeliest. Run in a Python that has llama-cpp-python. The tokenizer
is llama.cpp's own, so it is put to the test too.
"""

from __future__ import annotations

import json
import sys

import numpy as np
from llama_cpp import Llama


def main(model: str, count: int, text: str, given: str = "[]") -> None:
    llama = Llama(model, n_ctx=256, n_threads=2, logits_all=False, verbose=False)
    ids = llama.tokenize(text.encode(), add_bos=llama._model.add_bos_token(), special=True)
    llama.eval(ids)
    made: list[int] = []
    forced = json.loads(given)
    for place in range(count):
        logits = np.ctypeslib.as_array(llama._ctx.get_logits_ith(-1), (llama.n_vocab(),))
        made.append(int(np.argmax(logits)))
        llama.eval(forced[place : place + 1] or made[-1:])
    print(json.dumps({"ids": ids, "made": made}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5])

"""Do other programs make the same of what `glassgear convert` writes?

    python benchmarks/interchange.py model.gguf stories260K.bin \
        --llama-cpp peers/bin/python --transformers torch/bin/python --llama2c llama2.c/run

Each model is converted to a folder, to GGUFs of several types and, where it can be, to a `.bin`. The
programs that are installed read those files with their own tokenizers and take the likeliest token
COUNT times; so does Glassgear's float32 reference, on the source for float types, on the same file
for quantised ones. A line says how many tokens agree until the first that doesn't. llama.cpp rounds
activations to 8 bits for quantised types and may take another token where two are nearly as likely:
there it is given the reference's text, and all tokens that agree are counted. Exit code 1 if an f32
conversion disagrees. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glassgear.convert import Wanted, convert
from glassgear.errors import GlassgearError
from glassgear.language_model import LanguageModel
from glassgear.loading import load
from glassgear.weights.quant import TYPES

WORKERS = Path(__file__).resolve().parent / "workers"
PROMPT = "Once upon a time"
EXACT = ("f32", "f16", "bf16")


def reference(model: LanguageModel, count: int) -> tuple[list[int], list[int]]:
    """The prompt's ids, and what follows them."""
    ids = model.encode(PROMPT)
    pieces = model.generate(ids, max_tokens=count, temperature=0, ignore_eos=True)
    return ids, [token for piece in pieces for token in piece.ids]


def of_worker(
    python: str, worker: str, model: Path, count: int, given: Sequence[int] | None = None
) -> tuple[list[int], list[int]]:
    """The same by another program in a Python of its own; `given` is what its text goes on with."""
    command = [python, str(WORKERS / f"{worker}.py"), str(model), str(count), PROMPT]
    command += [] if given is None else [json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["ids"], found["made"]


def of_llama2c(program: str, model: Path, count: int) -> str:
    """The text that llama2.c's program prints."""
    tokenizer = model.parent / "tokenizer.bin"
    command = [program, str(model), "-t", "0", "-n", str(count), "-i", PROMPT, "-z", str(tokenizer)]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")


def agreement(ours: Sequence[int] | str, theirs: Sequence[int] | str) -> int:
    """How many places from the start are the same."""
    return next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )


def compared(source: Path, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each file that is written and each program that reads it."""
    model = load(source, backend="reference")
    ids, made = reference(model, options.count)
    programs = {"llama.cpp": (options.llama_cpp, "continue_llama_cpp"),
                "transformers": (options.transformers, "continue_transformers")}  # fmt: skip
    targets = [("folder", kind) for kind in EXACT] + [("gguf", kind) for kind in options.types.split(",")]
    for container, kind in targets:
        name = "transformers" if container == "folder" else "llama.cpp"
        python, worker = programs[name]
        if python is None:
            continue
        target = folder / (f"{kind}.gguf" if container == "gguf" else kind)
        row: dict[str, Any] = {"source": source.name, "target": container, "type": kind, "program": name}
        try:
            convert(source, target, Wanted(type=kind))
            if kind in EXACT:
                their_ids, theirs = of_worker(python, worker, target, options.count)
                agree = agreement(made, theirs)
            else:
                wanted = reference(load(target, backend="reference"), options.count)[1]
                their_ids, theirs = of_worker(python, worker, target, options.count, wanted)
                agree = sum(a == b for a, b in zip(wanted, theirs, strict=True))
            row |= {"same ids": their_ids == ids, "agree": agree}
        except (GlassgearError, RuntimeError) as trouble:
            row["trouble"] = str(trouble)
        yield row
    if options.llama2c is not None:
        row = {"source": source.name, "target": "bin", "type": "f32", "program": "llama2.c"}
        try:
            convert(source, folder / "m.bin", Wanted(bin_version=0))
            text = of_llama2c(options.llama2c, folder / "m.bin", len(ids) + options.count)
            ours = model.tokenizer.decode([*ids, *made])
            row |= {"same ids": text.startswith(PROMPT), "agree": agreement(ours, text), "of": len(ours)}
        except GlassgearError as trouble:
            row["trouble"] = str(trouble)
        yield row


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="one with llama-cpp-python")
    parser.add_argument("--transformers", metavar="PYTHON", help="one with transformers and torch")
    parser.add_argument("--llama2c", metavar="PROGRAM", help="llama2.c's run")
    parser.add_argument("--count", type=int, default=48, help="tokens")
    writable = "f32,f16,bf16,q8_0,q5_1,q5_0,q4_1,q4_0,q6_k,q5_k,q4_k"
    parser.add_argument("--types", default=writable, help=f"of GGUFs: {writable}")
    options = parser.parse_args(given)
    assert all(kind.upper() in TYPES for kind in options.types.split(","))
    rows, wrong = [], False
    for source in options.models:
        with tempfile.TemporaryDirectory() as folder:
            for row in compared(source, Path(folder), options):
                rows.append(row)
                of = row.get("of", options.count)
                result = row.get("trouble") or (
                    f"{row['agree']:>4} of {of} agree"
                    + ("" if row["same ids"] else ", other ids for the text")
                )
                print(
                    f"{row['source']:<36.36}{row['target']:<8}{row['type']:<6}{row['program']:<14}{result}",
                    flush=True,
                )
                exact = row["type"] in EXACT[:1] and "trouble" not in row
                wrong |= exact and (not row["same ids"] or row["agree"] < of)
    print(json.dumps(rows))
    sys.exit(int(wrong))


if __name__ == "__main__":
    main()

"""Tokens a second of the trainer against a plain PyTorch Llama of the same size, in turn, in one run.

The other program is below, in the way in which small training scripts are mostly written: one class
for each part, rotation tables made once, fused AdamW, clipping. Both do whole steps on the same ids:
forward, backward, clipping, AdamW.

    python benchmarks/train_speed.py [--dim 128] [--layers 4] [--steps 6] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassgear.train import DataSettings, Trainer, TrainSettings

EPS, THETA = 1e-5, 10000.0


class PlainNorm(nn.Module):
    """x / rms(x) * weight."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """[..., dim] -> the same."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate halves: [B, heads, t, d] -> the same."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class PlainBlock(nn.Module):
    """Attention and a gated network, each after a norm."""

    def __init__(self, dim: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = PlainNorm(dim), PlainNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, t, dim] -> the same."""
        batch, length, dim = x.shape
        y = self.first(x)
        q, k, v = (
            part(y).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(
            turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True
        )
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, dim))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class PlainLlama(nn.Module):
    """A small Llama with a tied head, which gives the mean loss."""

    cos: Tensor
    sin: Tensor

    def __init__(self, vocab: int, dim: int, hidden: int, heads: int, layers: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(PlainBlock(dim, hidden, heads) for _ in range(layers))
        self.norm = PlainNorm(dim)
        width = dim // heads
        angle = torch.arange(context)[:, None] / THETA ** (torch.arange(0, width, 2) / width)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of targets [B, t]."""
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = functional.linear(self.norm(x), self.embed.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def plain_steps(trainer: Trainer) -> Callable[[int], float]:
    """A function that does one step of the plain program on the trainer's own ids."""
    s, vocab = trainer.settings, trainer.corpus.vocab
    sizes = {key: int(s.model[key]) for key in ("dim", "hidden", "heads", "layers")}
    model = PlainLlama(vocab, context=s.context, **sizes)
    assert sum(p.numel() for p in model.parameters()) == trainer.parameters
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": s.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=s.learning_rate, betas=s.betas, fused=True)
    with torch.no_grad():
        for p in matrices:
            p.normal_(0, 0.02)

    def step(number: int) -> float:
        total = 0.0
        for micro in range(s.accumulate):
            ids = trainer._batch(number, micro)
            with torch.autocast("cpu", torch.bfloat16, s.dtype == "bfloat16"):
                loss = model(ids[:, :-1], ids[:, 1:]) / s.accumulate
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), s.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


def seconds(step: Callable[[int], object], first: int, count: int) -> tuple[float, float]:
    """Seconds that steps `first` to `first + count` take: of the clock, and of this process's processors."""
    wall, own = time.perf_counter(), time.process_time()
    for number in range(first, first + count):
        step(number)
    return time.perf_counter() - wall, time.process_time() - own


def main() -> None:
    """Measure, and print a line for each round and a JSON line at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (
        ("dim", 128), ("layers", 4), ("heads", 4), ("context", 256), ("batch", 8), ("accumulate", 2),
        ("steps", 2), ("rounds", 7), ("threads", 1),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(Path(folder), given)
        plain = plain_steps(trainer)
        runs: dict[str, list[float]] = {"glassgear": [], "plain": []}
        work: dict[str, list[float]] = {"glassgear": [], "plain": []}
        ways: dict[str, Callable[[int], object]] = {
            "glassgear": lambda number: trainer._step(number, 1e-4), "plain": plain,
        }  # fmt: skip
        for step in ways.values():
            seconds(step, 0, 2)
        for turn in range(given.rounds):
            for name in sorted(ways, reverse=bool(turn % 2)):
                took, own = seconds(ways[name], turn * given.steps, given.steps)
                work[name].append(own)
                runs[name].append(trainer.settings.tokens_per_step * given.steps / took)
        trainer.gemm.measure(0.3)
        medians = {name: statistics.median(found) for name, found in runs.items()}
        for name, found in runs.items():
            share = medians[name] * trainer.flops_per_token / trainer.gemm.best
            print(f"{name:<10} {medians[name]:>9,.0f} tok/s, {min(found):,.0f} to {max(found):,.0f}; "
                  f"{share:.0%} of the GEMM rate")  # fmt: skip
        own = statistics.median(b / a for a, b in zip(work["glassgear"], work["plain"], strict=True))
        ratios = [a / b for a, b in zip(runs["glassgear"], runs["plain"], strict=True)]
        print(
            json.dumps(
                {
                    "parameters": trainer.parameters, **vars(given), "torch": torch.__version__,
                    "processor": platform.processor() or platform.machine(),
                    "tokens_per_second": {k: round(v, 1) for k, v in medians.items()},
                    "ratio": round(statistics.median(ratios), 3),
                    "ratio_by_processor_time": round(own, 3),  # what others on the machine don't disturb
                }
            )
        )  # fmt: skip


def _trainer(folder: Path, given: argparse.Namespace) -> Trainer:
    """A trainer that is ready to do steps, on text that is nothing but random words."""
    draw = torch.Generator().manual_seed(1)
    letters = torch.randint(97, 123, (1000, 5), generator=draw).tolist()
    words = ["".join(map(chr, row)) for row in letters]
    count = 8 * given.context * given.batch * given.accumulate
    picks = torch.randint(0, len(words), (count,), generator=draw).tolist()
    texts = [" ".join(words[i] for i in picks[at : at + 200]) for at in range(0, count, 200)]
    (folder / "t.txt").write_text("<|endoftext|>".join(texts), encoding="utf-8")
    made = Trainer(
        TrainSettings(
            str(folder / "run"), DataSettings((str(folder / "t.txt"),), tokenizer=512),
            {"dim": given.dim, "hidden": 3 * given.dim, "layers": given.layers, "heads": given.heads},
            context=given.context, batch=given.batch, accumulate=given.accumulate, threads=given.threads,
            dtype=given.dtype, device="cpu",
        )
    )  # fmt: skip
    made.folder.mkdir(parents=True)
    made._prepare()
    return made


if __name__ == "__main__":
    main()

"""The loop: a step is some micro-batches, one gradient, one move of the weights."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glassgear.backends.torch import ModelModule
from glassgear.errors import SettingError
from glassgear.model.gears import Model
from glassgear.train import checkpoint
from glassgear.train.data import Corpus, Windows, prepare
from glassgear.train.journal import Journal
from glassgear.train.lock import only_one
from glassgear.train.model import model_of
from glassgear.train.optimizer import adamw, initialise
from glassgear.train.ranks import Ranks, whole
from glassgear.train.schedule import learning_rate
from glassgear.train.settings import TrainSettings

__all__ = ["Event", "Outcome", "Trainer"]

MOST_IN_A_ROW = 3  # steps without a finite gradient, after which a run stops
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Event = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        reason: `done`, `interrupted` (a signal; the state is saved) or `diverged`.
        step: steps done.
        loss: of the last step, nats per token.
        validation: last loss on held-out text, nats per token; None if there was no look.
        folder: the run's.
    """

    reason: str
    step: int
    loss: float
    validation: float | None
    folder: Path


class Trainer:
    """One run.

    Args:
        settings: what to do.
        on_event: is told what happens, as the lines of metrics.jsonl have it, and of progress while
            text is being read (`{"event": "data", ...}`).
    """

    def __init__(self, settings: TrainSettings, on_event: Callable[[Event], None] | None = None) -> None:
        self.settings = settings
        self.tell = on_event or (lambda event: None)
        self.folder = Path(settings.out)
        self.ranks = Ranks.join(settings.device)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        if settings.accumulate % self.ranks.world:
            raise SettingError(
                f"{settings.accumulate} micro-batches (accumulate) can't be shared evenly by "
                f"{self.ranks.world} processes"
            )
        self._stop = ""

    def run(self) -> Outcome:
        """Train, from the newest checkpoint of the folder if there is one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_one(self.folder) if self.ranks.first else nullcontext():
            try:
                with self._signals():
                    return self._run()
            finally:
                self.ranks.leave()

    def _run(self) -> Outcome:
        self._prepare()
        state, outcome = self._taken_up(), None
        loss, validation, bad = math.nan, None, 0
        journal = Journal(self.folder, state.step, self.ranks.first, self.tell)
        started, seen = time.perf_counter(), 0
        while state.step < self.settings.steps and not self._stopped():
            rate = self._rate(state.step)
            loss, norm, moved = self._step(state.step, rate)
            bad = 0 if moved else bad + 1
            seen += self.settings.tokens_per_step
            state = replace(
                state, step=state.step + 1, tokens=state.tokens + self.settings.tokens_per_step,
                skipped=state.skipped + (not moved),
            )  # fmt: skip
            if not moved:
                journal.note({"event": "skipped", "step": state.step, "loss": loss, "gradient": norm})
            if bad == MOST_IN_A_ROW:
                outcome = Outcome("diverged", state.step, loss, validation, self.folder)
                break
            if self._due(state.step, self.settings.log_every):
                speed = seen / (time.perf_counter() - started)
                started, seen = time.perf_counter(), 0
                journal.note(
                    {
                        "event": "step", "step": state.step, "loss": loss, "gradient": norm, "rate": rate,
                        "tokens": state.tokens, "tokens_per_second": round(speed, 1),
                        "share_of_gemm": round(speed * self.flops_per_token / self.gemm, 3),
                    }
                )  # fmt: skip
            if self._due(state.step, self.settings.evaluate_every):
                validation = self.evaluate(self.settings.evaluate_batches)
                state = replace(
                    state, best=min(validation, state.best if state.best is not None else math.inf)
                )
                journal.note(
                    {
                        "event": "validation",
                        "step": state.step,
                        "loss": validation,
                        **self._per_byte(validation),
                    }
                )
                started, seen = time.perf_counter(), 0
            if self.settings.sample_every and state.step % self.settings.sample_every == 0:
                journal.note({"event": "sample", "step": state.step, "text": self.sample()})
            if self._due(state.step, self.settings.save_every) and not bad:
                self._save(state)
        if outcome is None:
            reason = "done" if state.step >= self.settings.steps else "interrupted"
            if not bad:
                self._save(state)
            outcome = Outcome(reason, state.step, loss, validation, self.folder)
        journal.note({"event": "end", "reason": outcome.reason, "step": outcome.step})
        return outcome

    # --- before the first step --------------------------------------------------------------

    def _prepare(self) -> None:
        """Data, model, optimizer, and what the machine can do."""
        s, ranks = self.settings, self.ranks
        if ranks.first:
            self.corpus = self._corpus()
        ranks.wait()
        if not ranks.first:
            self.corpus = self._corpus()
        self.model: Model = model_of(s.model, self.corpus.vocab, s.context)
        self.windows = Windows(self.corpus.train, s.context, s.seed)
        self.plain = ModelModule(self.model)
        initialise(self.plain, s.seed)
        self.plain.to(ranks.device).train()
        self.module: nn.Module = ranks.share(self.plain, s.strategy)
        if s.compiled:
            self.module = torch.compile(self.module)  # type: ignore[assignment]
        fused = ranks.device.type == "cuda" or s.strategy != "fsdp"
        self.optimizer = adamw(
            self.module, rate=s.learning_rate, betas=s.betas, eps=s.eps, decay=s.weight_decay, fused=fused
        )
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=s.dtype == "float16")
        self.parameters = sum(p.numel() for p in self.plain.parameters())
        self.flops_per_token = _flops(self.model, s.context)
        self.gemm = gemm_rate(ranks.device, DTYPES[s.dtype]) * ranks.world
        self.tell(
            {
                "event": "start", "parameters": self.parameters, "vocab": self.corpus.vocab,
                "train_tokens": len(self.corpus.train), "validation_tokens": len(self.corpus.validation),
                "steps": s.steps, "tokens_per_step": s.tokens_per_step,
                "gemm_gflops": round(self.gemm / 1e9, 1),
                "device": str(ranks.device), "processes": ranks.world,
            }
        )  # fmt: skip

    def _corpus(self) -> Corpus:
        def progress(what: str, share: float) -> None:
            self.tell({"event": "data", "what": what, "share": share})

        return prepare(self.settings.data, self.folder / "data", progress if self.ranks.first else None)

    def _taken_up(self) -> checkpoint.State:
        fingerprint = self._fingerprint()
        found = checkpoint.checkpoints(self.folder)
        if not found:
            return checkpoint.State(fingerprint=fingerprint)
        state = checkpoint.load(found[-1], self.plain, self.optimizer, fingerprint)
        self.tell({"event": "resumed", "step": state.step})
        return state

    def _fingerprint(self) -> str:
        """Of what must not change between a run and its continuation."""
        s = self.settings
        parts = [self.corpus.fingerprint, repr(self.model), s.context, s.batch, s.accumulate, s.seed]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()

    # --- a step -----------------------------------------------------------------------------

    def _rate(self, step: int) -> float:
        s = self.settings
        return learning_rate(
            step, peak=s.learning_rate, floor=s.learning_rate * s.final_rate, warmup=s.warmup, decay=s.steps
        )

    def _step(self, step: int, rate: float) -> tuple[float, float, bool]:
        """Loss in nats per token, norm of the gradient, and whether the weights were moved."""
        s, ranks = self.settings, self.ranks
        mine = range(ranks.rank, s.accumulate, ranks.world)
        batches = [self._batch(step, i) for i in mine]
        (count,) = ranks.total(sum(int((b[:, 1:] >= 0).sum()) for b in batches))
        self.optimizer.zero_grad(set_to_none=True)
        summed = 0.0
        for i, ids in enumerate(batches):
            with self._apart(last=i == len(batches) - 1):
                loss = self._loss(ids)
                summed += loss.item()
                # Divided by the tokens of the whole step; DDP and FSDP take the mean over processes.
                scaled: Any = self.scaler.scale(loss * (ranks.world / max(count, 1)))
                scaled.backward()
        (summed,) = ranks.total(summed)
        mean = summed / count if count else math.nan
        norm = self._clipped()
        if not (math.isfinite(mean) and math.isfinite(norm)):
            self.scaler.update()
            return mean, norm, False
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return mean, norm, True

    def _batch(self, step: int, micro: int) -> Tensor:
        s = self.settings
        number = (step * s.accumulate + micro) * s.batch
        return torch.from_numpy(self.windows.batch(number, s.batch)).to(self.ranks.device)

    def _loss(self, ids: Tensor) -> Tensor:
        """Sum over all targets, nats."""
        with torch.autocast(
            self.ranks.device.type, DTYPES[self.settings.dtype], self.settings.dtype != "float32"
        ):
            logits = self.module(ids[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum")

    @contextmanager
    def _apart(self, last: bool) -> Iterator[None]:
        """Gradients are exchanged between processes with the last micro-batch alone."""
        wrapped: Any = self.module
        if self.ranks.world > 1 and hasattr(wrapped, "set_requires_gradient_sync"):
            wrapped.set_requires_gradient_sync(last)
            yield
        elif self.ranks.world > 1 and not last and hasattr(wrapped, "no_sync"):
            with wrapped.no_sync():
                yield
        else:
            yield

    def _clipped(self) -> float:
        """The norm of the true gradient, which is then no longer than `clip`."""
        self.scaler.unscale_(self.optimizer)
        most = self.settings.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), most)
        return float(whole(norm))

    # --- looks ------------------------------------------------------------------------------

    @torch.no_grad()
    def evaluate(self, batches: int = 0) -> float:
        """Loss on held-out text, nats per token: of its first micro-batches, or of all of it."""
        s, ids, ranks = self.settings, self.corpus.validation, self.ranks
        self.module.eval()
        starts = list(range(0, len(ids) - 1, s.context))
        if batches:
            starts = starts[: batches * s.batch]
        summed, count = 0.0, 0
        for i in range(ranks.rank * s.batch, len(starts), ranks.world * s.batch):
            rows = [
                torch.from_numpy(ids[a : a + s.context + 1].astype("int64")) for a in starts[i : i + s.batch]
            ]
            padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100).to(ranks.device)
            inputs, targets = padded[:, :-1].clamp_min(0), padded[:, 1:]
            with torch.autocast(ranks.device.type, DTYPES[s.dtype], s.dtype != "float32"):
                logits = self.plain(inputs) if ranks.world == 1 else self.module(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum")
            summed, count = summed + loss.item(), count + int((targets >= 0).sum())
        self.module.train()
        summed, total = ranks.total(summed, count)
        return summed / total

    def _per_byte(self, loss: float) -> dict[str, float]:
        tokens = len(self.corpus.validation) - 1
        return {"nats_per_byte": loss * tokens / self.corpus.validation_bytes}

    def sample(self, length: int = 64, temperature: float = 0.8) -> str:
        """What the model says now, always with the same random numbers."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.corpus.tokenizer))
        ids = tokenizer.encode(self.settings.sample_prompt).ids or [0]
        random = torch.Generator().manual_seed(self.settings.seed)
        self.module.eval()
        with torch.no_grad():
            for _ in range(min(length, self.settings.context - len(ids))):
                logits = self.plain(torch.tensor([ids], device=self.ranks.device))[0, -1].float().cpu()
                ids.append(int(torch.multinomial((logits / temperature).softmax(0), 1, generator=random)))
        self.module.train()
        text: str = tokenizer.decode(ids)
        return text

    # --- manners ----------------------------------------------------------------------------

    def _due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.settings.steps

    def _save(self, state: checkpoint.State) -> None:
        target = checkpoint.save(
            self.folder, self.plain, self.optimizer, state, self.ranks, self.settings.keep
        )
        if self.ranks.first:
            (self.folder / "settings.json").write_text(
                json.dumps(asdict(self.settings), indent=1, default=str), encoding="utf-8"
            )
            self.tell({"event": "saved", "step": state.step, "path": str(target)})

    def _stopped(self) -> bool:
        return self.ranks.agree(bool(self._stop))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the run after the step that is running; a second Ctrl-C at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            if self._stop and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop = signal.Signals(number).name

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _flops(model: Model, context: int) -> float:
    """Operations of training for one token: forward, and twice as many backward."""
    from glassgear.model.ledger import ledger

    return 3.0 * ledger(model).flops_per_token(context // 2)


def gemm_rate(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Floating-point operations a second of a large matrix product, the best of some."""
    size = 1024 if device.type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
    best, until = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < until or best == math.inf:
        start = time.perf_counter()
        (a @ b)[0, 0].item()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best

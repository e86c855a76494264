"""The loop: steps, and between them looks, checkpoints and signals."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from glassgear.errors import FileError, FormatError, SettingError
from glassgear.train import checkpoint
from glassgear.train.compared import check_tokenizer, other_run
from glassgear.train.data import Corpus, prepare
from glassgear.train.export import export
from glassgear.train.journal import Journal
from glassgear.train.lock import only_one
from glassgear.train.looks import DTYPES, evaluate, sample
from glassgear.train.model import model_of
from glassgear.train.ranks import Ranks, check_share
from glassgear.train.settings import TrainSettings, check_model, check_room
from glassgear.train.speed import Clock, GemmRate, flops_per_token
from glassgear.train.step import Steps
from glassgear.weights.atomic import replacing

__all__ = ["Event", "Outcome", "Trainer"]

MOST_IN_A_ROW = 3  # steps without a finite gradient, after which a run stops
SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT")  # Windows has no SIGHUP
Event = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        reason: `done`, `paused` (at the step that was asked for; the state is saved), `interrupted` (a
            signal; it is saved, too), `diverged`, or `past`: there were more steps already than the settings
            ask for, and nothing was done.
        step: steps done.
        loss: of the last step, nats per token.
        validation: last loss on held-out text, nats per token; None if there was no look.
        folder: the run's.
        model: the folder of the model, for other programs; None if the run isn't done.
        signal: what interrupted it, as `SIGTERM`.
    """

    reason: str
    step: int
    loss: float
    validation: float | None
    folder: Path
    model: Path | None = None
    signal: str = ""


class Trainer(Steps):
    """One run.

    Args:
        settings: what to do.
        on_event: is told what happens, as the lines of metrics.jsonl have it, and of progress while
            text is being read (`{"event": "data", ...}`); in the first of several processes alone.
        until: pause after this step; the rate's course is that of all steps.
    """

    def __init__(
        self,
        settings: TrainSettings,
        on_event: Callable[[Event], None] | None = None,
        until: int | None = None,
    ) -> None:
        model = check_model(settings)
        check_share(settings.accumulate)
        ranks = Ranks.join(settings.device)
        if ranks.device.type == "cpu":
            check_room(model)
        super().__init__(settings, ranks)
        self.folder = Path(settings.out)
        self.until = settings.steps if until is None else min(until, settings.steps)
        self.tell = on_event if on_event and self.ranks.first else lambda event: None
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self._stop = ""
        self._begun = False  # whether there is anything that a signal must not break off
        self._saved = -1  # the step of the newest checkpoint that was written or read
        self._loss = math.nan
        self._validation: float | None = None
        self._bad = 0  # steps without a finite gradient, in a row

    def run(self) -> Outcome:
        """Train, from the newest checkpoint of the folder that is whole, if there is one."""
        if self.folder.exists() and not self.folder.is_dir():
            raise SettingError(f"out is {self.folder}, which is a file: a run needs a folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_one(self.folder) if self.ranks.first else nullcontext():
            try:
                with self._signals():
                    return self._run()
            finally:
                self.ranks.leave()

    def _run(self) -> Outcome:
        self._prepare()
        self.state = self._taken_up()
        if self.ranks.total(self.state.step)[0] != self.state.step * self.ranks.world:
            raise SettingError(f"not all processes see the same checkpoints in {self.folder}")
        if self.state.step > self.settings.steps:
            self.tell({"event": "end", "reason": "past", "step": self.state.step})
            return Outcome("past", self.state.step, self._loss, None, self.folder)
        self.journal = Journal(self.folder, self.state.step, self.ranks.first, self.tell)
        self._begun = True
        reason, model = self._loop(), None
        if not self._bad:
            self._save()
        if reason == "done" and self.ranks.first:
            model = export(self.settings)
            self.tell({"event": "exported", "path": str(model)})
        self.ranks.wait()
        step = self.state.step
        self.journal.note({"event": "end", "reason": reason, "step": step})
        return Outcome(reason, step, self._loss, self._validation, self.folder, model, self._stop)

    def _loop(self) -> str:
        """Steps, and what is due after each; why they ended."""
        clock = Clock()
        while self.state.step < self.until:
            if self._stopped():
                return "interrupted"
            with clock.step(self.settings.tokens_per_step):
                event = self._advance()
            if self._bad == MOST_IN_A_ROW:
                return "diverged"
            if self._due(self.settings.log_every):
                self.journal.note({**event, **self._speed(clock)})
            if self._due(self.settings.evaluate_every):
                self._evaluate()
            if self.settings.sample_every and self._due(self.settings.sample_every):
                said = sample(self.plain, self.settings, self.corpus, self.ranks)
                self.journal.note({"event": "sample", "step": self.state.step, "text": said})
            if self._due(self.settings.save_every) and not self._bad:
                self._save()
        return "done" if self.state.step >= self.settings.steps else "paused"

    def _advance(self) -> Event:
        """One step; the line about it."""
        rate = self._rate(self.state.step)
        loss, norm, moved = self._step(self.state.step, rate)
        scale = self.scaler.get_scale() if self.scaler.is_enabled() else 0.0
        # A float16 gradient that overflows is how its scale is found: no sign of divergence.
        found_scale = not moved and math.isfinite(loss) and scale >= 1
        self._loss, self._bad = loss, 0 if moved else self._bad + (not found_scale)
        self.state = replace(
            self.state, step=self.state.step + 1, tokens=self.state.tokens + self.settings.tokens_per_step,
            skipped=self.state.skipped + (not moved),
        )  # fmt: skip
        about = {"step": self.state.step, "loss": loss, "gradient": norm}
        if not moved:
            self.journal.note({"event": "skipped", **about})
        return {"event": "step", **about, "rate": rate, "tokens": self.state.tokens}

    def _evaluate(self) -> None:
        found = evaluate(self.plain, self.settings, self.corpus, self.ranks)
        self._validation = found.per_token
        self.gemm.measure(0.05)
        self.state = replace(self.state, best=min(found.per_token, self.state.best or math.inf))
        self.journal.note(
            {
                "event": "validation", "step": self.state.step, "loss": found.per_token,
                "nats_per_byte": found.per_byte, "documents": found.documents,
            }
        )  # fmt: skip

    # --- before the first step --------------------------------------------------------------

    def _prepare(self) -> None:
        """Data, model, optimizer, and what the machine can do."""
        s, ranks = self.settings, self.ranks
        if ranks.first:
            self.corpus = self._corpus()
        ranks.wait()
        if not ranks.first:
            self.corpus = self._corpus()
        if s.start and not checkpoint.checkpoints(self.folder):
            check_tokenizer(s.start, self.corpus.tokenizer)
        self.begin(model_of(s.model, self.corpus.vocab, s.context), self.corpus.train)
        self.parameters = sum(p.numel() for p in self.plain.parameters())
        self.flops_per_token = flops_per_token(self.model, s.context)
        self.gemm = GemmRate(ranks.device, DTYPES[s.dtype])
        self.gemm.measure(0.3)
        self.tell(
            {
                "event": "start", "parameters": self.parameters, "vocab": self.corpus.vocab,
                "train_tokens": len(self.corpus.train), "validation_tokens": len(self.corpus.validation),
                "steps": s.steps, "tokens_per_step": s.tokens_per_step,
                "gemm_gflops": round(self.gemm.best * ranks.world / 1e9, 1),
                "device": str(ranks.device), "processes": ranks.world,
            }
        )  # fmt: skip

    def _speed(self, clock: Clock) -> Event:
        """Tokens a second since the last line, and how much of the machine's matrix products that is."""
        spent, speed = clock.seconds, clock.rate()
        share = self.gemm.share(speed * self.flops_per_token / self.ranks.world, spent)
        return {"tokens_per_second": round(speed, 1), "share_of_gemm": share and round(share, 3)}

    def _corpus(self) -> Corpus:
        def progress(what: str, share: float) -> None:
            self.tell({"event": "data", "what": what, "share": share})

        tell = progress if self.ranks.first else None
        other = self._other if checkpoint.checkpoints(self.folder) else None
        return prepare(self.settings.data, self.folder / "data", tell, other, self._remade)

    def _remade(self, why: str) -> None:
        self.tell({"event": "remade", "path": str(self.folder / "data"), "why": why})

    def _other(self) -> str:
        return other_run(self.folder, self.settings)

    def _taken_up(self) -> checkpoint.State:
        fingerprint = self._fingerprint()
        found = checkpoint.checkpoints(self.folder)
        if not found:
            return checkpoint.State(fingerprint=fingerprint)
        for path in reversed(found):
            try:
                state = checkpoint.load(path, self.plain, self.optimizer, fingerprint, self._other)
            except FileError as trouble:
                self.tell({"event": "damaged", "path": str(path), "why": str(trouble)})
                continue
            self.scaler.load_state_dict(dict(state.scaler))
            self._saved = state.step
            self.tell({"event": "resumed", "step": state.step})
            return state
        raise FormatError(
            self.folder, "holds no checkpoint that is whole: delete its step-* folders to begin anew"
        )

    def _fingerprint(self) -> str:
        """Of what must not change between a run and its continuation."""
        s = self.settings
        parts = [self.corpus.fingerprint, repr(self.model), s.context, s.batch, s.accumulate, s.seed]
        if s.start:
            parts.append(s.start)
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()

    # --- manners ----------------------------------------------------------------------------

    def _due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.settings.steps

    def _save(self) -> None:
        """Write a checkpoint, if there isn't one of this step."""
        if self._saved == self.state.step:
            return
        self.state = replace(self.state, scaler=self.scaler.state_dict())
        target = checkpoint.save(self.folder, self.plain, self.optimizer, self.state, self.ranks)
        self._saved = self.state.step
        if self.ranks.first:
            for path in checkpoint.thin_out(self.folder, self.settings.keep):
                self.tell({"event": "dropped", "path": str(path), "whole": str(target)})
            with replacing(self.folder / "settings.json") as file:
                file.write(json.dumps(asdict(self.settings), indent=1, default=str).encode())
        self.tell({"event": "saved", "step": self.state.step, "path": str(target)})

    def _stopped(self) -> bool:
        return self.ranks.agree(bool(self._stop))

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM, SIGHUP and Ctrl-C end the run after the step that is running; a second Ctrl-C at once.

        Before the first step they end it at once: whatever is being made then is made anew. What is ignored,
        as SIGHUP is under `nohup`, stays so.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: object) -> None:
            if number == signal.SIGINT and (self._stop or not self._begun):
                raise KeyboardInterrupt
            if not self._begun:
                raise SystemExit(128 + number)
            self._stop = signal.Signals(number).name

        known = (getattr(signal, name) for name in SIGNALS if hasattr(signal, name))
        taken = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, stop) for number in taken}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

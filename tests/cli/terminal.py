"""A program on a pseudo-terminal: what it shows, and a way to type. POSIX only."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

# The new session makes the terminal its own, so that Ctrl-C arrives as a signal.
CONTROL = "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
PROGRAM = """
from glassgear.cli import main
main()
"""
PATIENCE = 60.0  # seconds: the machine may be busy


class Terminal:
    """`glassgear ARGUMENTS` with all three streams on one terminal; `before` is code to run first."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], before: str = "") -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONTROL + before + PROGRAM, *arguments],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm", **environment},
        )  # fmt: skip
        os.close(slave)
        self.shown = ""  # all that it has printed
        self._read = 0  # how much of it `wait_for` has passed

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)

    def type(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C at a prompt. readline shows it a moment before it listens for signals."""
        time.sleep(0.2)
        self.type("\x03")

    def wait_for(self, pattern: str) -> str:
        """Read on until a pattern shows; what was shown up to and with it since the last call."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = re.compile(pattern).search(self.shown, self._read)
            if found:
                before, self._read = self._read, found.end()
                return self.shown[before : found.end()]
            if not self._more(deadline):
                raise AssertionError(f"{pattern!r} didn't show in {self.shown[self._read :]!r}")

    def exit_code(self) -> int:
        """Wait for its end."""
        while self._more(time.monotonic() + PATIENCE):
            pass
        return self._process.wait(PATIENCE)

    def hang_up(self) -> int:
        """Close the terminal's window, and wait for the end of the program."""
        os.close(self._master)
        try:
            return self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _more(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says so when the other side has closed
            return False
        self.shown += data.decode("utf-8", errors="replace")
        return bool(data)

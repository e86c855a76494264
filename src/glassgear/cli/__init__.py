"""The command line. Thin: it reads options, calls the library, and prints.

`app.py` is the group of commands and turns errors into messages and exit codes; each command
has a file of its own, imported when it is used. What several commands need lies in `console.py`
(streams, messages), `options.py`, `opening.py` and `stats.py`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command that `sys.argv` names, and leave with its exit code."""
    try:
        from glassgear.cli.app import app

        app(prog_name="glassgear")
    except KeyboardInterrupt:  # before a command had begun, or while it was cleaning up
        sys.exit(130)
    sys.exit(0)

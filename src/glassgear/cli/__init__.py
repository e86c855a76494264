"""The command line. Thin: it reads options, calls the library, and prints.

`app.py` is the group of commands and turns errors into messages and exit codes; each command
has a file of its own, imported when it is used. What several commands need lies in `console.py`
(streams, messages), `options.py`, `opening.py` and `stats.py`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # type checkers take it for true: nothing is imported that Python hasn't got loaded
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command that `sys.argv` names, and leave with its exit code.

    Whatever takes time to import is imported in here, where Ctrl-C is expected.
    """
    if sys.stderr is None:  # closed by the caller (`2>&-`)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # lives as long as the program
    if sys.stdout is None:
        sys.exit("error: standard output is closed: there is nowhere to print to")
    try:
        from glassgear.cli.app import app

        app(prog_name="glassgear")
    except KeyboardInterrupt:  # while it was imported, or while it was cleaning up
        sys.exit(130)
    sys.exit(0)

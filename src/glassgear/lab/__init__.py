"""Experiments: what is said about gears, measured.

`frame.py`: an experiment has a name, a question, a claim with its source, settings
and a function from these to a result, which ends in a verdict. Each has a file in `experiments/`.
`saving.py` writes pictures and JSON, `models.py` finds models to ask. `glassgear lab` prints.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from glassgear.errors import SettingError

if TYPE_CHECKING:
    from glassgear.lab.frame import Experiment

__all__ = ["NAMES", "experiment"]

NAMES = (
    "worked-example", "linear-collapse", "xor", "activations", "gradient-highway", "norm-kinds",
    "norm-placement", "rope", "kv-cache", "ffn-or-attention", "sampling", "quantisation",
)  # fmt: skip
"""Every experiment, in the order in which a token meets what it is about."""


def experiment(name: str) -> Experiment:
    """An experiment by its name.

    Raises:
        SettingError: there is none; the message suggests near ones.
    """
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=2)
        meant = f": did you mean {' or '.join(near)}?" if near else "; `glassgear lab --list` shows all"
        raise SettingError(f"no experiment is called {name!r:.60}{meant}")
    found: Experiment = import_module(f"glassgear.lab.experiments.{name.replace('-', '_')}").EXPERIMENT
    return found

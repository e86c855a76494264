"""Training on the tree of gears, in PyTorch: texts -> ids -> steps -> a folder that other programs read.

`data.py` makes ids of texts, `trainer.py` is the loop, `checkpoint.py` what a run can be taken up from,
`schedule.py` and `optimizer.py` the rules of a step, `export.py` writes the model. Needs the extra `[torch]`.
"""

from __future__ import annotations

from glassgear.train.export import export
from glassgear.train.settings import DataSettings, TrainSettings, read_settings
from glassgear.train.trainer import Outcome, Trainer

__all__ = ["DataSettings", "Outcome", "TrainSettings", "Trainer", "export", "read_settings"]

"""The same gears in PyTorch, for GPUs and for training; `pip install "glassgear[torch]"`.

`module.py` makes an `nn.Module` of a tree, whose parameters are named by gear path; `machine.py`
runs it as a backend. One file per gear as in the reference, which defines what they compute.
"""

from glassgear.backends.torch.machine import Torch
from glassgear.backends.torch.module import ModelModule, module_of

__all__ = ["ModelModule", "Torch", "module_of"]

"""Several processes that train one model: who is who, and what they say to each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassgear.backends.torch import ModelModule
from glassgear.errors import SettingError

__all__ = ["Ranks", "check_share", "whole"]


def check_share(accumulate: int) -> None:
    """Whether the processes that `torchrun` started can share the micro-batches of a step.

    Raises:
        SettingError: some would get more than others.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if accumulate % world:
        raise SettingError(
            f"accumulate is {accumulate}: {world} processes can't share so many micro-batches evenly. "
            f"--set train.accumulate={-(-accumulate // world) * world} gives each the same; "
            "a run that was begun with another number needs a folder of its own (--out)"
        )


@dataclass
class Ranks:
    """This process among those of a run.

    Attributes:
        rank: its number.
        world: how many there are.
        device: where it computes.
    """

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, device: str) -> Ranks:
        """Take part in what `torchrun` started; alone without it."""
        world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if kind == "cuda":
            kind = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        try:
            where = torch.device(kind)
            torch.empty(0, device=where)
        except (RuntimeError, AssertionError) as trouble:
            raise SettingError(f"PyTorch has no device {device!r} here") from trouble
        if world > 1 and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if where.type == "cuda" else "gloo")
        if where.type == "cuda":
            torch.cuda.set_device(where)
        return cls(rank, world, where)

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def leave(self) -> None:
        """End what `join` began."""
        if self.world > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def total(self, *values: float) -> list[float]:
        """Sums over all processes."""
        if self.world == 1:
            return list(values)
        held = torch.tensor(values, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(held)
        return [float(v) for v in held.tolist()]

    def agree(self, flag: bool) -> bool:
        """Whether any process says so."""
        return self.total(float(flag))[0] > 0

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            torch.distributed.barrier()

    def share(self, module: ModelModule, strategy: str) -> nn.Module:
        """The module, its gradients or its parameters shared."""
        if self.world == 1:
            return module
        if strategy == "ddp":
            ids = [self.device] if self.device.type == "cuda" else None
            return nn.parallel.DistributedDataParallel(module, device_ids=ids)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self.device.type, (self.world,))
        for block in module.part("blocks") or ():
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return module


def whole(value: Any) -> Tensor:
    """A tensor that FSDP keeps in shards, put together."""
    found: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return found

"""Attention by PyTorch's own fused kernels; score by score where a hook looks on or scores are capped."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from glassgear.backends.torch.base import GearModule, Run, module_for, rotate
from glassgear.model.gears import Attention, LatentAttention

__all__ = ["attend", "mask_of"]


def mask_of(positions: Tensor, length: int, causal: bool, window: int) -> Tensor | None:
    """True where a query may look, [t, S]; None: everywhere."""
    if not causal:
        return None
    keys = torch.arange(length, device=positions.device)[None, :]
    seen = keys <= positions[:, None]
    return seen & (keys > positions[:, None] - window) if window else seen


def attend(
    module: GearModule, run: Run, q: Tensor, k: Tensor, v: Tensor, scale: float,
    *, causal: bool = True, window: int = 0, cap: float = 0.0,
) -> Tensor:  # fmt: skip
    """softmax(q k^T * scale) v: q [B, heads, t, d], k, v [B, kv_heads, S, ..] -> [B, t, heads, value_dim]."""
    whole, length = q.shape[2], k.shape[2]
    if run.hook is None and not cap:
        plain = causal and not window and whole == length
        mask = None if plain else mask_of(run.positions, length, causal, window)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=plain, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return mixed.transpose(1, 2)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = (q @ k.transpose(2, 3)) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    mask = mask_of(run.positions, length, causal, window)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    scores = _seen(module, run, "scores", scores)
    weights = _seen(module, run, "weights", scores.softmax(-1, dtype=torch.float32).to(q.dtype))
    return (weights @ v).transpose(1, 2)


def _seen(module: GearModule, run: Run, name: str, value: Tensor) -> Tensor:
    """Show [1, heads, t, S] as [heads, t, S]."""
    if run.hook is None:
        return value
    return run.see(f"{module.path}.{name}", value, tuple(value.shape[2:]))


def _split(x: Tensor, width: int) -> Tensor:
    """[B, t, n * width] -> [B, t, n, width]."""
    return x.reshape(*x.shape[:-1], -1, width)


@module_for(Attention)
class AttentionModule(GearModule):
    """MHA, GQA and MQA."""

    def __init__(self, gear: Attention, path: str) -> None:
        super().__init__(gear, path)
        self.gear = gear

    def forward(self, x: Tensor, run: Run, inputs: dict[str, Tensor] | None = None) -> Tensor:
        """[B, t, dim] -> the same; `inputs`: what the projections read instead of x."""
        gear = self.gear
        q, k, v = (
            _split(self.part(name)(x if inputs is None else inputs[name], run), gear.head_dim)
            for name in ("query", "key", "value")
        )  # [B, t, heads, head_dim]
        q, k = self._normed("query_norm", q, run), self._normed("key_norm", k, run)
        if gear.rope is not None:
            q = self.see(run, "query_rotated", rotate(gear.rope, q, run), (-1, gear.head_dim))
            k = self.see(run, "key_rotated", rotate(gear.rope, k, run), (-1, gear.head_dim))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if run.cache is not None:
            k, v = run.cache.extend(self.path, k, v)
        mixed = attend(self, run, q, k, v, gear.scale, causal=gear.causal, window=gear.window, cap=gear.cap)
        mixed = self.see(run, "mixed", mixed, (-1, gear.head_dim))
        return self.see(run, "", self.output(mixed.flatten(2), run))

    def _normed(self, name: str, x: Tensor, run: Run) -> Tensor:
        norm = self.part(name)
        return x if norm is None else norm(_split(x.flatten(2), norm.gear.dim), run).reshape(x.shape)


@module_for(LatentAttention)
class LatentAttentionModule(GearModule):
    """Multi-head latent attention, expanded; the cache holds latents."""

    def __init__(self, gear: LatentAttention, path: str) -> None:
        super().__init__(gear, path)
        self.gear = gear

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """[B, t, dim] -> the same."""
        gear = self.gear
        q = _split(self._queries(x, run), gear.head_dim)
        down = self.kv_down(x, run)
        latent = self.kv_norm(down[..., : gear.kv_rank], run)
        turned = rotate(gear.rope, q[..., gear.plain_dim :], run)
        turned = self.see(run, "query_rotated", turned, (-1, gear.rope.dim))
        shared = rotate(gear.rope, down[:, :, None, gear.kv_rank :], run)
        shared = self.see(run, "key_rotated", shared, (-1, gear.rope.dim))
        kept = torch.cat([latent[:, None], shared.transpose(1, 2)], dim=-1)  # [B, 1, t, cache_dim]
        if run.cache is not None:
            (kept,) = run.cache.extend(self.path, kept)
        both = functional.linear(kept[:, 0, :, : gear.kv_rank], self.kv_up.weight)
        both = _split(both, gear.plain_dim + gear.value_dim).transpose(1, 2)  # [B, heads, S, plain + value]
        rotated = kept[..., gear.kv_rank :].expand(-1, gear.heads, -1, -1)
        k = torch.cat([both[..., : gear.plain_dim], rotated], dim=-1)
        q = torch.cat([q[..., : gear.plain_dim], turned], dim=-1).transpose(1, 2)
        mixed = attend(self, run, q, k, both[..., gear.plain_dim :], gear.scale)
        mixed = self.see(run, "mixed", mixed, (-1, gear.value_dim))
        return self.see(run, "", self.output(mixed.flatten(2), run))

    def _queries(self, x: Tensor, run: Run) -> Tensor:
        if self.gear.query is not None:
            made: Tensor = self.query(x, run)
            return made
        down = self.query_down(x, run)
        norm = self.part("query_norm")
        made = self.query_up(down if norm is None else norm(down, run), run)
        return made

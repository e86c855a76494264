"""The gears: frozen data that says what a transformer computes, never how.

A model is a tree of them. Backends run the tree, the ledger counts it, the trace names its
values by path. Nothing here holds an array or reads a file.

Axis letters used in every shape comment of the project:

    T         tokens in a batch step, over all its sequences
    S         tokens a query can see: cached ones and new ones
    dim       width of the residual stream
    heads     query heads;  kv_heads: key and value heads, a divisor of heads
    head_dim  width of one head
    hidden    width inside the feed-forward network
    vocab     entries of the vocabulary

A weight matrix is [outputs, inputs] and is applied as x @ W.T, as most files store it.
"""

from __future__ import annotations

from glassgear.model.gears.attention import Attention
from glassgear.model.gears.base import Activation, Gear, Shape, tensors, walk
from glassgear.model.gears.block import Block, Bottleneck, Residual, Sublayer
from glassgear.model.gears.experts import Experts, Router
from glassgear.model.gears.ffn import FFN, GatedFFN
from glassgear.model.gears.latent_attention import LatentAttention
from glassgear.model.gears.linear import Embed, LearnedPositions, Linear, Neighbours, TokenTypes
from glassgear.model.gears.model import Head, Model, Pooler, Transform
from glassgear.model.gears.norms import Affine, BatchNorm, LayerNorm, Norm, RMSNorm, ScaleNorm
from glassgear.model.gears.rope import Rope, RopeScaling

__all__ = [
    "FFN",
    "Activation",
    "Affine",
    "Attention",
    "BatchNorm",
    "Block",
    "Bottleneck",
    "Embed",
    "Experts",
    "GatedFFN",
    "Gear",
    "Head",
    "LatentAttention",
    "LayerNorm",
    "LearnedPositions",
    "Linear",
    "Model",
    "Neighbours",
    "Norm",
    "Pooler",
    "RMSNorm",
    "Residual",
    "Rope",
    "RopeScaling",
    "Router",
    "ScaleNorm",
    "Shape",
    "Sublayer",
    "TokenTypes",
    "Transform",
    "tensors",
    "walk",
]

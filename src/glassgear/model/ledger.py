"""The ledger: what a tree of gears holds and costs, counted from the tree alone.

In: a tree, and for bytes the sizes of its stored tensors if there are any. Out: totals, and rows
where they are asked for. No array is made, and gears that occur many times are counted once.

What counts as what:

- A parameter is a value that training changes. A tied head adds none.
- A buffer is stored too, but no gradient reaches it: BatchNorm's mean and variance, and the
  correction that a router adds to its scores. Buffers are told apart from parameters.
- Active is what one token meets: of tables one row, of experts those that are used, and the whole
  head; a tied head is the embedding's table, which then counts whole, once.
- Operations: two for each weight of each matrix that a row is multiplied with, and two for each
  channel of each score and of each weighted value. Norms, RoPE, softmax, activations, biases and
  sums are left out: they are below 1 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from glassgear.model.gears import (
    FFN,
    Affine,
    Attention,
    BatchNorm,
    Embed,
    Experts,
    GatedFFN,
    Gear,
    Head,
    LatentAttention,
    LayerNorm,
    LearnedPositions,
    Linear,
    Model,
    Neighbours,
    Pooler,
    RMSNorm,
    Router,
    ScaleNorm,
    Shape,
    TokenTypes,
    Transform,
    walk,
)

__all__ = ["BUFFERS", "PURPOSES", "Count", "Counts", "Ledger", "Reach", "Row", "ledger", "purposes"]

BUFFERS: Mapping[type[Gear], frozenset[str]] = {
    BatchNorm: frozenset({"mean", "variance"}),
    Router: frozenset({"correction"}),
}
"""Tensors that no gradient reaches."""

ROWS_OF_TABLES = Embed | LearnedPositions | TokenTypes  # gears of which a token meets one row


@dataclass(frozen=True)
class Row:
    """One stored tensor.

    Attributes:
        path: its path.
        gear: what holds it.
        shape: row-major.
        parameters: its values, or 0 if it is a buffer.
        buffers: its values if it is a buffer, else 0.
        type: how it is stored.
        nbytes: its bytes as stored.
    """

    path: str
    gear: str
    shape: Shape
    parameters: int
    buffers: int
    type: str
    nbytes: int


@dataclass(frozen=True)
class Reach:
    """What it costs an attention gear that a token sees others.

    Attributes:
        window: tokens seen at most; 0: all.
        causal: whether only earlier ones are seen.
        prompt: operations for each token seen, where many new tokens are run together.
        decode: the same where a few are: latent attention then works on the latents themselves.
        cached: values that a token leaves in the cache; 0 where texts can't be continued.
    """

    window: int
    causal: bool
    prompt: int
    decode: int
    cached: int

    def seen(self, position: int) -> int:
        """Tokens that the one at `position` sees, itself included."""
        return min(position + 1, self.window) if self.window else position + 1

    def seen_in_all(self, tokens: int) -> int:
        """The sum of `seen` over a text of so many tokens."""
        if not self.causal:
            return tokens * tokens
        ramp = min(tokens, self.window) if self.window else tokens
        return ramp * (ramp + 1) // 2 + (tokens - ramp) * self.window


@dataclass(frozen=True)
class Count:
    """What a gear and everything below it hold and cost.

    Attributes:
        parameters: trained values.
        buffers: other stored values.
        active: parameters that one token meets.
        flops: operations of one row with the matrices that it meets.
        reaches: attention gears by what they cost.
        shapes: how often a tensor of this shape occurs; True: a matrix that may be quantised.
    """

    parameters: int = 0
    buffers: int = 0
    active: int = 0
    flops: int = 0
    reaches: Mapping[Reach, int] = field(default_factory=dict)
    shapes: Mapping[tuple[Shape, bool], int] = field(default_factory=dict)

    @property
    def values(self) -> int:
        """All stored values."""
        return self.parameters + self.buffers


class Counts:
    """Counts gears, each distinct object once. It must not outlive the tree."""

    def __init__(self) -> None:
        self._known: dict[int, Count] = {}

    def of(self, gear: Gear) -> Count:
        """What `gear` and its parts come to."""
        found = self._known.get(id(gear))
        if found is None:
            found = self._known[id(gear)] = self._sum(gear)
        return found

    def _sum(self, gear: Gear) -> Count:
        own = _own(gear)
        parameters, buffers, active, flops = own.parameters, own.buffers, own.active, own.flops
        reaches, shapes = Counter(own.reaches), Counter(own.shapes)
        for part, held, used in _parts(gear):
            count = self.of(part)
            parameters += held * count.parameters
            buffers += held * count.buffers
            active += used * count.active
            flops += used * count.flops
            for reach, times in count.reaches.items():
                reaches[reach] += held * times
            for shape, times in count.shapes.items():
                shapes[shape] += held * times
        return Count(parameters, buffers, active, flops, reaches, shapes)


def _parts(gear: Gear) -> Iterator[tuple[Gear, int, int]]:
    """The distinct parts of a gear: how many there are of each, and how many of these a token meets."""
    if isinstance(gear, Experts):
        yield gear.router, 1, 1
        yield gear.expert, gear.router.count, gear.router.used
        if gear.shared is not None:
            yield gear.shared, 1, 1
        return
    objects = {id(part): part for part in gear.parts.values()}
    for key, times in Counter(map(id, gear.parts.values())).items():
        yield objects[key], times, times


def _own(gear: Gear) -> Count:
    """What a gear holds and costs without its parts."""
    apart = BUFFERS.get(type(gear), frozenset())
    tensors = gear.tensors
    buffers = sum(prod(shape) for name, shape in tensors.items() if name in apart)
    parameters = sum(map(prod, tensors.values())) - buffers
    active, flops, reaches = parameters, 0, {}
    if isinstance(gear, Linear):
        flops = 2 * gear.inputs * gear.outputs
    elif isinstance(gear, Router):
        flops = 2 * gear.dim * gear.count
    elif isinstance(gear, Head):
        flops = 2 * gear.dim * gear.vocab
        active += gear.vocab * (gear.dim - gear.extra) if gear.tied else 0
    elif isinstance(gear, ROWS_OF_TABLES):
        active = gear.dim
    elif isinstance(gear, Attention | LatentAttention):
        reaches = {_reach(gear): 1}
    # Converters leave routers and small tables in float32, as they do all vectors.
    may_shrink = not isinstance(gear, Router | LearnedPositions | TokenTypes)
    shapes = Counter((shape, len(shape) == 2 and may_shrink) for shape in tensors.values())
    return Count(parameters, buffers, active, flops, reaches, shapes)


def _reach(gear: Attention | LatentAttention) -> Reach:
    if isinstance(gear, Attention):
        flops = 4 * gear.heads * gear.head_dim
        cached = 2 * gear.kv_heads * gear.head_dim if gear.causal else 0
        return Reach(gear.window, gear.causal, flops, flops, cached)
    # Expanded: scores over head_dim, sums of value_dim. Absorbed: both over the latent, and carrying
    # queries there and values back costs exactly what kv_up costs a token, which `flops` has already.
    expanded = 2 * gear.heads * (gear.head_dim + gear.value_dim)
    absorbed = 2 * gear.heads * (gear.cache_dim + gear.kv_rank)
    return Reach(0, True, expanded, absorbed, gear.cache_dim)


PURPOSES: Mapping[str, tuple[type[Gear], ...]] = {
    "embedding": (Embed, LearnedPositions, TokenTypes, Neighbours),
    "attention": (Attention, LatentAttention),
    "ffn": (FFN, GatedFFN, Experts),
    "norms": (RMSNorm, LayerNorm, ScaleNorm, BatchNorm, Affine),
    "head": (Head, Transform, Pooler),
    "bottleneck": (Linear,),  # what narrows and widens the stream around sublayers
}
"""What parameters are for: purpose -> the gears that have it, with all that is in them."""


def purposes(gear: Gear) -> dict[str, int]:
    """Parameters of a gear by what they are for, in the order of `PURPOSES`, where it has any."""
    found: Counter[str] = Counter()
    counts = Counts()

    def add(gear: Gear, times: int) -> None:
        purpose = next((name for name, kinds in PURPOSES.items() if isinstance(gear, kinds)), None)
        if purpose is not None:
            found[purpose] += times * counts.of(gear).parameters
            return
        for part, held, _ in _parts(gear):
            add(part, times * held)

    add(gear, 1)
    return {name: found[name] for name in PURPOSES if found[name]}


@dataclass(frozen=True)
class Ledger:
    """The totals of a model.

    Attributes:
        model: the tree.
        count: of all of it, `active` as the module's docstring says.
        body_flops: operations of one row up to the final norm, attention's reach left out.
        head_flops: of one row from there to its logits.
        pooler_flops: of one text.
        stored: path -> (type, bytes) of a checkpoint's tensors, or None.
        type_name: the type of all tensors where none are stored.
        bits: of a value then.
        cache_bytes: bytes of a value in the KV cache.
    """

    model: Model
    count: Count
    body_flops: int
    head_flops: int
    pooler_flops: int
    stored: Mapping[str, tuple[str, int]] | None
    type_name: str
    bits: float
    cache_bytes: int

    @property
    def parameters(self) -> int:
        """Trained values in unique tensors: a tied head adds none."""
        return self.count.parameters

    @property
    def buffers(self) -> int:
        """Stored values that no gradient reaches."""
        return self.count.buffers

    @property
    def active(self) -> int:
        """Parameters that one token meets."""
        return self.count.active

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all tensors as stored."""
        if self.stored is not None:
            return sum(nbytes for _, nbytes in self.stored.values())
        return int(self.count.values * self.bits / 8)

    @property
    def matrix_flops(self) -> int:
        """Operations of one row with every matrix that it meets, the head included."""
        return self.body_flops + self.head_flops

    @property
    def cache_values(self) -> int:
        """Float values that one token adds to the KV cache; of latent attention the latents."""
        return sum(reach.cached * times for reach, times in self.count.reaches.items())

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token adds to the KV cache."""
        return self.cache_values * self.cache_bytes

    @property
    def attention_flops_per_position(self) -> int:
        """Operations for each token that a new one sees, windows aside."""
        return sum(reach.decode * times for reach, times in self.count.reaches.items())

    def flops_per_token(self, position: int = 0) -> int:
        """Floating-point operations for one more token, which follows `position` earlier ones."""
        reaches = self.count.reaches.items()
        return self.matrix_flops + sum(r.seen(position) * r.decode * times for r, times in reaches)

    def prompt_flops(self, tokens: int) -> int:
        """Operations to read a text of so many tokens at once.

        A model that continues texts makes logits for the last token alone. One whose tokens see
        each other makes them for all, and pools once.
        """
        reaches = self.count.reaches.items()
        seeing = sum(r.seen_in_all(tokens) * r.prompt * times for r, times in reaches)
        ends = self.head_flops if self.model.causal else tokens * self.head_flops + self.pooler_flops
        return tokens * self.body_flops + seeing + ends

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every stored tensor, in the order in which a token meets them."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[Row]:
        for path, gear in walk(self.model):
            apart = BUFFERS.get(type(gear), frozenset())
            for name, shape in gear.tensors.items():
                full = f"{path}.{name}"
                values = prod(shape)
                usual = self.type_name, int(values * self.bits / 8)
                kind, nbytes = usual if self.stored is None else self.stored[full]
                split = (0, values) if name in apart else (values, 0)
                yield Row(full, type(gear).__name__, shape, *split, kind, nbytes)


def ledger(
    model: Model,
    stored: Mapping[str, tuple[str, int]] | None = None,
    *,
    type_name: str = "F32",
    bits: float = 32,
    cache_bytes: int = 4,
) -> Ledger:
    """Count a model.

    Args:
        model: the tree.
        stored: path -> (type name, bytes) of a checkpoint's tensors; without it every
            tensor is taken as `type_name` of `bits` bits a value.
        type_name: see `stored`.
        bits: see `stored`.
        cache_bytes: bytes of one value in the KV cache.
    """
    counts = Counts()
    whole = counts.of(model)
    head = sum(counts.of(part).flops for part in (model.transform, model.head) if part is not None)
    pooler = counts.of(model.pooler).flops if model.pooler is not None else 0
    if model.head is not None and model.head.tied:  # the row of the embedding is in the head's table
        fields = {**vars(whole), "active": whole.active - counts.of(model.embed).active}
        whole = Count(**fields)
    return Ledger(
        model, whole, whole.flops - head - pooler, head, pooler, stored or None, type_name, bits, cache_bytes
    )

"""What explanations are made from: a trace, the weights, and how the backend computes.

`Desk` finds traced numbers by path, token and place, says which tokens went through the model
together, and knows the two kinds of arithmetic: the CPU backend's, followed bit by bit, and NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassgear.errors import SettingError
from glassgear.model.gears import Model
from glassgear.trace.changes import Zeroing
from glassgear.trace.explain.replaced import Replacing
from glassgear.trace.explain.terms import Input, Listed
from glassgear.trace.flow import PROBABILITY, SAMPLED, Flow, Node, Stream
from glassgear.trace.trace import Trace
from glassgear.weights.tensor import StoredTensor

__all__ = ["AT_ONCE", "SUM", "Cache", "Desk", "Row"]

Floats = NDArray[np.float32]
Cache = Literal["float32", "float16", "codes"]
AT_ONCE = 512  # tokens of a sequence in one pass of a backend
SUM = " + "  # between the paths of a sum that has no path of its own


@dataclass(frozen=True, eq=False)
class Row:
    """The value of one token that a gear reads.

    Attributes:
        path: its path, or the paths of a sum.
        token: the token.
        values: flat.
        shape: in which it was traced.
    """

    path: str
    token: int
    values: Floats
    shape: tuple[int, ...]

    def input(self, place: int, name: str) -> Input:
        """One of its numbers, by its place in the flat row."""
        index = tuple(int(i) for i in np.unravel_index(place, self.shape))
        return Input(self.path, self.token, index, float(self.values[place]), name)

    def inputs(self, places: Sequence[int], name: Callable[[int], str]) -> Listed[Input]:
        """Several of its numbers; `name` is given the place of each among these."""
        return Listed(len(places), lambda i: self.input(int(places[i]), name(i)))


@dataclass(eq=False)
class Desk:
    """Everything that is known about a run.

    Attributes:
        model: the tree.
        tensors: its weights.
        flow: where each value comes from.
        trace: what was recorded.
        cache: how the backend keeps keys and values.
        again: records more values of the same run; None: there is no way back to it.
        piece: what an id stands for; None without a tokenizer.
        zeroing: what the run sets to zero, or a function that replaces values; None: nothing is changed.
    """

    model: Model
    tensors: Mapping[str, StoredTensor]
    flow: Flow
    trace: Trace
    cache: Cache = "float32"
    again: Callable[[Sequence[str]], Trace] | None = None
    piece: Callable[[int], str] | None = None
    zeroing: Zeroing | Replacing | None = None
    _rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)

    @property
    def cpu(self) -> bool:
        """Whether the CPU backend's arithmetic is to be followed."""
        return self.trace.backend == "cpu"

    def changes(self, stream: Stream) -> bool:
        """Whether the run sets something of these values to zero, or replaces it."""
        return self.zeroing is not None and any(map(self.zeroing.changes, stream))

    # --- names ------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """The node of a path, or of a sum of several.

        Raises:
            SettingError: the model has no such value; the message names near ones.
        """
        if SUM in path:
            stream = tuple(path.split(SUM))
            return Node(path, "sum", self.model, self.model, {"x": stream}, {}, shown=False)
        if path not in self.flow:
            near = get_close_matches(path, list(self.flow), 3, 0.6)
            hint = f": did you mean {' or '.join(near)}?" if near else ", and none is spelled alike"
            raise SettingError(f"no value of this model is called {path!r}{hint}")
        return self.flow[path]

    def need(self, paths: Sequence[str]) -> None:
        """Make sure that these values are recorded.

        Raises:
            SettingError: they aren't, and can't be.
        """
        shown = [p for p in paths if self.flow[p].shown]
        missing = [p for p in shown if p not in self.trace and p not in self._asked]
        if not missing:
            return
        if self.again is not None:
            self._asked.update(missing)
            # Embeddings tell how many tokens there are, routers why an expert has no value.
            routers = {p.partition(".experts.")[0] + ".router" for p in missing if ".experts." in p}
            more = self.again([*missing, *sorted(routers), "embed"])
            self.trace = replace(more, recorded={**self.trace.recorded, **more.recorded})
            return
        absent = [p for p in missing if ".experts." not in p]  # no token may have chosen an expert
        if absent:
            raise SettingError(
                f"the trace doesn't hold {absent[0]}, from which this is computed: record it too "
                f"(select={absent[0]!r}, or everything)"
            )

    def text(self, token: int) -> str:
        """What a token stands for; empty without a tokenizer."""
        return self.trace.texts[token] if token < len(self.trace.texts) else ""

    def named(self, token: int) -> str:
        """`token 3 "the"`."""
        text = self.text(token)
        return f"token {token} {text!r}" if text else f"token {token}"

    # --- numbers ----------------------------------------------------------------------------

    def row(self, stream: Stream | str, token: int) -> Row:
        """What a gear reads of a token: one value, or the sum of several in their order.

        Raises:
            SettingError: there is no value for this token; the message says for which there is.
        """
        paths = tuple(stream.split(SUM)) if isinstance(stream, str) else stream
        key = (SUM.join(paths), token)
        if key not in self._rows:
            self.need(paths)
            values = [self._at(path, token) for path in paths]
            total = values[0]
            for more in values[1:]:
                total = total + more
            self._rows[key] = Row(key[0], token, total.reshape(-1), total.shape)
        return self._rows[key]

    def rows(self, stream: Stream, first: int, last: int) -> Floats:
        """What a gear reads of tokens `first` to `last`, flat: [tokens, width].

        Raises:
            SettingError: there is no value for one of them.
        """
        self.need(stream)
        total = self._between(stream[0], first, last)
        for path in stream[1:]:
            total = total + self._between(path, first, last)
        return total

    def heads(self, stream: Stream, token: int, width: int) -> Floats:
        """A row, head by head: [heads, width]."""
        return self.row(stream, token).values.reshape(-1, width)

    def _at(self, path: str, token: int) -> Floats:
        value = self.trace.get(path)
        if value is None or not (value.positions == token).any():
            raise SettingError(self._nothing(path, token))
        return value.at(token)

    def _between(self, path: str, first: int, last: int) -> Floats:
        value, asked = self.trace.get(path), np.arange(first, last + 1)
        have = np.zeros(0, np.int64) if value is None else value.positions
        missing = asked[~np.isin(asked, have)]
        if value is None or len(missing):
            raise SettingError(self._nothing(path, int(missing[0])))
        at = int(np.searchsorted(have, first))
        rows: Floats = value.array[at : at + len(asked)].reshape(len(asked), -1)
        return rows

    def _nothing(self, path: str, token: int) -> str:
        """Why a value has no number for a token."""
        value = self.trace.get(path)
        have = [] if value is None else [int(p) for p in value.positions]
        before, found, after = path.partition(".experts.")
        if found:
            number = after.split(".")[0]
            chosen = f"the router chose it for tokens {_listed(have)}" if have else "no token chose it"
            others = self.chosen(f"{before}.router", token)
            mine = f"; token {token} uses experts {_listed(others)}" if others else ""
            return f"{path} has no value for token {token}, which doesn't use expert {number}: {chosen}{mine}"
        if not have:
            return f"{path} has no value: a traced run doesn't compute it"
        return f"{path} has no value for token {token}: it was computed for tokens {_listed(have)}"

    def chosen(self, router: str, token: int) -> list[int]:
        """Numbers of the experts of a token, rising."""
        if router not in self.trace:
            self.need([router])
        return [int(i) for i in np.flatnonzero(self._at(router, token))]

    # --- tokens -----------------------------------------------------------------------------

    def span(self, token: int) -> tuple[int, int]:
        """Which tokens went through the model together with this one: from, up to without."""
        if token >= self.trace.prompt:
            return token, token + 1
        if not self.model.causal:
            return 0, self.trace.prompt
        start = token // AT_ONCE * AT_ONCE
        return start, min(start + AT_ONCE, self.trace.prompt)

    def seen(self, token: int, causal: bool, window: int) -> tuple[int, int]:
        """The first and the last token that a token sees."""
        last = token if causal else self.span(token)[1] - 1
        return (max(0, token + 1 - window) if window else 0), last

    # --- weights ----------------------------------------------------------------------------

    def vector(self, path: str) -> Floats:
        """A whole parameter tensor, float32."""
        return self.tensors[path].float32()

    def kept(self, values: Floats) -> Floats:
        """Keys or values as a cache of floats holds them; a latent is never kept as codes."""
        return values if self.cache == "float32" else values.astype(np.float16).astype(np.float32)

    def keeping(self, what: str, latent: bool = False) -> str:
        """`key in float16`: what a factor is called."""
        if self.cache == "float32":
            return what
        return f"{what} in int16" if self.cache == "codes" and not latent else f"{what} in float16"

    def about(self, path: str) -> str:
        """`blk.2.ffn_down.weight, Q4_1 [576, 1536]`."""
        tensor = self.tensors[path]
        return f"{tensor.name}, {tensor.type} {list(tensor.shape)}"

    # --- what was asked for -----------------------------------------------------------------

    def token(self, token: int) -> int:
        """A token's number, negative ones counted from the end.

        Raises:
            SettingError: there is no such token.
        """
        count = self.trace.tokens
        if not -count <= token < count:
            raise SettingError(f"there is no token {token}: the trace has tokens 0 to {count - 1}")
        return token % count

    def axes(self, node: Node, token: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Names of a value's axes without the token, and their sizes."""
        if node.kind == SAMPLED:
            return (), ()
        if node.kind in (PROBABILITY, "sum"):
            shape = self.row(node.reads["logits" if node.kind == PROBABILITY else "x"], token).shape
            return ("entry" if node.kind == PROBABILITY else "channel",), shape
        row = self.row(node.path, token)
        names = tuple(name for name in self.trace[node.path].axes if name != "token")
        if names[-1] == "seen":
            return names, (row.shape[0], self.span(token)[1])
        return names, row.shape


def _listed(numbers: Sequence[int]) -> str:
    """`0 to 8`, or `1, 4, 7`; long lists end with dots."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:12]))
    return shown + (", ..." if len(numbers) > 12 else "")

"""Foreign tensor names to gear paths.

In: a tree, the tensors of a file and its family's table. Out: a tensor for every parameter of the
tree, with its shape checked, or an error that names what is missing, left over or misshapen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike

from glassgear.errors import FormatError
from glassgear.model.families.base import HeadRows, Names, Place, Rows, Stacked, Transposed
from glassgear.model.gears import Model, Shape, tensors
from glassgear.weights.tensor import StoredTensor, head_rows

__all__ = ["NUMBER", "Placed", "match", "plain_name", "renamed", "stems", "without_prefix"]

WRAPPERS = ("_orig_mod.", "module.")  # what torch.compile, and DataParallel and DDP put before a name
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")
INCOMPLETE = "the file is incomplete, or isn't the model it says it is"
MOST_LOOKED_FOR = 20  # of the missing names, among all that belong nowhere
Placed = tuple[dict[str, StoredTensor], tuple[str, ...]]  # gear path -> tensor, and notices


def without_prefix(name: str, prefixes: Sequence[str]) -> str:
    """A name as tables spell it: without the first of `prefixes` that it has."""
    return next((name.removeprefix(p) for p in prefixes if name.startswith(p)), name)


def plain_name(name: str) -> str:
    """A name without what wrappers put before it, in whatever order and however often."""
    while (shorter := without_prefix(name, WRAPPERS)) != name:
        name = shorter
    return name


def renamed(
    path: str | PathLike[str],
    found: Mapping[str, StoredTensor],
    rename: Callable[[str], str] = plain_name,
) -> dict[str, StoredTensor]:
    """The tensors of a file by other names.

    Raises:
        FormatError: two of them get the same one.
    """
    out: dict[str, StoredTensor] = {}
    for name, tensor in found.items():
        if (short := rename(name)) in out:
            raise FormatError(path, f"holds `{out[short].name}` and `{tensor.name}`, which are one")
        out[short] = tensor
    return out


def match(
    path: str,
    model: Model,
    found: Mapping[str, StoredTensor],
    names: Names,
    *,
    skip: Callable[[str, Model], str | None] = lambda name, model: None,
    prefixes: Sequence[str] = (),
) -> Placed:
    """Give every parameter of `model` its tensor.

    Args:
        path: the file or folder, for messages.
        model: the tree.
        found: name, as the table spells it -> tensor.
        names: the table; see `families.base.Names`.
        skip: of a tensor that belongs nowhere: None if that is an error, else a notice or "".
        prefixes: what may have stood before the names, for messages.

    Raises:
        FormatError: a tensor is missing, has another shape, or belongs to nothing in the tree.
    """
    expected = tensors(model)
    placed: dict[str, StoredTensor] = {}
    strangers, notices = [], dict[str, None]()
    by_head: dict[str, dict[HeadRows, StoredTensor]] = {}
    for name, tensor in found.items():
        targets = _targets(name, names)
        if targets is not None and any(t.replace("*", "0") in expected for t in targets[1]):
            place, (ours, *_) = targets
            if isinstance(place, HeadRows):
                by_head.setdefault(ours, {})[place] = tensor
            else:
                _place(path, tensor, *targets, expected, placed)
        elif (notice := skip(name, model)) is None:
            strangers.append(tensor.name)
        elif notice:
            notices[notice] = None
    for ours, parts in by_head.items():
        _place(path, _of_heads(path, parts), ours, [ours], expected, placed)
    missing = [ours for ours in expected if ours not in placed]
    if missing:
        back = _backwards(names)
        theirs = [back(ours) for ours in missing]
        prefix = next((p for p in prefixes for t in found.values() if plain_name(t.name).startswith(p)), "")
        raise FormatError(
            path,
            f"lacks {_some([_prefixed(prefix, name) for name in theirs])}: "
            + (_odd_prefix(theirs, strangers, prefixes) or INCOMPLETE),
        )
    if strangers:
        raise FormatError(path, f"holds tensors that the model it describes doesn't have: {_some(strangers)}")
    for ours, shape in expected.items():
        if placed[ours].shape != shape:
            raise FormatError(
                path,
                f"tensor `{placed[ours].name}` is {_size(placed[ours].shape)}; "
                f"the model's sizes ask for {_size(shape)}",
            )
    return {ours: placed[ours] for ours in expected}, tuple(notices)


def _targets(name: str, names: Names) -> tuple[Place, list[str]] | None:
    """The rule for a name, and the gear paths it leads to; `*` where an axis numbers them."""
    numbers = NUMBER.findall(name)
    generic = NUMBER.sub("#", name)
    place, leaf = names.get(generic), ""
    if place is None:
        stem, _, leaf = generic.rpartition(".")
        place = names.get(stem + ".")
    return None if place is None else (place, [_filled(t, numbers) + leaf for t in stems(place)])


def stems(place: Place) -> Iterator[str]:
    """The gear paths of a rule, `#` for numbers, without the names of their tensors."""
    if isinstance(place, str):
        yield place
    elif isinstance(place, Rows):
        yield from place.targets
    else:
        yield from stems(place.target)


def _filled(target: str, numbers: Sequence[str]) -> str:
    """`blocks.#.ffn.up.` with the numbers of a name; a `#` too many, of a stacked axis, becomes `*`."""
    left = iter(numbers)
    return re.sub("#", lambda _: next(left, "*"), target)


def _place(
    path: str,
    tensor: StoredTensor,
    place: Place,
    targets: Sequence[str],
    expected: Mapping[str, Shape],
    placed: dict[str, StoredTensor],
) -> None:
    """Enter a stored tensor, or its parts, under the paths it leads to."""
    if isinstance(place, Stacked):
        many = _count(targets[0], expected)
        if not tensor.shape or tensor.shape[0] != many:
            raise FormatError(path, f"tensor `{tensor.name}` is {_size(tensor.shape)}, not {many} in a stack")
        for i in range(many):
            one = [target.replace("*", str(i)) for target in targets]
            _place(path, tensor.piece(i), place.target, one, expected, placed)
    elif isinstance(place, Transposed):
        turned = tensor.transposed() if len(tensor.shape) == 2 else tensor
        _place(path, turned, place.target, targets, expected, placed)
    elif isinstance(place, Rows):
        sizes = [expected[t][0] if t in expected else 0 for t in targets]
        if not tensor.shape or sum(sizes) != tensor.shape[0]:
            raise FormatError(
                path,
                f"tensor `{tensor.name}` is {_size(tensor.shape)}; the model's sizes ask for {sum(sizes)} "
                f"rows, {' + '.join(map(str, sizes))}",
            )
        first = 0
        for target, size in zip(targets, sizes, strict=True):
            placed[target] = tensor.part(first, size)
            first += size
    else:
        if targets[0] in placed:
            raise FormatError(path, f"holds `{placed[targets[0]].name}` and `{tensor.name}`, which are one")
        placed[targets[0]] = tensor


def _of_heads(path: str, parts: Mapping[HeadRows, StoredTensor]) -> StoredTensor:
    """The matrix that several tensors hold the rows of."""
    order = sorted(parts, key=lambda place: place.order)
    found = [parts[place] for place in order]
    names = " and ".join(f"`{tensor.name}`" for tensor in found)
    if [place.order for place in order] != list(range(order[0].count)):
        raise FormatError(
            path, f"holds {names}, but not all of the {order[0].count} tensors that go together"
        )
    if any(len(tensor.shape) != 3 for tensor in found):
        raise FormatError(path, f"should have one matrix for each head in {names}")
    joined = head_rows(found, [place.transposed for place in order])
    if joined is None:
        raise FormatError(path, f"{names} don't have the same heads and columns")
    return joined


def _count(target: str, expected: Mapping[str, Shape]) -> int:
    """How many tensors a starred path stands for."""
    many = 0
    while target.replace("*", str(many)) in expected:
        many += 1
    return many


def _backwards(names: Names) -> Callable[[str], str]:
    """From a gear path to the name that a file should have had."""
    back = {stem: theirs for theirs, place in names.items() for stem in stems(place)}

    def name(ours: str) -> str:
        numbers = NUMBER.findall(ours)
        generic = NUMBER.sub("#", ours)
        stem, _, leaf = generic.rpartition(".")
        theirs = back.get(generic) or (back[stem + "."] + leaf if stem + "." in back else ours)
        return _filled(theirs, numbers)

    return name


def _odd_prefix(missing: Sequence[str], strangers: Sequence[str], prefixes: Sequence[str]) -> str:
    """The end of a sentence about a prefix that nobody knows, where one hides what is missing."""
    for wanted in missing[:MOST_LOOKED_FOR]:
        for stranger in strangers:
            if stranger.endswith(f".{wanted}"):
                odd = plain_name(stranger).removesuffix(wanted)
                odd = odd.removesuffix(next((p for p in prefixes if odd.endswith(f".{p}")), ""))
                return f"its names begin with `{odd}`, as in `{stranger}`; take that prefix off"
    return ""


def _prefixed(prefix: str, name: str) -> str:
    return prefix + name if NUMBER.search(name) else name


def _size(shape: Shape) -> str:
    return " x ".join(map(str, shape)) if shape else "a single value"


def _some(items: list[str]) -> str:
    items = list(dict.fromkeys(items))
    shown = ", ".join(f"`{item}`" for item in items[:4])
    return shown + (f" and {len(items) - 4} more" if len(items) > 4 else "")

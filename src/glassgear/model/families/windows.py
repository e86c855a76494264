"""Which layers of a config have a sliding window, and how wide it is."""

from __future__ import annotations

from glassgear.errors import FormatError, UnsupportedError
from glassgear.model.settings import Settings

__all__ = ["sliding_layers", "windows"]

SLIDING, FULL = "sliding_attention", "full_attention"


def sliding_layers(s: Settings, layers: int) -> tuple[bool, ...] | None:
    """For each layer whether `layer_types` calls it sliding; None where the config has no such list."""
    kinds = s.words("layer_types")
    if kinds is None:
        return None
    if len(kinds) != layers:
        raise FormatError(
            s.path, f"`{s.prefix}layer_types` names {len(kinds)} layers, the model has {layers}"
        )
    if strange := [kind for kind in kinds if kind not in (SLIDING, FULL)]:
        raise UnsupportedError(
            s.path,
            f"`{s.prefix}layer_types` has {strange[0]!r:.60}; only {SLIDING!r} and {FULL!r} can be run",
        )
    return tuple(kind == SLIDING for kind in kinds)


def windows(s: Settings, sliding: tuple[bool, ...], width: int) -> tuple[int, ...]:
    """The window of each layer, the token itself included; 0 where a layer sees all tokens.

    Args:
        s: the config, for messages.
        sliding: for each layer whether it has one.
        width: how wide; 0 if the config gives none.
    """
    if any(sliding) and not width:
        raise FormatError(
            s.path, f"`{s.prefix}layer_types` asks for sliding attention, but no `sliding_window` is given"
        )
    return tuple(width if slides else 0 for slides in sliding)

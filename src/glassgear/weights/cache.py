"""Where fetched models are kept on this machine.

Out: the cache folder. Nothing here opens a model or the network.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder for everything that Glassgear fetches; it may not exist yet.

    `GLASSGEAR_CACHE` wins; else macOS `~/Library/Caches/glassgear`, Windows
    `%LOCALAPPDATA%\\glassgear`, and `$XDG_CACHE_HOME/glassgear` or `~/.cache/glassgear` elsewhere.
    """
    if chosen := environment.get("GLASSGEAR_CACHE"):
        return Path(chosen).expanduser().absolute()
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "glassgear"
    if platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "glassgear"
    xdg = environment.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification tells programs to ignore a relative value.
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "glassgear"

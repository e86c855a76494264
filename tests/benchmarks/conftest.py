"""The programs in `benchmarks/` are scripts: they and their workers import from their own folder."""

from __future__ import annotations

import sys

from tests.conftest import REPOSITORY

for folder in ("benchmarks", "benchmarks/workers"):
    sys.path.append(str(REPOSITORY / folder))

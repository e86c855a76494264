"""Fixtures for every test: where real data lies, and how property tests behave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent

# The tests run in as many processes as there are cores. Threads of BLAS on top of that wait for each
# other most of the time; set before NumPy or PyTorch is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# No deadlines: shared machines stall, and compiling kernels makes first calls slow.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Read before any test points the cache elsewhere.
_SMOLLM2 = os.environ.get("GLASSGEAR_SMOLLM2")
_CACHE = os.environ.get("GLASSGEAR_CACHE")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real inputs: `../shared` beside the repository, or `GLASSGEAR_SHARED`."""
    folder = Path(os.environ.get("GLASSGEAR_SHARED") or REPOSITORY.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no folder of shared test data at {folder}; GLASSGEAR_SHARED can name another")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a Q4_1 GGUF: `GLASSGEAR_SMOLLM2`, or what `glassgear pull` keeps."""
    if _SMOLLM2:
        path = Path(_SMOLLM2)
    else:
        from glassgear.weights.cache import cache_folder

        environment = dict(os.environ)
        environment.pop("GLASSGEAR_CACHE", None)
        if _CACHE:
            environment["GLASSGEAR_CACHE"] = _CACHE
        path = cache_folder(environment) / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.skip(f"SmolLM2 isn't at {path}: `glassgear pull smollm2-135m` fetches it (98 MB)")
    return path

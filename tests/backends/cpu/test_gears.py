"""Every gear on the CPU backend against the reference: values, names, and not a bit more or less."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk, Hook, Output
from glassgear.backends.cpu import CPU, features
from glassgear.backends.cpu.machine_code import machine_code
from glassgear.backends.cpu.warm_up import all_kernels
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.model.gears import Model

from . import random_models
from .random_models import NAMED, VOCAB, drawn, weights

DRAWN = 20
MODELS = [*NAMED, *(f"drawn {seed}" for seed in range(DRAWN))]
Seen = list[tuple[str, np.ndarray]]


def model(name: str) -> Model:
    return drawn(int(name.split()[1])) if name.startswith("drawn") else NAMED[name]


@lru_cache(maxsize=2)
def machines(name: str, threads: int = 2) -> tuple[CPU, Reference]:
    made = model(name)
    tensors = weights(made)
    return CPU(made, tensors, threads=threads), Reference(made, tensors)


def texts(lengths: tuple[int, ...], seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, count).tolist() for count in lengths]


def types_for(machine: CPU | Reference, ids: list[int]) -> list[int] | None:
    return None if machine.model.token_types is None else [i % 2 for i in ids]


def run(
    machine: CPU | Reference, lengths: tuple[int, ...], rows: Any = "all", hook: Hook | None = None,
    output: Output = "logits",
) -> list[np.ndarray]:  # fmt: skip
    tracks = [machine.open() for _ in lengths]
    chunks = [
        Chunk(track, ids, rows, types_for(machine, ids))
        for track, ids in zip(tracks, texts(lengths), strict=True)
    ]
    out = machine.step(chunks, hook, output)
    for track in tracks:
        machine.close(track)
    return out


def in_pieces(machine: CPU, count: int, pieces: Iterator[int] | list[int]) -> np.ndarray:
    track, (ids,), out, at = machine.open(), texts((count,)), [], 0
    types = types_for(machine, ids)
    for n in pieces:
        part = None if types is None else types[at : at + n]
        out.append(machine.step([Chunk(track, ids[at : at + n], "all", part)])[0])
        at += n
    machine.close(track)
    return np.concatenate(out)


def close(got: np.ndarray, want: np.ndarray, where: str = "", tolerance: float = 3e-5) -> None:
    assert got.shape == want.shape, where
    finite = np.abs(want[np.isfinite(want)])
    np.testing.assert_allclose(got, want, atol=tolerance * max(1.0, finite.max(initial=0)), err_msg=where)


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_the_reference(name: str) -> None:
    cpu, reference = machines(name)
    for lengths in ((1,), (150, 3, 1, 37)):
        for got, want in zip(run(cpu, lengths), run(reference, lengths), strict=True):
            close(got, want)


@pytest.mark.parametrize("name", MODELS)
def test_chunks_batches_and_threads_change_no_bit(name: str) -> None:
    cpu, _ = machines(name)
    alone = CPU(cpu.model, weights(cpu.model), threads=1)
    want = run(alone, (70,))[0]
    assert np.array_equal(run(cpu, (70,))[0], want)
    assert np.array_equal(run(cpu, (70, 5, 130))[0], want)
    if cpu.model.causal:
        for machine in (cpu, alone):
            for pieces in ([1] * 70, [5, 7, 58], [64, 2, 3, 1]):
                assert np.array_equal(in_pieces(machine, 70, pieces), want), pieces


def recorded(machine: CPU | Reference, output: Output) -> tuple[Seen, list[np.ndarray]]:
    seen: Seen = []
    rows = run(machine, (9, 2), "all", lambda path, value: seen.append((path, value.copy())), output)
    return seen, rows


def outputs(made: Model) -> list[Output]:
    found: list[Output] = ["hidden"]
    found += ["logits"] if made.head else []
    return [*found, "pooled"] if made.pooler else found


@pytest.mark.parametrize("name", MODELS)
def test_every_value_of_the_reference_is_seen_and_no_bit_is_changed(name: str) -> None:
    cpu, reference = machines(name)
    for output in outputs(cpu.model):
        (got, rows), (want, theirs) = recorded(cpu, output), recorded(reference, output)
        assert [path for path, _ in got] == [path for path, _ in want]
        for (path, mine), (_, other) in zip(got, want, strict=True):
            close(mine, other, path, 1e-4)
        for one, plain, other in zip(rows, run(cpu, (9, 2), output=output), theirs, strict=True):
            assert np.array_equal(one, plain)
            close(one, other)


CHANGED = (
    "gpt", "gemma", "olmo", "bert", "mobilebert", "experts with biases", "experts of sigmoids in groups",
    "latent in two steps", "drawn 3",
)  # fmt: skip


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_value_has_the_effect_it_has_in_the_reference(name: str) -> None:
    cpu, reference = machines(name, threads=1)
    seen = dict.fromkeys(path for path, _ in recorded(reference, "logits")[0])
    paths = [path for path in seen if not path.startswith("blocks.0.")]  # the others are built alike
    plain = run(reference, (9, 2))
    changed = 0
    for path in paths:

        def change(at: str, value: np.ndarray, path: str = path) -> np.ndarray | None:
            factors = np.linspace(0.5, 1.5, value.shape[-1], dtype=np.float32)
            return value * factors if at == path else None

        want = run(reference, (9, 2), hook=change)
        for mine, theirs in zip(run(cpu, (9, 2), hook=change), want, strict=True):
            close(mine, theirs, path, 1e-4)
        changed += not np.allclose(want[0], plain[0], atol=1e-5)
    # Some changes have none: all scores of a row, of a token that sees itself alone.
    assert changed > 0.8 * len(paths)


@pytest.mark.parametrize("name", ["bert", "mobilebert", "gpt", "drawn 1"])
def test_rows_that_are_asked_for(name: str) -> None:
    cpu, reference = machines(name)
    for output in outputs(cpu.model):
        for rows in ("first", "last", "all", "none"):
            got, want = (run(m, (7, 1, 30), rows, output=output) for m in (cpu, reference))
            for mine, theirs in zip(got, want, strict=True):
                close(mine, theirs)


def test_a_model_without_a_head_gives_hidden_states() -> None:
    made = random_models.whole(list(NAMED["gpt"].blocks), 64, head=None)
    tensors = weights(made)
    for got, want in zip(
        run(CPU(made, tensors), (9, 3), output="hidden"),
        run(Reference(made, tensors), (9, 3), output="hidden"), strict=True,
    ):  # fmt: skip
        close(got, want)
    with pytest.raises(SettingError, match="no head"):
        run(CPU(made, tensors), (9,))


def test_an_encoder_takes_texts_whole() -> None:
    cpu, reference = machines("bert")
    lengths = (400, 300, 512, 5)
    for got, want in zip(run(cpu, lengths, "last"), run(reference, lengths, "last"), strict=True):
        close(got, want)


def test_an_encoder_refuses_texts_longer_than_a_pass() -> None:
    made = random_models.whole(list(NAMED["bert"].blocks), 64)
    cpu = CPU(made, weights(made))
    with pytest.raises(SettingError, match=r"513 tokens.*at most 512"):
        cpu.step([Chunk(cpu.open(), [1] * 513)])


QUANTISED = {
    "experts": random_models.experts(
        random_models._router(dim=256, count=6, used=2), random_models.GatedFFN.build(256, 256),
        random_models.GatedFFN.build(256, 256),
    ),
    "experts without a norm before": random_models.experts(
        random_models._router(dim=256, count=6, used=2), random_models.GatedFFN.build(256, 256), normed=False
    ),
    "bert": random_models.bert(256),
    "gpt": random_models.gpt(256),
    "gemma": random_models.gemma(256),
    "latent": random_models.latent(256, rank=256, value=64, query_rank=256),
    "mobilebert": random_models.mobilebert(512, 256, 256),
}  # fmt: skip


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_K", "BF16"])
@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights(name: str, type_name: str) -> None:
    made = QUANTISED[name]
    tensors = weights(made, type_name=type_name)
    cpu = CPU(made, tensors, threads=2)
    # Rounded activations may tip the choice of an expert: the reference takes the one that was made.
    chosen: dict[str, np.ndarray] = {}
    seen = run(cpu, (40, 3), hook=lambda path, v: chosen.update({path: v}) if path[-6:] == "router" else None)
    got, want = (
        run(cpu, (40, 3))[0],
        run(Reference(made, tensors), (40, 3), hook=lambda p, v: chosen.get(p))[0],
    )
    assert np.array_equal(seen[0], got)
    assert np.corrcoef(got.reshape(-1), want.reshape(-1))[0, 1] > 0.99
    assert np.array_equal(run(CPU(made, tensors, threads=1), (40, 3))[0], got)
    if made.causal:
        assert np.array_equal(in_pieces(cpu, 40, [1] * 3 + [37]), run(cpu, (40,))[0])


def test_warming_up_covers_what_gears_need() -> None:
    for name in ("gpt", "gemma", "mobilebert", "experts with biases", "latent in two steps", "batch sum"):
        cpu, _ = machines(name)
        for output in outputs(cpu.model):
            recorded(cpu, output)
    target = features.target()
    used = {k for k in machine_code(target)._addresses if k[0] != "matmul"}
    assert used <= set(all_kernels(target.kernels))


def test_a_field_that_is_not_known_is_refused() -> None:
    from dataclasses import dataclass

    from glassgear.model.gears import GatedFFN, Residual, RMSNorm

    @dataclass(frozen=True)
    class Other(GatedFFN):
        pass

    made = random_models.whole(
        [random_models.Block((Residual(RMSNorm(64, 1e-5), Other(*vars(GatedFFN.build(64, 64)).values())),))],
        64,
    )
    with pytest.raises(SettingError, match=r"doesn't know Other \(blocks.0.ffn\)"):
        CPU(made, weights(made))

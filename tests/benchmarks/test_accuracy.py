"""Accuracy: the divergence itself, and a run of the reference against itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.models import llama2c_file, llama2c_tokenizer


def test_the_divergence_of_two_distributions_worked_by_hand() -> None:
    from accuracy import divergence

    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    kl, same = divergence(np.log(p)[None].astype(np.float32) + 7, np.log(q)[None].astype(np.float32) - 3)
    assert kl == pytest.approx([0.5 * np.log(2) + 0.25 * np.log(0.5)], abs=1e-6)
    assert same.tolist() == [False]


def test_it_equals_pytorchs_over_many_positions_and_extreme_logits() -> None:
    import torch
    from accuracy import divergence

    rng = np.random.default_rng(0)
    a, b = (rng.normal(0, 30, (150, 40)).astype(np.float32) for _ in range(2))
    expected = torch.nn.functional.kl_div(
        torch.from_numpy(b).double().log_softmax(1), torch.from_numpy(a).double().log_softmax(1),
        log_target=True, reduction="none",
    ).sum(1)  # fmt: skip
    kl, same = divergence(a, b)
    np.testing.assert_allclose(kl, expected.numpy(), rtol=1e-9)
    assert same.mean() == pytest.approx((a.argmax(1) == b.argmax(1)).mean())


def test_the_summary_says_how_sure_the_mean_is() -> None:
    from accuracy import summary

    found = summary(np.array([1.0, 3.0, 1.0, 3.0]), np.array([True, True, True, False]))
    assert (found["mean_kl"], found["standard_error"], found["most_kl"]) == (2.0, 0.5, 3.0)
    assert found["top1_agreement"] == 0.75


def test_the_texts_are_long_enough_and_of_three_kinds(smollm2: Path) -> None:
    from accuracy import TEXTS

    import glassgear

    tokenizer = glassgear.load_tokenizer(smollm2)
    counts = {
        path.stem: len(tokenizer.encode(path.read_text(encoding="utf-8"))) for path in TEXTS.glob("*.txt")
    }
    assert set(counts) == {"english", "chinese", "code"}
    assert min(counts.values()) > 150 and sum(counts.values()) >= 500


def test_the_reference_does_not_stray_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import accuracy

    llama2c_file(tmp_path / "small.bin")
    llama2c_tokenizer(tmp_path / "tokenizer.bin")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("the hen ate the hat")
    (tmp_path / "texts" / "two.txt").write_text("a bee")
    given = [str(tmp_path / "small.bin"), "--backend", "reference", "--threads", "1", "--chunk", "1"]
    accuracy.main([*given, "--texts", str(tmp_path / "texts")])
    report = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    found = report["results"]["glassgear reference"]
    assert set(found) == {"one", "two", "all"}
    assert found["all"]["positions"] == found["one"]["positions"] + found["two"]["positions"]
    assert abs(found["all"]["mean_kl"]) < 1e-8
    assert found["all"]["top1_agreement"] == 1.0

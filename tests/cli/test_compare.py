"""`glassgear compare`: the choices of models side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Call

SIX = ("llama-2-7b", "llama-3-8b", "qwen2.5-7b", "glm-4-9b", "mistral-7b", "deepseek-v3")


def columns(text: str, count: int) -> dict[str, list[str]]:
    """The cells of a table's rows by the row's title; columns begin where their names do."""
    lines = text.splitlines()
    starts = [lines[0].index(name) for name in lines[0].split()]
    assert len(starts) == count
    rows = {}
    for line in lines[1:]:
        if not line:
            break
        ends = [*starts[1:], len(line)]
        cells = [line[a:b].strip() for a, b in zip(starts, ends, strict=True)]
        rows[line[: starts[0]].strip()] = cells
    return rows


def test_the_widths_of_networks_of_six_models(call: Call) -> None:
    result = call("compare", *SIX)
    assert (result.exit_code, result.stderr) == (0, "")
    rows = columns(result.stdout, 6)
    assert rows["width"] == ["4,096", "4,096", "3,584", "4,096", "4,096", "7,168"]
    assert rows["FFN width"] == [
        "11,008", "14,336", "18,944", "13,696", "14,336", "18,432 (\u00d73), 2,048 an expert (\u00d758)",
    ]  # fmt: skip
    assert rows["multiple"][:5] == ["2.69\u00d7", "3.50\u00d7", "5.29\u00d7", "3.34\u00d7", "3.50\u00d7"]
    assert rows["activation"] == ["SwiGLU"] * 6
    assert rows["experts"] == [""] * 5 + ["none (\u00d73), 8 of 256 + 1 shared (\u00d758)"]
    assert rows["attention"] == [
        "MHA, 32 heads", "GQA, 32 heads on 8", "GQA, 28 heads on 4", "GQA, 32 heads on 2",
        "GQA, 32 heads on 8", "MLA, 128 heads",
    ]  # fmt: skip
    assert rows["placed"] == ["pre-norm"] * 6 and rows["norm"] == ["RMSNorm"] * 6
    assert rows["parameters"][1] == "8,030,261,248" and rows["FFN : attention"][1] == "4.2\u00d7"
    assert "glm-4-9b: an FFN width of 14,336 \u2192 13,696" in result.stdout


def test_encoders_windows_and_places_of_norms(call: Call) -> None:
    rows = columns(call("compare", "bert-base", "gemma-3-1b", "mobilebert").stdout, 3)
    assert rows["placed"] == ["post-norm", "sandwich", "post-norm"]
    assert rows["norm"] == ["LayerNorm", "RMSNorm", "Affine"]
    assert rows["a token sees"] == ["all", "the last 512 (\u00d722), all before it (\u00d74)", "all"]
    assert rows["FFN width"] == ["3,072", "6,912", "512 \u00d7 4"]
    assert rows["positions"] == [
        "learned", "RoPE \u03b8 10,000 (\u00d722), RoPE \u03b8 1,000,000 (\u00d74)", "learned",
    ]  # fmt: skip
    assert rows["head"] == ["none", "tied", "none"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-3-8b", {
            "count": 32, "norm": "RMSNorm", "placed": "pre-norm",
            "ffn": {"width": 14336, "multiple": 3.5, "gated": True, "activation": "silu", "experts": None},
            "attention": {"kind": "GQA", "heads": 32, "kv_heads": 8, "head_dim": 128, "latent": None,
                          "causal": True, "window": 0, "rope_theta": 500000.0},
        }),
        ("bert-base", {
            "count": 12, "norm": "LayerNorm", "placed": "post-norm",
            "ffn": {"width": 3072, "multiple": 4.0, "gated": False, "activation": "gelu", "experts": None},
            "attention": {"kind": "MHA", "heads": 12, "kv_heads": 12, "head_dim": 64, "latent": None,
                          "causal": False, "window": 0, "rope_theta": None},
        }),
    ],
)  # fmt: skip
def test_json_for_programs(call: Call, name: str, expected: dict[str, Any]) -> None:
    (found,) = json.loads(call("compare", name, "--json").stdout)["models"]
    assert found["name"] == name and found["layers"] == [expected]


def test_experts_in_json(call: Call) -> None:
    (found,) = json.loads(call("compare", "deepseek-v3", "--json").stdout)["models"]
    assert [layer["ffn"]["experts"] for layer in found["layers"]] == [
        None, {"count": 256, "used": 8, "shared": True},
    ]  # fmt: skip
    assert found["active"] == 36_625_610_752 and found["layers"][0]["attention"]["latent"] == 512


def test_a_design_beside_a_published_config(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        'dim = 64\nvocab = 100\nlayers = 2\nsteps = ["ffn"]\nresidual = false\npositions = "none"\n',
        encoding="utf-8",
    )
    rows = columns(call("compare", path, "gpt2").stdout, 2)
    assert rows["placed"][0] == "pre-norm, no residual" and rows["attention"] == ["", "MHA, 12 heads"]
    assert rows["positions"] == ["none", "learned"]


def test_columns_that_don_t_fit_go_below(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = call("compare", *SIX).stdout
    heads = [line.split() for line in out.splitlines() if set(line.split()) & set(SIX)]
    assert len(heads) > 1 and [name for line in heads for name in line] == list(SIX)
    assert max(map(len, out.splitlines())) <= 80


def test_a_model_that_isn_t_there(call: Call) -> None:
    result = call("compare", "llama-2-7b", "lama-2-7b")
    assert result.exit_code == 1 and "published config called llama-2-7b" in result.stderr
    assert call("compare").exit_code == 2

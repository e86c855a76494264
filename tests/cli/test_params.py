"""`glassgear params`: the table, the story, the picture, what a program gets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

from glassgear.model import presets
from glassgear.model.ledger import ledger
from tests.cli.conftest import Call
from tests.cli.terminal import Terminal


def rows_of(text: str) -> dict[str, list[str]]:
    """The lines of a tree by the name of the gear; of names that occur twice the first."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.replace("\u2502", " ").split()
        if words and words[0] in ("\u251c\u2500", "\u2514\u2500"):
            found.setdefault(words[1], words[2:])
    return found


def facts_of(text: str) -> dict[str, str]:
    """The lines below the tree; one without a name goes on."""
    found: dict[str, str] = {}
    name = ""
    for line in text.rpartition("\n\n")[2].splitlines():
        name = line[:14].strip() or name
        found[name] = f"{found.get(name, '')} {line[15:].strip()}".strip()
    return found


def test_a_row_a_gear_with_shape_parameters_and_share(call: Call) -> None:
    result = call("params", "llama-3-8b")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "published config of meta-llama/Meta-Llama-3-8B" in result.stdout.splitlines()[0]
    rows = rows_of(result.stdout)
    assert rows["embed"] == ["Embed", "[128256,", "4096]", "525,336,576", "525,336,576", "6.54%"]
    assert rows["key"] == ["Linear", "[1024,", "4096]", "4,194,304", "134,217,728", "1.67%"]
    assert rows["blocks.0-31"] == [
        "(\u00d732)",
        "Block",
        "pre-norm",
        "218,112,000",
        "6,979,584,000",
        "86.92%",
    ]
    assert "rope" not in rows  # it holds nothing


def test_totals_a_layer_s_split_weights_cache_and_work(call: Call) -> None:
    facts = facts_of(call("params", "llama-3-8b").stdout)
    assert facts["parameters"] == "8,030,261,248 (8.0 G)"
    assert facts["a layer"] == (
        "218,112,000, 32 of them: attention 41,943,040, ffn 176,160,768, norms 8,192 "
        "(ffn 4.2 times attention)"
    )
    assert facts["weights"].startswith("32.1 GB in f32, 16.1 GB in f16 or bf16, 8.5 GB in q8_0")
    assert facts["KV cache"] == "131.1 MB in f16, 262.1 MB in f32 for 1,000 tokens (65,536 values a token)"
    assert facts["work"] == "14.2 GFLOP a token in a prompt of 1,000, 15.5 GFLOP for the next one"


def test_active_parameters_and_buffers_are_explained(call: Call) -> None:
    facts = facts_of(call("params", "deepseek-v3").stdout)
    assert facts["buffers"].startswith(
        "14,848 more values that no gradient changes (the routers' corrections)"
    )
    assert facts["buffers"].endswith("671,026,419,200 values in all")
    assert facts["active"] == (
        "36,625,610,752 (36.6 G) a token: 8 of 256 experts and the shared one, one row of the embedding, and "
        "the whole head"
    )


def test_an_encoder_needs_no_cache(call: Call) -> None:
    facts = facts_of(call("params", "bert-base", "--tokens", 100).stdout)
    assert facts["KV cache"].startswith("none is needed") and "in a text of 100" in facts["work"]


def test_a_file_is_counted_as_it_is_stored(call: Call, smollm2: Path) -> None:
    found = json.loads(call("params", smollm2, "--json").stdout)
    assert found["parameters"] == 134_515_008
    assert found["weights"]["stored"] == json.loads(call("show", smollm2, "--json").stdout)["bytes"]
    assert "as stored" in facts_of(call("params", smollm2).stdout)["weights"]


def test_json_for_programs(call: Call) -> None:
    found = json.loads(call("params", "deepseek-v3", "--json", "--tokens", 10).stdout)
    assert (found["parameters"], found["buffers"], found["values"]) == (
        671_026_404_352, 14_848, 671_026_419_200,
    )  # fmt: skip
    assert found["kv_cache"] == {"tokens": 10, "f16": 10 * 2 * 35_136, "f32": 10 * 4 * 35_136}
    assert [layer["count"] for layer in found["layers"]] == [3, 58]
    assert sum(found["purposes"].values()) == found["parameters"]
    held = sum(row["times"] * sum(_size(shape) for shape in row["shapes"].values()) for row in found["gears"])
    assert held == found["values"]
    counted = ledger(presets.model("deepseek-v3"))
    assert found["flops"]["decode_per_token"] == counted.flops_per_token(10)
    assert found["flops"]["prompt_per_token"] == counted.prompt_flops(10) / 10


def _size(shape: list[int]) -> int:
    size = 1
    for axis in shape:
        size *= axis
    return size


def test_sizes_by_type_are_those_of_files(call: Call) -> None:
    """Blocks of 32 values: 34 bytes in Q8_0, 18 in Q4_0; of 256: 144 in Q4_K, 210 in Q6_K."""
    found = json.loads(call("params", "llama-3-8b", "--json").stdout)["weights"]
    vectors = 65 * 4096
    matrices = 8_030_261_248 - vectors
    assert found["f32"] == 4 * 8_030_261_248 and found["bf16"] == found["f16"] == 2 * 8_030_261_248
    for kind, block, size in (("q8_0", 32, 34), ("q4_0", 32, 18), ("q4_k", 256, 144), ("q6_k", 256, 210)):
        assert found[kind] == matrices // block * size + 4 * vectors


def test_rows_that_aren_t_whole_blocks_get_the_type_that_convert_gives_them(call: Call) -> None:
    """Rows of 172 values are no multiple of 32, rows of 64 none of 256: F16 and Q5_0 in place of Q4_K."""
    found = json.loads(call("params", "stories260k", "--json").stdout)["weights"]
    narrow = 512 * 64 + 5 * (2 * 64 * 64 + 2 * 32 * 64 + 2 * 172 * 64)  # rows of 64
    down, norms = 5 * 64 * 172, 11 * 64
    assert narrow + down + norms == 260_032
    assert found["q4_k"] == narrow // 32 * 22 + 2 * down + 4 * norms
    assert found["q8_0"] == narrow // 32 * 34 + 2 * down + 4 * norms


def test_without_a_model_the_published_configs_are_listed(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = call("params").stdout.splitlines()
    assert len(lines) == 1 + len(presets.PRESETS)
    assert lines[1].split()[:2] == ["llama-2-7b", "6,738,415,616"]
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, call("params").stdout.splitlines())) <= 80
    configs = json.loads(call("params", "--json").stdout)["configs"]
    assert {one["name"] for one in configs} == set(presets.PRESETS)


# --------------------------------------------------------------------------------------------
# The story


def test_the_story_of_llama_3_8b_from_one_parameter_to_all(call: Call) -> None:
    out = call("params", "llama-3-8b", "--story").stdout
    figures = [line[:18].strip() for line in out.splitlines()]
    told = [figure for figure in figures if figure and figure[-1].isdigit()]
    in_order = [
        "1", "4,096", "+ 525,336,576", "16,777,216", "4,194,304", "4,194,304", "16,777,216", "= 41,943,040",
        "58,720,256", "58,720,256", "58,720,256", "= 176,160,768", "8,192", "= 218,112,000",
        "+ 6,979,584,000", "+ 4,096", "+ 525,336,576", "= 8,030,261,248",
    ]  # fmt: skip
    assert told[: len(in_order)] == in_order
    assert "ffn 4.2 times attention" in out
    misread = out.partition("Often read, and what holds:")[2]
    for right in ("128,256 entries", "W_Q is 4096 x 4096", "8,192: RMSNorm", "4.2 times", "8,030,261,248"):
        assert right in misread


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_story_adds_up(call: Call, name: str) -> None:
    lines = call("params", name, "--story").stdout.splitlines()
    sums = [line for line in lines if line.endswith("so far")]
    total = 0
    for line in sums:
        total += int(line[:18].replace("+", "").replace(",", ""))
        assert line.split()[-3] == f"{total:,}"
    assert total == ledger(presets.model(name)).parameters


def test_a_story_of_a_design_has_no_misreadings(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("dim = 8\nvocab = 10\nlayers = 1\nattention.heads = 2\n", encoding="utf-8")
    out = call("params", path, "--story").stdout
    assert "Often read" not in out and "parameters in all" in out


# --------------------------------------------------------------------------------------------
# The picture


def test_the_picture_is_a_png(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib isn't installed")
    path = tmp_path / "out.png"
    result = call("params", "deepseek-v3", "--plot", path)
    assert result.exit_code == 0 and path.read_bytes().startswith(b"\x89PNG")
    assert f"drawn into {path}" in result.stderr and list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_it_is_said_what_to_install(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("params", "gpt2", "--plot", tmp_path / "out.png")
    assert result.exit_code == 1 and result.stdout == ""
    assert 'pip install "glassgear[plot]"' in result.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out.txt", "out"])
def test_a_picture_needs_a_name_that_says_its_kind(call: Call, tmp_path: Path, name: str) -> None:
    result = call("params", "gpt2", "--plot", tmp_path / name)
    assert result.exit_code == 1 and "should end in .pdf, .png, .svg" in result.stderr


def test_a_place_that_can_t_be_written_to(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib isn't installed")
    result = call("params", "gpt2", "--plot", tmp_path / "no" / "out.png")
    assert result.exit_code == 1 and "can't be written" in result.stderr


# --------------------------------------------------------------------------------------------
# Terminals


@pytest.mark.parametrize("arguments", [["params"], ["show"], ["params", "--story"]])
def test_at_forty_columns_what_gears_hold_is_shown(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = call(*arguments, "gpt2").stdout
    assert max(len(line) for line in out.splitlines()) <= 48 and "38,597,376" in out
    assert {"parameters", "positions:" if "--story" in arguments else "positions"} <= set(out.split())


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("arguments", [["params"], ["show"], ["params", "--story"], ["compare"]])
@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "mobilebert", "gemma-3-1b"])
def test_lines_fit_the_terminal(
    call: Call, monkeypatch: pytest.MonkeyPatch, width: int, arguments: list[str], name: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = call(*arguments, name).stdout
    assert max(len(line) for line in out.splitlines()) <= width


def test_colours_only_where_somebody_looks_on(call: Call) -> None:
    assert click.unstyle(call("params", "gpt2").stdout) == call("params", "gpt2").stdout
    with Terminal(["params", "gpt2"], {"COLUMNS": "100"}) as terminal:
        assert terminal.exit_code() == 0 and "\x1b[" in terminal.shown
    with Terminal(["params", "gpt2"], {"COLUMNS": "100", "NO_COLOR": "1"}) as terminal:
        assert terminal.exit_code() == 0 and "\x1b[" not in terminal.shown

"""`glassgear show`: the tree, its figures, what it says of the text side."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Call
from tests.cli.speaking import write_speaker
from tests.models import llama2c_file


def test_the_tree_with_shapes_parameters_and_types(call: Call, speaker: str) -> None:
    result = call("show", speaker)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["speaker.gguf", "·", "llama", "·", "gguf"]
    assert ["├─", "embed", "Embed", "[260,", "264]", "68,640", "274.6", "kB", "F32"] in lines
    assert ["├─", "blocks.0-1", "(×2)", "Block", "pre-norm", "215,952", "863.8", "kB"] in lines
    assert ["│", "│", "├─", "key", "Linear", "[132,", "264]", "34,848", "139.4", "kB", "F32"] in lines
    assert ["└─", "head", "Head", "[260,", "264]", "68,640", "274.6", "kB", "F32"] in lines


def test_the_columns_are_aligned(call: Call, speaker: str) -> None:
    tree = [line for line in call("show", speaker).stdout.splitlines() if line.endswith("F32")]
    assert len({len(line) for line in tree}) == 1


def test_totals_and_the_text_side(call: Call, speaker: str) -> None:
    facts = dict(
        line.split(maxsplit=1) for line in call("show", speaker).stdout.splitlines() if line[:1].isalpha()
    )
    assert facts["parameters"] == "569,448 (569.4 k)"
    assert facts["context"] == "512 tokens"
    assert facts["tokenizer"].startswith("bpe, 260 entries; starts a text with nothing; ends it at")
    assert facts["chat"] == "template  yes"
    assert facts["KV"].startswith("cache       2,112 bytes a token in f32")


def test_every_block_on_demand(call: Call, speaker: str) -> None:
    out = call("show", speaker, "--all").stdout
    assert "blocks.0 " in out and "blocks.1 " in out and "(×" not in out


def test_blocks_that_are_stored_differently_are_shown_apart(call: Call, smollm2: Path) -> None:
    out = call("show", smollm2).stdout
    assert "134,515,008 (134.5 M)" in out and "the embedding's table (tied)" in out
    assert "blocks.0-29 (×30)" in out


def test_json_lists_every_tensor(call: Call, speaker: str) -> None:
    found = json.loads(call("show", speaker, "--json").stdout)
    assert found["parameters"] == 569448 == sum(tensor["parameters"] for tensor in found["tensors"])
    assert found["bytes"] == 4 * 569448 == sum(tensor["bytes"] for tensor in found["tensors"])
    assert found["tensors"][0] == {
        "path": "embed.weight", "gear": "Embed", "shape": [260, 264], "parameters": 68640, "type": "F32",
        "bytes": 274560,
    }  # fmt: skip
    assert found["kv_bytes_per_token"] == 2 * 2 * 132 * 4
    assert found["tokenizer"]["chat_template"] is True and found["tokenizer"]["entries"] == 260


def test_a_model_without_a_tokenizer_is_shown_too(call: Call, tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin")
    result = call("show", tmp_path / "m.bin")
    assert result.exit_code == 0 and "tokenizer      none" in result.stdout
    assert json.loads(call("show", tmp_path / "m.bin", "--json").stdout)["tokenizer"] is None


def test_a_damaged_tokenizer_doesn_t_hide_the_model(call: Call, tmp_path: Path) -> None:
    llama2c_file(tmp_path / "m.bin")
    (tmp_path / "tokenizer.bin").write_bytes(b"\1\2\3")
    result = call("show", tmp_path / "m.bin")
    assert result.exit_code == 0 and "tokenizer      can't be read:" in result.stdout


def test_stories260k_has_260032_parameters(call: Call, shared: Path) -> None:
    found = json.loads(call("show", shared / "data" / "llama2c" / "stories260K.bin", "--json").stdout)
    assert found["parameters"] == 260032


def test_what_a_user_should_know_is_noted(call: Call, tmp_path: Path) -> None:
    write_speaker(tmp_path / "m.gguf", **{"tokenizer.ggml.pre": "nobody-knows"})
    for arguments in (["show"], ["tokenize", "a"], ["run", "a"]):
        result = call(arguments[0], tmp_path / "m.gguf", *arguments[1:])
        assert result.exit_code == 0 and "note:" in result.stderr and "nobody-knows" in result.stderr

"""`glassgear trace`: its tables, JSON, files, what is changed, and what is said of mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassgear
from glassgear.cli.trace_parts import Continued
from glassgear.trace import Trace
from tests.cli.conftest import Call
from tests.cli.test_ids import DECODER, ENCODER

RANDOM = ("--random", "--seed", 3)


@pytest.fixture
def decoder(tmp_path: Path) -> str:
    path = tmp_path / "decoder.toml"
    path.write_text(DECODER, encoding="utf-8")
    return str(path)


def load(path: str) -> glassgear.LanguageModel:
    return glassgear.load(path, random=True, seed=3)


def described(call: Call, *arguments: object) -> dict[str, Any]:
    result = call("trace", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


# --- figures ----------------------------------------------------------------------------------


def test_a_row_for_each_kind_of_gear(call: Call, speaker: str) -> None:
    result = call("trace", speaker, "Hi")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["value", "shape", "mean", "std", "min", "max", "norm", "zeros"]
    assert lines[1].split() == ["embed", "[2,", "264]", "0.00379", "0.0614", "0", "1", "1.41", "100%"]
    assert "in 2 blocks:" in result.stdout
    names = [line.split()[0] for line in lines[3:]]
    assert names[0] == "attention_norm" and "ffn.down" in names and names[-1] == "head"


def test_the_figures_are_those_of_the_values(call: Call, decoder: str) -> None:
    rows = {row["path"]: row for row in described(call, decoder, "1 2 3", *RANDOM)["values"]}
    trace = load(decoder).trace([1, 2, 3])
    both = np.concatenate([trace[f"blocks.{i}.ffn.gate"].array.ravel() for i in range(2)])
    found = rows["blocks.*.ffn.gate"]
    assert found["count"] == 2 and found["shape"] == [3, trace["blocks.0.ffn.gate"].array.shape[1]]
    for name, value in (
        ("mean", both.mean()), ("std", both.std()), ("min", both.min()), ("max", both.max()),
        ("norm", np.linalg.norm(both)), ("zeros", (both == 0).mean()),
    ):  # fmt: skip
        assert found[name] == pytest.approx(float(value), rel=1e-4, abs=1e-7), name


def test_a_row_for_each_path_and_a_selection(call: Call, decoder: str) -> None:
    rows = described(call, decoder, "1 2", *RANDOM, "--all", "--select", "*.down", "--select", "embed")
    assert [row["path"] for row in rows["values"]] == ["embed", "blocks.0.ffn.down", "blocks.1.ffn.down"]


def test_one_token_alone(call: Call, decoder: str) -> None:
    for token in (1, -2):
        (row,) = described(call, decoder, "1 2 3", *RANDOM, "--select", "embed", "--token", token)["values"]
        assert row["norm"] == pytest.approx(np.linalg.norm(load(decoder).trace([1, 2, 3])["embed"].at(1)))
    result = call("trace", decoder, "1 2 3", *RANDOM, "--token", 3)
    assert result.exit_code == 1 and "there is no token 3: tokens 0 to 2 were run" in result.stderr


def test_what_is_no_number_stands_out(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glassgear.trace.trace import Value

    array = np.array([[np.nan, np.inf, 1]], np.float32)
    value = Value("embed", ("token", "channel"), array, np.arange(1))
    Trace((5,), (), 1, "m", "cpu", "llama", {}, {"embed": value}).save(tmp_path / "bad.safetensors")
    told = call("trace", "--open", tmp_path / "bad.safetensors").stdout
    assert "1 NaN, 1 Inf" in told
    (row,) = described(call, "--open", tmp_path / "bad.safetensors")["values"]
    assert (row["nan"], row["inf"], row["mean"]) == (1, 1, 1)
    from glassgear.cli import trace_views

    monkeypatch.setattr(trace_views.console, "may_colour", lambda: None)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in call("trace", "--open", tmp_path / "bad.safetensors").stdout
    monkeypatch.undo()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in call("trace", "--open", tmp_path / "bad.safetensors").stdout


@pytest.mark.parametrize("view", [[], ["--all"], ["--growth"], ["--heads"], ["--lens"]])
def test_eighty_columns_are_enough(
    call: Call, decoder: str, view: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ids = " ".join(map(str, range(20)))
    lines = call("trace", decoder, ids, *RANDOM, "-n", 3, *view).stdout.splitlines()
    assert max(map(len, lines)) <= 80 and not any("\u2026" in line for line in lines)


# --- views ------------------------------------------------------------------------------------


def test_how_the_stream_grows(call: Call, decoder: str) -> None:
    found = described(call, decoder, "1 2 3", *RANDOM, "--growth")
    assert "values" not in found
    trace = load(decoder).trace([1, 2, 3])
    for number, row in enumerate(found["growth"]):
        assert row["path"] == f"blocks.{number}" and set(row["added"]) == {"attention", "ffn"}
        want = np.linalg.norm(trace[row["path"]].array, axis=1)
        np.testing.assert_allclose(row["stream"], want, rtol=1e-5)
        want = np.linalg.norm(trace[f"{row['path']}.ffn"].array, axis=1)
        np.testing.assert_allclose(row["added"]["ffn"], want, rtol=1e-5)
    told = call("trace", decoder, "1 2 3", *RANDOM, "--growth", "--token", 2).stdout
    assert "token 2" in told and "+ attention" in told and "\u2588" in told


def test_what_heads_look_at(call: Call, decoder: str) -> None:
    found = described(call, decoder, "1 2 3 4", *RANDOM, "--heads", "--top", 2, "--token", 2)["heads"]
    trace = load(decoder).trace([1, 2, 3, 4])
    assert found["token"] == 2
    for path, each in found["layers"].items():
        weights = trace[f"{path}.weights"].at(2)
        for head, looks in enumerate(each):
            want = np.argsort(-weights[head], kind="stable")[:2]
            assert [look["token"] for look in looks] == want.tolist()
            assert [look["weight"] for look in looks] == pytest.approx(weights[head][want].tolist())
    told = call("trace", decoder, "1 2 3 4", *RANDOM, "--heads").stdout
    assert "What token 3, 4, looks at" in told and "blocks.1.attention" in told


def test_what_each_layer_would_say(call: Call, speaker: str) -> None:
    found = described(call, speaker, "Hab", "--lens")["lens"]
    # Its blocks add nothing: every layer says what the head says of the embedding, "c".
    assert [layer["top"][0]["text"] for layer in found["layers"]] == ['"c"', '"c"']
    assert found["decided"] == "blocks.0" and [layer["rank"] for layer in found["layers"]] == [0, 0]
    assert len(found["layers"][0]["top"]) == 5 and found["computed_by"]
    told = call("trace", speaker, "Hab", "--lens").stdout
    assert 'blocks.0 decided: from it on, "c" is the likeliest.' in told


def test_the_last_layer_says_what_the_model_says(call: Call, decoder: str) -> None:
    found = described(call, decoder, "5 6 7", *RANDOM, "--lens")["lens"]
    logits = load(decoder).logits([5, 6, 7])[-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    last = found["layers"][-1]
    assert last["top"][0]["id"] == int(p.argmax()) and last["final"] == pytest.approx(p.max(), rel=1e-4)


# --- tokens and prompts -----------------------------------------------------------------------


def test_tokens_are_added_and_their_steps_recorded(call: Call, speaker: str) -> None:
    found = described(call, speaker, "Ha", "-n", 3, "--select", "head")
    assert found["prompt"] == 2 and found["tokens"] == 4
    assert bytes(found["ids"]) == b"Habcd"
    assert found["values"][0]["shape"][0] == 4


def test_a_message_goes_through_the_template(call: Call, speaker: str) -> None:
    found = described(call, speaker, "a", "--chat", "--system", "b", "--select", "embed")
    assert found["texts"][0] == "<|im_start|>" and "b" in found["texts"]
    assert call("trace", speaker, "a", "--system", "b").exit_code == 2


def test_the_prompt_comes_from_standard_input(call: Call, speaker: str) -> None:
    result = call("trace", speaker, "-", "--json", "--select", "embed", input="abc")
    assert bytes(json.loads(result.stdout)["ids"]) == b"abc"


def test_encoders_are_traced_but_not_continued(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "encoder.toml"
    path.write_text(ENCODER, encoding="utf-8")
    assert call("trace", path, "1 2 3", *RANDOM).exit_code == 0
    result = call("trace", path, "1 2 3", *RANDOM, "-n", 2)
    assert result.exit_code == 1 and "both directions" in result.stderr
    result = call("trace", path, "1 2 3", *RANDOM, "--lens")
    assert result.exit_code == 1 and "head" in result.stderr


# --- files ------------------------------------------------------------------------------------


def test_a_trace_is_saved_and_shown_again(call: Call, decoder: str, tmp_path: Path) -> None:
    file = tmp_path / "t.safetensors"
    first = call("trace", decoder, "1 2 3", *RANDOM, "-n", 2, "--save", file)
    assert first.exit_code == 0 and re.search(r"of 4 tokens in .*t\.safetensors \(.* kB\)", first.stderr)
    again = call("trace", "--open", file)
    assert again.stdout == first.stdout
    growth = call("trace", "--open", file, "--growth")
    assert growth.stdout == call("trace", decoder, "1 2 3", *RANDOM, "-n", 2, "--growth").stdout
    few = described(call, "--open", file, "--select", "*.down", "--all")
    assert [row["path"] for row in few["values"]] == ["blocks.0.ffn.down", "blocks.1.ffn.down"]
    lens = call("trace", decoder, *RANDOM, "--open", file, "--lens")
    assert lens.exit_code == 0 and "decided" in lens.stdout
    assert "name the MODEL" in call("trace", "--open", file, "--lens").stderr


def test_a_view_and_a_file_record_everything(call: Call, decoder: str, tmp_path: Path) -> None:
    file = tmp_path / "t.safetensors"
    assert call("trace", decoder, "1", *RANDOM, "--growth", "--save", file).exit_code == 0
    assert "blocks.0.attention.scores" in Trace.open(file)


@pytest.mark.parametrize("wrong", [["hi"], ["--zero", "embed"], ["-n", 2], ["--save", "x"], ["--chat"]])
def test_a_file_is_shown_and_nothing_run(call: Call, tmp_path: Path, wrong: list[object]) -> None:
    result = call("trace", "model", *wrong, "--open", tmp_path / "x.safetensors")
    assert result.exit_code == 2 and "--open shows what was saved" in result.stderr


def test_other_files_are_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing of the kind")
    result = call("trace", "--open", tmp_path / "x")
    assert result.exit_code == 1 and result.stderr.startswith("error: ") and "Traceback" not in result.stderr
    assert call("trace", "--open", tmp_path / "absent").exit_code == 1


# --- changes ----------------------------------------------------------------------------------


def test_a_zeroed_gear_and_what_it_does_to_the_next_token(call: Call, decoder: str) -> None:
    path = "blocks.1.ffn"
    found = described(call, decoder, "1 2 3", *RANDOM, "--zero", path)
    assert "values" not in found and found["zeroed"] == [path]
    model = load(decoder)

    def change(at: str, value: np.ndarray) -> np.ndarray | None:
        return np.zeros_like(value) if at == path else None

    rows = [model.trace([1, 2, 3], change=c)["head"].array[-1].astype(float) for c in (None, change)]
    p, q = (np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in rows)
    for side, one, other, mine, theirs in (("before", p, q, "probability", "after"),
                                           ("after", q, p, "probability", "before")):  # fmt: skip
        assert [row["id"] for row in found["next"][side]] == np.argsort(-one)[:5].tolist()
        for row in found["next"][side]:
            assert row[mine] == pytest.approx(one[row["id"]], rel=1e-4)
            assert row[theirs] == pytest.approx(other[row["id"]], rel=1e-4)
    assert found["next"]["divergence"] == pytest.approx((p * np.log(p / q)).sum(), rel=1e-3, abs=1e-6)
    told = call("trace", decoder, "1 2 3", *RANDOM, "--zero", path).stdout
    assert "as it is" in told and "changed" in told and "KL divergence" in told


def test_one_head_alone(call: Call, decoder: str) -> None:
    found = [
        described(call, decoder, "1 2 3", *RANDOM, *(w for one in zeros for w in ("--zero", one)))["next"]
        for zeros in (
            ["blocks.0.attention.mixed:1"], ["blocks.0.attention:1"],
            [f"blocks.0.attention:{head}" for head in range(4)], ["blocks.0.attention.mixed"],
        )
    ]  # fmt: skip
    assert found[0] == found[1] != found[2] and found[2] == found[3]


def test_a_view_shows_the_changed_run(call: Call, decoder: str) -> None:
    found = described(call, decoder, "1 2", *RANDOM, "--zero", "blocks.0.attention", "--growth")
    assert found["growth"][0]["added"]["attention"] == [0, 0] and "next" in found


def test_what_adds_nothing_changes_nothing(call: Call, speaker: str) -> None:
    told = call("trace", speaker, "Hab", "--zero", "blocks.0.ffn").stdout
    assert "The change is worth 0 nats" in told


def test_with_tokens_added_the_texts_are_compared(call: Call) -> None:
    given = ("tiny-stories", "Once upon a", "--zero", "blocks.3.attention", "--zero", "blocks.2", "-n", 8)
    found = described(call, *given)["continued"]
    model = glassgear.load("tiny-stories")
    prompt = model.encode("Once upon a")

    def change(at: str, value: np.ndarray) -> np.ndarray | None:
        return (
            np.zeros_like(value)
            if at in ("blocks.3.attention", "blocks.2.attention", "blocks.2.ffn")
            else None
        )

    texts = []
    for side, hook in (("before", None), ("after", change)):
        ids = list(prompt)
        for _ in range(8):  # from the definition: each the likeliest, all computed anew
            ids.append(int(model.trace(ids, select="head", change=hook)["head"].array[-1].argmax()))
        assert found[side]["ids"] == ids[len(prompt) :]
        texts.append(ids)
    parts = next(i for i, (a, b) in enumerate(zip(*texts, strict=True)) if a != b)
    assert found["parts_at"] == parts
    told = call("trace", *given).stdout
    assert "The first token after the prompt, with" in told
    assert f"They part at token {parts - len(prompt) + 1} after the prompt." in told
    said = [model.tokenizer.decode(ids)[len("Once upon a") :] for ids in texts]
    assert f'as it is: "{said[0]}"' in told and f'changed: "{said[1]}"' in told and said[0][0] == " "
    assert described(call, *given, "--growth")["continued"] == found, "as the recorded run has it"


def test_texts_that_stay_the_same_and_models_without_a_tokenizer(
    call: Call, speaker: str, decoder: str
) -> None:
    told = call("trace", speaker, "Ha", "--zero", "blocks.0.ffn", "-n", 3).stdout
    assert told.count('"bcd"') == 2 and told.endswith("Both are the same.\n")
    ended = described(call, speaker, "y", "--zero", "blocks.0.ffn", "-n", 9)["continued"]
    assert ended["before"] == ended["after"] and ended["parts_at"] is None and len(ended["after"]["ids"]) == 3
    plain = call("trace", decoder, "1 2 3", *RANDOM, "--zero", "blocks.1.ffn", "-n", 2).stdout
    assert re.search(r"^changed: \d+ \d+$", plain, re.MULTILINE)
    chinese = call("trace", speaker, "Ha", "--zero", "blocks.0.ffn", "-n", 3, "--lang", "zh").stdout
    assert '改动后："bcd"' in chinese and "两者相同。" in chinese


def test_continuations_part_where_one_ends() -> None:
    assert Continued(4, [1, 2, 3], [1, 2]).parts_at == 6 and Continued(4, [1, 2], [1, 2]).parts_at is None
    assert Continued(4, [1, 2, 3], [1, 5, 3]).parts_at == 5


@pytest.mark.parametrize(
    ("zero", "said"),
    [
        ("blocks.9.attention", "did you mean blocks."),
        ("blocks.0.attention:4", "has the heads 0 to 3, not 4"),
        ("blocks.0.ffn:1", "has no heads"),
    ],
)
def test_paths_and_heads_that_do_not_exist(call: Call, decoder: str, zero: str, said: str) -> None:
    result = call("trace", decoder, "1", *RANDOM, "--zero", zero)
    assert result.exit_code == 1 and said in result.stderr and len(result.stderr.splitlines()) <= 2


def test_a_head_is_a_number(call: Call, decoder: str) -> None:
    result = call("trace", decoder, "1", *RANDOM, "--zero", "blocks.0.attention:x")
    assert result.exit_code == 2 and "a head is a number" in result.stderr


# --- mistakes ---------------------------------------------------------------------------------


def test_a_path_that_does_not_exist_brings_up_near_ones(call: Call, decoder: str) -> None:
    result = call("trace", decoder, "1", *RANDOM, "--select", "blocks.0.atention.scores")
    assert result.exit_code == 1 and "did you mean blocks.0.attention.scores" in result.stderr


def test_what_would_be_too_large_says_its_size_and_how_to_select(call: Call, decoder: str) -> None:
    result = call("trace", decoder, "1 2 3 4 5", *RANDOM, "--limit", "10kB")
    assert result.exit_code == 1
    assert re.search(r"would take \d\d\.\d kB, more than the limit of 10\.0 kB", result.stderr)
    assert "Select less" in result.stderr
    assert call("trace", decoder, "1 2 3 4 5", *RANDOM, "--limit", "1G").exit_code == 0


@pytest.mark.parametrize("size", ["x", "0", "-1", "5 apples", "1e9"])
def test_a_limit_is_a_size(call: Call, decoder: str, size: str) -> None:
    result = call("trace", decoder, "1", *RANDOM, "--limit", size)
    assert result.exit_code == 2 and "isn't a size" in result.stderr


def test_without_a_model_there_is_nothing_to_trace(call: Call) -> None:
    result = call("trace")
    assert result.exit_code == 2 and "MODEL" in result.stderr


def test_help_has_examples(call: Call) -> None:
    told = call("trace", "--help").stdout
    assert "Examples:" in told and "--zero blocks.3.attention.mixed:4" in told


# --- mistakes with files ----------------------------------------------------------------------


def test_a_trace_of_another_model_is_refused(call: Call, speaker: str, decoder: str, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    assert call("trace", decoder, "1 2", *RANDOM, "--save", file).exit_code == 0
    for command in (
        ("trace", speaker, "--open", file, "--lens"),
        ("explain", speaker, "head", "--open", file),
    ):
        result = call(*command)
        assert result.exit_code == 1 and "fault" not in result.stderr
        assert re.search(r"this trace is of \S+ \(.+\), not of \S+: ", result.stderr), result.stderr
    own = call("trace", decoder, "--open", file, "--lens", *RANDOM)
    assert own.exit_code == 0, own.stderr


def test_files_that_are_no_traces_and_folders_that_aren_t_there(
    call: Call, speaker: str, tmp_path: Path
) -> None:
    text = tmp_path / "README.md"
    text.write_text("# A text, and no trace at all\n", encoding="utf-8")
    assert "README.md: is no trace" in call("trace", "--open", text).stderr
    result = call("trace", speaker, "Hi", "--save", tmp_path / "nope" / "x.safetensors")
    assert result.exit_code == 1 and f"the folder {tmp_path / 'nope'} doesn't exist" in result.stderr
    assert ".part" not in result.stderr


def test_without_a_prompt_it_says_what_is_traced(call: Call, speaker: str) -> None:
    result = call("trace", speaker)
    assert result.exit_code == 0 and "the model's start token alone" in result.stderr


def test_at_forty_columns_tokens_stay_whole(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for view in ("--lens", "--heads"):
        out = call("trace", "tiny-stories", "Once upon there", view).stdout
        assert max(map(len, out.splitlines())) <= 40
        for line in out.splitlines()[2:]:
            assert line.count('"') % 2 == 0, line


@pytest.mark.parametrize("view", [[], ["--growth"], ["--lens"], ["--heads"], ["--zero", "blocks.0.ffn"]])
def test_a_slim_terminal_keeps_words_whole(
    view: list[str], call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = call("trace", speaker, "Hi", *view).stdout
    assert max(map(len, out.splitlines())) <= 40
    word = "changed" if "--zero" in view else "norm" if not view else "blocks.0"
    assert word in out.split()


@pytest.mark.parametrize(
    ("view", "missing"),
    [([], "shape, min, max, zeros"), (["--zero", "blocks.0.ffn"], "p then, p before"), (["--lens"], "place"),
     (["--growth"], None), (["--heads"], None)],
)  # fmt: skip
def test_columns_without_room_are_named(
    view: list[str], missing: str | None, call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = call("trace", speaker, "Hi", *view).stdout
    assert f"no room for: {missing}\n" in out if missing else "no room" not in out
    monkeypatch.setenv("COLUMNS", "80")
    assert "no room" not in call("trace", speaker, "Hi", *view).stdout


def test_a_terminal_of_twenty_columns_gets_forty(
    call: Call, speaker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    wide = call("trace", speaker, "Hi", "--heads").stdout
    monkeypatch.setenv("COLUMNS", "20")
    assert call("trace", speaker, "Hi", "--heads").stdout == wide

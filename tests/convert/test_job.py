"""Whole conversions: there and back, what others read, and what is refused before it is written."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf as official
import numpy as np
import pytest

from glassgear.convert import Wanted, convert
from glassgear.errors import FormatError, GlassgearError, NotFoundError, SettingError, UnsupportedError
from glassgear.loading import load
from glassgear.weights import gguf, llama2c
from glassgear.weights.folder import read_folder
from glassgear.weights.open import open_checkpoint
from tests.cli.speaking import PIECES, write_speaker
from tests.models import llama2c_file, llama2c_tokenizer

TEXTS = ("Once upon a time", "Lily's 3 dogs,\nand a café!", "a", "The sun  is ")


@pytest.fixture(scope="module")
def stories(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K with its tokenizer beside it."""
    folder = tmp_path_factory.mktemp("stories")
    shutil.copy(data_of(shared) / "stories260K.bin", folder / "stories.bin")
    shutil.copy(data_of(shared) / "tok512.bin", folder / "tokenizer.bin")
    return folder / "stories.bin"


def data_of(shared: Path) -> Path:
    return shared / "data" / "llama2c"


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    """A byte-level BPE model as GGUF whose rows, of 264 and 8, no block but that of 8 bits divides."""
    path = tmp_path / "speaker.gguf"
    write_speaker(path)
    return path


def greedy(path: Path, count: int, prompt: str = "Once upon a time") -> list[int]:
    """The likeliest ids, by the float32 reference."""
    model = load(path, backend="reference")
    ids = model.encode(prompt)
    for _ in range(count):
        ids.append(int(np.argmax(model.logits(ids)[-1])))
    return ids


def ids_of(path: Path, texts: Sequence[str] = TEXTS) -> list[list[int]]:
    tokenizer = load(path, backend="reference").tokenizer
    return [tokenizer.encode(text, add_special=True) for text in texts]


# --------------------------------------------------------------------------------------------
# llama2.c there and back


def test_a_bin_comes_back_through_a_folder_byte_for_byte(stories: Path, tmp_path: Path) -> None:
    convert(stories, tmp_path / "folder")
    done = convert(tmp_path / "folder", tmp_path / "back.bin")
    before, after = stories.read_bytes(), (tmp_path / "back.bin").read_bytes()
    tables = 2 * 512 * 8 // 2 * 4  # context x half a head, cosines and sines
    assert before[:-tables] == after[:-tables]
    old, new = (np.frombuffer(data[-tables:], "<f4") for data in (before, after))
    assert np.abs(old - new).max() < 1e-4
    assert (tmp_path / "tokenizer.bin").read_bytes() == (stories.parent / "tokenizer.bin").read_bytes()
    assert (done.kind, done.types, done.nbytes) == ("bin", {"F32": 47}, len(before))


def test_a_bin_comes_back_through_a_gguf(stories: Path, tmp_path: Path) -> None:
    convert(stories, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path / "v1.bin", Wanted(bin_version=1))
    convert(stories, tmp_path / "direct.bin", Wanted(bin_version=1))
    assert (tmp_path / "v1.bin").read_bytes() == (tmp_path / "direct.bin").read_bytes()


@pytest.mark.parametrize(("version", "name"), [(1, "stories260K.v1.bin"), (2, "stories260K.v2-g4.bin")])
def test_versions_1_and_2_are_those_that_llama2_c_exports(
    version: int, name: str, stories: Path, shared: Path, tmp_path: Path
) -> None:
    convert(stories, tmp_path / "made.bin", Wanted(bin_version=version))
    theirs, ours = llama2c.read(data_of(shared) / name)[1], llama2c.read(tmp_path / "made.bin")[1]
    assert (data_of(shared) / name).stat().st_size == (tmp_path / "made.bin").stat().st_size
    for path in theirs:
        assert np.array_equal(ours[path].data, theirs[path].data), path
        assert np.array_equal(ours[path].float32(), theirs[path].float32()), path


@pytest.mark.parametrize("target", ["folder", "model.gguf", "model.bin"])
def test_stories_go_on_alike_wherever_they_are(target: str, stories: Path, tmp_path: Path) -> None:
    convert(stories, tmp_path / target)
    assert greedy(tmp_path / target, 16) == greedy(stories, 16)
    assert ids_of(tmp_path / target) == ids_of(stories)
    before, after = load(stories, backend="reference"), load(tmp_path / target, backend="reference")
    assert before.end_ids == after.end_ids


# --------------------------------------------------------------------------------------------
# Other programs


def test_transformers_reads_a_folder_alike(stories: Path, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    convert(stories, tmp_path / "folder")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    ours = load(stories, backend="reference")
    for text in TEXTS:
        ids = ours.tokenizer.encode(text, add_special=True)
        assert tokenizer(text)["input_ids"] == ids
        with torch.no_grad():
            logits = theirs(torch.tensor([ids])).logits[0].numpy()
        assert np.abs(ours.logits(ids)[-1] - logits[-1]).max() < 1e-4
    assert tokenizer.decode(ids, skip_special_tokens=True) == TEXTS[-1]


def test_sentencepiece_reads_the_tokenizer_of_a_folder_alike(stories: Path, tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    convert(stories, tmp_path / "folder")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "folder" / "tokenizer.model"))
    for text, ids in zip(TEXTS, ids_of(stories), strict=True):
        assert [theirs.bos_id(), *theirs.encode(text)] == ids


@pytest.mark.parametrize("kind", ["f32", "q8_0", "q5_1", "bf16"])
def test_the_gguf_package_reads_what_is_written(kind: str, speaker: Path, tmp_path: Path) -> None:
    convert(speaker, tmp_path / "made.gguf", Wanted(type=kind))
    reader = official.GGUFReader(tmp_path / "made.gguf")
    ours, before = gguf.read(tmp_path / "made.gguf").tensors, gguf.read(speaker).tensors
    assert {tensor.name for tensor in reader.tensors} == set(before)
    for tensor in reader.tensors:
        values = official.quants.dequantize(tensor.data, tensor.tensor_type).reshape(ours[tensor.name].shape)
        assert np.array_equal(values, ours[tensor.name].float32())
        assert np.abs(values - before[tensor.name].float32()).max() <= 0.1
    tokens = reader.fields["tokenizer.ggml.tokens"]
    assert tokens.contents() == PIECES


# --------------------------------------------------------------------------------------------
# A published model


def test_smollm2_goes_through_a_folder_into_q8_0(smollm2: Path, tmp_path: Path) -> None:
    convert(smollm2, tmp_path / "folder", Wanted(type="f32"))
    convert(tmp_path / "folder", tmp_path / "q8.gguf", Wanted(type="q8_0"))
    ours, theirs = (continued(path, 48) for path in (tmp_path / "q8.gguf", smollm2))
    assert ours[:20] == theirs[:20]
    before, after = gguf.read(smollm2), gguf.read(tmp_path / "q8.gguf")
    assert before.tensors.keys() == after.tensors.keys()
    for name in ("blk.3.attn_q.weight", "blk.3.attn_k.weight"):  # the order of rows is llama.cpp's again
        a, b = before.tensors[name].float32(), after.tensors[name].float32()
        assert np.abs(a - b).max() < 0.01 * np.abs(a).max()
    for key in ("tokens", "token_type", "merges", "pre", "bos_token_id", "eos_token_id", "add_bos_token"):
        a, b = (file.metadata.get(f"tokenizer.ggml.{key}") for file in (before, after))
        assert a is None or np.array_equal(a, b), key
    assert before.metadata["tokenizer.chat_template"] == after.metadata["tokenizer.chat_template"]


def continued(path: Path, count: int) -> list[int]:
    model = load(path, backend="reference")
    pieces = model.generate("The capital of France is", max_tokens=count, temperature=0, ignore_eos=True)
    return [token for piece in pieces for token in piece.ids]


def test_transformers_reads_smollm2_alike(smollm2: Path, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    convert(smollm2, tmp_path / "folder")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "folder")
    ours = load(smollm2, backend="reference")
    talk = [{"role": "user", "content": "Hi there, 12 cafés"}]
    text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    ids = ours.encode(text, parse_special=True)
    assert tokenizer(text)["input_ids"] == ids
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0, -1].numpy()
    assert np.abs(ours.logits(ids)[-1] - logits).max() < 2e-3
    assert set(theirs.generation_config.eos_token_id) == ours.end_ids


# --------------------------------------------------------------------------------------------
# Types


def test_without_a_type_every_tensor_stays_as_it_is(speaker: Path, tmp_path: Path) -> None:
    convert(speaker, tmp_path / "f16.gguf", Wanted(type="f16"))
    convert(tmp_path / "f16.gguf", tmp_path / "again.gguf")
    assert (tmp_path / "f16.gguf").read_bytes() == (tmp_path / "again.gguf").read_bytes()


def test_a_type_that_does_not_divide_the_rows_gives_way(speaker: Path, tmp_path: Path) -> None:
    done = convert(speaker, tmp_path / "k.gguf", Wanted(type="q4_k"))
    tensors = gguf.read(tmp_path / "k.gguf").tensors
    assert tensors["token_embd.weight"].type == "F16"  # 264 values a row
    assert tensors["blk.0.attn_norm.weight"].type == "F32"
    assert done.fallbacks["token_embd.weight"] == "F16"
    assert "blk.0.attn_norm.weight" not in done.fallbacks


def test_the_head_may_have_a_type_of_its_own(tmp_path: Path) -> None:
    from glassgear.weights import gguf_write
    from tests.models import stored

    sizes = {"token_embd": (3, 256), "output": (3, 256), "blk.0.ffn_up": (3, 256)}
    tensors = [stored(f"{name}.weight", np.ones(shape)) for name, shape in sizes.items()]
    tensors += [stored("output_norm.weight", np.ones(256))]
    for name, shape in {"attn_norm": (256,), "ffn_norm": (256,), "attn_q": (256, 256), "attn_k": (256, 256),
                        "attn_v": (256, 256), "attn_output": (256, 256), "ffn_gate": (3, 256),
                        "ffn_down": (256, 3)}.items():  # fmt: skip
        tensors.append(stored(f"blk.0.{name}.weight", np.ones(shape)))
    keys: dict[str, Any] = {
        "general.architecture": "llama", "llama.embedding_length": 256, "llama.block_count": 1,
        "llama.attention.head_count": 2, "llama.context_length": 8, "llama.feed_forward_length": 3,
    }  # fmt: skip
    gguf_write.write(tmp_path / "a.gguf", keys, tensors)
    convert(tmp_path / "a.gguf", tmp_path / "b.gguf", Wanted(type="q4_k", head_type="q6_k"))
    made = {name: tensor.type for name, tensor in gguf.read(tmp_path / "b.gguf").tensors.items()}
    assert made["token_embd.weight"] == made["output.weight"] == "Q6_K"
    assert made["blk.0.attn_q.weight"] == made["blk.0.ffn_up.weight"] == "Q4_K"
    assert made["blk.0.ffn_down.weight"] == "F16"
    metadata = gguf.read(tmp_path / "b.gguf").metadata
    assert metadata["general.file_type"] == 14
    assert metadata["llama.context_length"] == 8


@pytest.mark.parametrize(("kind", "dtype"), [("f16", "F16"), ("bf16", "BF16"), (None, "F32")])
def test_a_folder_in_another_type_keeps_everything_else(
    kind: str | None, dtype: str, speaker: Path, tmp_path: Path
) -> None:
    convert(speaker, tmp_path / "one")
    (tmp_path / "one" / "special_tokens_map.json").write_text('{"eos_token": "<|im_end|>"}')
    convert(tmp_path / "one", tmp_path / "two", Wanted(type=kind))
    one, two = read_folder(tmp_path / "one"), read_folder(tmp_path / "two")
    assert {tensor.type for tensor in two.tensors.values()} == {dtype}
    assert one.tensors.keys() == two.tensors.keys()
    assert one.tokenizer_files.keys() == two.tokenizer_files.keys()
    for name, path in one.tokenizer_files.items():
        assert path.read_bytes() == two.tokenizer_files[name].read_bytes()
    assert two.config.pop("torch_dtype").startswith(
        {"F16": "float16", "BF16": "bfloat16"}.get(dtype, "float32")
    )
    assert {k: v for k, v in one.config.items() if k != "torch_dtype"} == two.config
    assert one.generation_config == two.generation_config


def test_a_gguf_s_tokenizer_and_template_come_along(speaker: Path, tmp_path: Path) -> None:
    convert(speaker, tmp_path / "folder")
    convert(tmp_path / "folder", tmp_path / "back.gguf")
    before, after = load(speaker, backend="reference"), load(tmp_path / "folder", backend="reference")
    back = load(tmp_path / "back.gguf", backend="reference")
    for model in (after, back):
        assert model.tokenizer.chat_template == before.tokenizer.chat_template
        assert model.end_ids == before.end_ids
        assert model.tokenizer.special == before.tokenizer.special
        text = "<|im_start|>say zq<|im_end|>\n é"
        ids = before.tokenizer.encode(text, parse_special=True)
        assert model.tokenizer.encode(text, parse_special=True) == ids
        assert model.tokenizer.decode(ids, skip_special=False) == text


def test_sizes_of_a_rotation_survive_in_every_spelling(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.families.decoders import SIZES
    from tests.families.support import config_of, made, save

    for scaling in (
        {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192, "rope_theta": 5e5},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 1e4},
    ):  # fmt: skip
        kind = scaling["rope_type"]
        changes = {"head_dim": 64, "rope_parameters": scaling}
        model = made("LlamaForCausalLM", config_of("LlamaConfig", **(SIZES | changes)))
        save(model, tmp_path / f"a-{kind}")
        convert(tmp_path / f"a-{kind}", tmp_path / f"{kind}.gguf")
        convert(tmp_path / f"{kind}.gguf", tmp_path / f"b-{kind}")
        config = json.loads((tmp_path / f"b-{kind}" / "config.json").read_text())
        for key, value in scaling.items():
            found = config.get(key, config["rope_scaling"].get(key))
            assert found == pytest.approx(value) if isinstance(value, float) else found == value, key


# --------------------------------------------------------------------------------------------
# Refusals


def without_leftovers(folder: Path, before: set[str]) -> None:
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            Wanted(kind="folder", type="q8_0"),
            "a Hugging Face folder can't hold q8_0: choose f32, f16 or bf16",
        ),
        (Wanted(kind="bin", type="q8_0"), "one type for each version"),
        (Wanted(kind="gguf", bin_version=1), "--bin-version is for a llama2.c .bin alone"),
        (Wanted(kind="folder", head_type="f16"), "only a GGUF can have another type"),
        (Wanted(kind="gguf", type="q3_k"), "no type that can be written is called 'q3_k'"),
        (Wanted(kind="tar"), "no kind of target is called 'tar'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    wanted: Wanted, words: str, speaker: Path, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=words):
        convert(speaker, tmp_path / "out", wanted)
    without_leftovers(tmp_path, {"speaker.gguf"})


def test_what_a_bin_cannot_hold_is_said_by_name(speaker: Path, tmp_path: Path, smollm2: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UnsupportedError, match=r"rope\.theta is 100000\.0, there it would be 10000\.0"):
        convert(smollm2, tmp_path / "out" / "m.bin")
    with pytest.raises(UnsupportedError, match="has a byte-level BPE vocabulary"):
        convert(speaker, tmp_path / "out" / "m.bin")
    without_leftovers(tmp_path / "out", set())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention_bias": True}, r"attention\.query\.bias is True"),
        ({"head_dim": 20}, r"has 4 heads of 20 channels for a width of 48"),
        ({"head_dim": 12, "rms_norm_eps": 1e-6}, r"norm\.eps is 1e-06, there it would be 1e-05"),
        (
            {"head_dim": 12, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "linear", "factor": 2.0,
                                                                      "rope_theta": 1e4}},
            r"rope\.scaling is linear, there it would be none",
        ),
    ],
)  # fmt: skip
def test_settings_that_a_bin_has_built_in_are_named(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    from tests.families.decoders import SIZES
    from tests.families.support import config_of, made, save

    base = SIZES | {"head_dim": 12, "rms_norm_eps": 1e-5}
    folder = save(made("LlamaForCausalLM", config_of("LlamaConfig", **(base | changes))), tmp_path / "in")
    with pytest.raises(UnsupportedError, match=words):
        convert(folder, tmp_path / "m.bin")
    without_leftovers(tmp_path, {"in"})


@pytest.mark.parametrize("name", ["model.safetensors", "-", "notes.txt"])
def test_a_file_s_name_is_no_folder_s(speaker: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingError, match="looks like a file"):
        convert(speaker, tmp_path / name)
    assert not (tmp_path / name).exists()
    convert(speaker, tmp_path / name, Wanted(kind="gguf"))
    assert (tmp_path / name).is_file()


def test_room_is_looked_for_before_writing(
    speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=7))
    with pytest.raises(GlassgearError, match=r"needs [\d,]+ bytes, and 7 are free there"):
        convert(speaker, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()


def test_what_is_there_is_replaced_only_on_request(speaker: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"precious")
    with pytest.raises(SettingError, match="is there already: choose another name, or --force"):
        convert(speaker, out)
    assert out.read_bytes() == b"precious"
    convert(speaker, out, Wanted(replace=True))
    assert gguf.read(out).tensors
    without_leftovers(tmp_path, {"speaker.gguf", "out.gguf"})


def test_a_folder_of_other_things_is_never_replaced(speaker: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(SettingError, match="so it is no model folder and isn't replaced"):
        convert(speaker, tmp_path / "photos", Wanted(replace=True))
    convert(speaker, tmp_path / "model")
    (tmp_path / "model" / "old.txt").write_text("old")
    convert(speaker, tmp_path / "model", Wanted(replace=True, type="f16"))
    assert not (tmp_path / "model" / "old.txt").exists()
    without_leftovers(tmp_path, {"speaker.gguf", "photos", "model"})


def test_the_source_is_never_its_own_target(speaker: Path) -> None:
    with pytest.raises(SettingError, match="is the model itself"):
        convert(speaker, speaker, Wanted(replace=True))


def test_a_folder_that_is_not_there_is_named(speaker: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such folder to write to"):
        convert(speaker, tmp_path / "nowhere" / "out.gguf")


def test_the_tokenizer_of_another_model_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    llama2c_file(tmp_path / "in" / "m.bin")
    llama2c_tokenizer(tmp_path / "in" / "tokenizer.bin")
    (tmp_path / "tokenizer.bin").write_bytes(b"another")
    with pytest.raises(SettingError, match="is the tokenizer of another model"):
        convert(tmp_path / "in" / "m.bin", tmp_path / "out.bin")
    without_leftovers(tmp_path, {"in", "tokenizer.bin"})


@pytest.mark.parametrize("target", ["out.gguf", "out", "out.bin"])
@pytest.mark.parametrize("at", [1, 20])
def test_ctrl_c_leaves_nothing(target: str, at: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    llama2c_file(tmp_path / "in" / "m.bin")
    calls = 0

    def interrupt(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        assert 0 < done <= total
        if calls == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "in" / "m.bin", tmp_path / target, progress=interrupt)
    without_leftovers(tmp_path, {"in"})


@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_a_nan_is_refused_with_tensor_and_row(kind: str, speaker: Path, tmp_path: Path) -> None:
    reader = official.GGUFReader(speaker)
    offset = next(t.data_offset for t in reader.tensors if t.name == "blk.1.attn_v.weight")
    place = offset + 4 * (3 * 264 + 5)
    data = bytearray(speaker.read_bytes())
    data[place : place + 4] = np.float32(np.nan).tobytes()
    speaker.write_bytes(bytes(data))
    (tmp_path / "out").mkdir()
    with pytest.raises(FormatError, match=r"blk\.1\.attn_v\.weight.* holds nan.*row 3"):
        convert(speaker, tmp_path / "out" / "m.gguf", Wanted(type=kind))
    without_leftovers(tmp_path / "out", set())


@pytest.mark.parametrize("target", ["m.gguf", "folder"])
def test_little_of_a_large_model_is_held_at_a_time(target: str, tmp_path: Path) -> None:
    from glassgear.weights import gguf_write
    from tests.models import stored

    shapes = {"token_embd": (8192, 2048), "output_norm": (2048,), "blk.0.attn_norm": (2048,),
              "blk.0.ffn_norm": (2048,), "blk.0.attn_q": (64, 2048), "blk.0.attn_k": (64, 2048),
              "blk.0.attn_v": (64, 2048), "blk.0.attn_output": (2048, 64), "blk.0.ffn_gate": (64, 2048),
              "blk.0.ffn_up": (64, 2048), "blk.0.ffn_down": (2048, 64)}  # fmt: skip
    keys: dict[str, Any] = {
        "general.architecture": "llama", "llama.embedding_length": 2048, "llama.block_count": 1,
        "llama.attention.head_count": 2, "llama.context_length": 8, "llama.feed_forward_length": 64,
        "llama.attention.key_length": 32,
    }  # fmt: skip
    tensors = [stored(f"{name}.weight", np.ones(shape, np.float32)) for name, shape in shapes.items()]
    gguf_write.write(tmp_path / "a.gguf", keys, tensors)
    del tensors
    convert(tmp_path / "a.gguf", tmp_path / "warm.gguf", Wanted(type="bf16"))  # imports what it needs
    tracemalloc.start()
    try:
        convert(tmp_path / "a.gguf", tmp_path / target, Wanted(type="bf16"))
        assert tracemalloc.get_traced_memory()[1] < 32e6  # the table alone has 67 MB
    finally:
        tracemalloc.stop()


def test_progress_reaches_the_end(speaker: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    done = convert(speaker, tmp_path / "m.gguf", progress=lambda *figures: told.append(figures))
    assert told[-1] == (done.nbytes, done.nbytes)
    assert [first for first, _ in told] == sorted(first for first, _ in told)


def test_a_model_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    llama2c_file(tmp_path / "in" / "m.bin")
    for target in ("m.gguf", "folder", "m.bin"):
        done = convert(tmp_path / "in" / "m.bin", tmp_path / target)
        assert any("came without a tokenizer" in notice for notice in done.notices)
        assert open_checkpoint(tmp_path / target).model.dim == 16


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(GlassgearError):
        convert(tmp_path / "a.txt", tmp_path / "b.gguf")
    without_leftovers(tmp_path, {"a.txt"})

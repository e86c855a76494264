"""Files and folders as other programs write them, run, and compared with what those programs compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.reference import Reference
from glassgear.errors import FormatError, GlassgearError, UnsupportedError
from glassgear.weights import gguf_write
from glassgear.weights.checkpoint import Checkpoint
from glassgear.weights.open import open_checkpoint
from tests.models import llama2c_file, stored

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]
SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512, "initializer_range": 0.2,
    "rms_norm_eps": 2.0**-17,  # exact in float32, which is what a GGUF keeps
}  # fmt: skip
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 500000.0,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "multi-head": {"num_key_value_heads": 8},
    "tied": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 24},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "llama3 rope": {"head_dim": 16, "rope_parameters": LLAMA3},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}},
    "yarn rope": {
        "rope_parameters": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0,
        }
    },
}  # fmt: skip


def make(variant: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(SIZES | VARIANTS[variant]))).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or "bias" in name:
                value.add_(0.2 * torch.randn_like(value))
    return model


def theirs(model: Any, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def ours(checkpoint: Checkpoint, ids: list[int], sizes: list[int] | None = None) -> np.ndarray:
    backend = Reference(checkpoint.model, checkpoint.tensors)
    track, out, start = backend.open(), [], 0
    for size in sizes or [len(ids)]:
        out.append(backend.step([Chunk(track, ids[start : start + size], "all")])[0])
        start += size
    return np.concatenate(out)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_folder_of_transformers_gives_its_logits(tmp_path: Path, variant: str) -> None:
    model = make(variant)
    model.save_pretrained(tmp_path)
    checkpoint, want = open_checkpoint(tmp_path), theirs(model, IDS)
    for sizes in ([12], [5, 7], [1] * 12):
        assert np.abs(ours(checkpoint, IDS, sizes) - want).max() < 1e-4, sizes


def test_scaled_rope_agrees_past_the_trained_length(tmp_path: Path) -> None:
    model = make("llama3 rope")
    model.save_pretrained(tmp_path)
    ids = np.random.default_rng(0).integers(0, 100, 300).tolist()
    assert np.abs(ours(open_checkpoint(tmp_path), ids) - theirs(model, ids)).max() < 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sharded_half_precision_folders(tmp_path: Path, dtype: str) -> None:
    model = make("grouped").to(getattr(torch, dtype))
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    checkpoint = open_checkpoint(tmp_path)
    assert {t.type for t in checkpoint.tensors.values()} == {"F16" if dtype == "float16" else "BF16"}
    same = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert np.abs(ours(checkpoint, IDS) - theirs(same, IDS)).max() < 1e-4


def test_a_tied_head_written_twice_is_read_once(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = make("tied")
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, tmp_path / "model.safetensors")
    assert np.abs(ours(open_checkpoint(tmp_path), IDS) - theirs(model, IDS)).max() < 1e-4


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model_type": "mamba"}, UnsupportedError, r"type 'mamba'; this version runs llama"),
        ({"sliding_puzzle": 3}, UnsupportedError, "`sliding_puzzle`"),
        ({"num_hidden_layers": 4}, FormatError, r"lacks `model\.layers\.3\.input_layernorm\.weight`"),
        ({"num_hidden_layers": 2}, FormatError, r"doesn't have: `model\.layers\.2\."),
        ({"intermediate_size": 110}, FormatError, r"gate_proj\.weight` is 112 x 64; .* ask for 110 x 64"),
        ({"vocab_size": 99}, FormatError, r"embed_tokens\.weight` is 100 x 64"),
        ({"head_dim": 16}, FormatError, r"q_proj\.weight` is 64 x 64; the model's sizes ask for 128 x 64"),
    ],
)
def test_a_config_that_does_not_fit_its_weights_is_refused(
    tmp_path: Path, changes: dict[str, object], error: type[GlassgearError], message: str
) -> None:
    make("grouped").save_pretrained(tmp_path)
    edit(tmp_path, **changes)
    with pytest.raises(error, match=message):
        open_checkpoint(tmp_path)


def test_a_tensor_too_many_is_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make("grouped").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, tmp_path / "model.safetensors")
    open_checkpoint(tmp_path)  # a table that follows from the config
    weights["model.layers.0.self_attn.q_norm.weight"] = torch.ones(8)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"doesn't have: `model\.layers\.0\.self_attn\.q_norm\.weight`"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("generation", "ends"),
    [
        ({"eos_token_id": [5, 9]}, {5, 9}),
        ({"eos_token_id": 7}, {7}),
        ({"eos_token_id": None}, {2}),
        ({}, {2}),
        (None, {2}),
    ],
)
def test_end_tokens_come_from_the_generation_config_before_the_config(
    tmp_path: Path, generation: dict[str, Any] | None, ends: set[int]
) -> None:
    make("grouped").save_pretrained(tmp_path)
    edit(tmp_path, eos_token_id=2)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert open_checkpoint(tmp_path).end_ids == ends


def test_recommended_sampling_counts_only_where_sampling_is_wanted(tmp_path: Path) -> None:
    make("grouped").save_pretrained(tmp_path)
    for wanted in (True, False):
        generation = {"do_sample": wanted, "temperature": 0.6, "top_p": 0.9, "max_length": 50}
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        found = open_checkpoint(tmp_path).sampling
        assert dict(found) == ({"temperature": 0.6, "top_p": 0.9} if wanted else {})


HF_TO_GGUF = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(path: Path, model: Any, **extra: Any) -> None:
    """As llama.cpp's converter does: rows of W_q and W_k of every head interleaved."""
    c, tensors = model.config, []
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        values = value.float().numpy()
        for part, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads)):
            if part in name:
                shape = values.shape
                values = values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2)
                values = values.reshape(shape)
        renamed = name.replace("model.layers.", "blk.")
        for hf, gg in HF_TO_GGUF.items():
            renamed = renamed.replace(hf, gg)
        tensors.append(stored(renamed, values))
    if factors := extra.pop("factors", None):
        tensors.append(stored("rope_freqs.weight", np.array(factors)))
    metadata = {
        "general.architecture": "llama",
        "llama.embedding_length": c.hidden_size,
        "llama.block_count": c.num_hidden_layers,
        "llama.feed_forward_length": c.intermediate_size,
        "llama.attention.head_count": c.num_attention_heads,
        "llama.attention.head_count_kv": c.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "llama.context_length": c.max_position_embeddings,
        "llama.rope.freq_base": c.rope_parameters["rope_theta"],
        "llama.rope.dimension_count": c.head_dim,
        "llama.attention.key_length": c.head_dim,
        "llama.attention.value_length": c.head_dim,
    }
    gguf_write.write(path, metadata | extra, tensors)


@pytest.mark.parametrize("variant", ["grouped", "multi-head", "tied", "wide heads", "biases"])
def test_a_gguf_with_interleaved_heads_gives_the_logits_of_its_origin(tmp_path: Path, variant: str) -> None:
    model = make(variant)
    write_gguf(tmp_path / "m.gguf", model)
    assert np.abs(ours(open_checkpoint(tmp_path / "m.gguf"), IDS) - theirs(model, IDS)).max() < 1e-4


def test_queries_and_keys_come_back_in_the_order_of_the_folder(tmp_path: Path) -> None:
    model = make("grouped")
    write_gguf(tmp_path / "m.gguf", model)
    model.save_pretrained(tmp_path)
    file, folder = open_checkpoint(tmp_path / "m.gguf"), open_checkpoint(tmp_path)
    assert file.model.blocks == folder.model.blocks
    for path in folder.tensors:
        assert np.array_equal(file.tensors[path].float32(), folder.tensors[path].float32()), path


def test_rope_factors_of_a_gguf_are_applied(tmp_path: Path) -> None:
    """llama.cpp's converter writes Llama 3.1's scaling as one factor for each pair."""
    from glassgear.model.families.llama import config_from_hf
    from glassgear.model.gears import Rope
    from glassgear.model.rope import inverse_frequencies
    from glassgear.model.settings import Settings

    model = make("llama3 rope")
    rope = config_from_hf(Settings(model.config.to_dict(), "c")).rope
    plain = inverse_frequencies(Rope(rope.dim, rope.theta))
    factors = [a / b for a, b in zip(plain, inverse_frequencies(rope), strict=True)]
    assert max(factors) == pytest.approx(8.0) and min(factors) == 1.0
    write_gguf(tmp_path / "m.gguf", model, factors=factors)
    ids = np.random.default_rng(0).integers(0, 100, 200).tolist()
    assert np.abs(ours(open_checkpoint(tmp_path / "m.gguf"), ids) - theirs(model, ids)).max() < 1e-4


def test_a_file_that_names_no_architecture_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16) + bytes(40))
    with pytest.raises(FormatError, match=r"no general\.architecture"):
        open_checkpoint(path)


def test_an_architecture_that_is_not_supported_names_itself(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", make("grouped"), **{"general.architecture": "rwkv6"})
    with pytest.raises(UnsupportedError, match=r"architecture 'rwkv6'; this version runs llama"):
        open_checkpoint(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git lfs pull"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + bytes(99), "pickle"),
        (b"PK\x03\x04" + b"model/data.pkl".rjust(60), "pickle"),
        (b"just some text, nothing more, of a length that is more than a header", "fit no format"),
        (b"\x08\0\0\0\0\0\0\0{}      ", "folder that also holds its config.json"),
    ],
    ids=["empty", "html", "lfs", "pickle", "zip pickle", "text", "bare safetensors"],
)
def test_what_is_no_model_is_called_by_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        open_checkpoint(tmp_path / "model.gguf")
    assert "model.gguf" in str(caught.value)


def test_version_0_files_are_not_taken_for_pickles(tmp_path: Path) -> None:
    """A width of 640 begins with the bytes of a pickle."""
    llama2c_file(tmp_path / "m.bin", 0)
    raw = bytearray((tmp_path / "m.bin").read_bytes())
    raw[:4] = (640).to_bytes(4, "little")
    (tmp_path / "m.bin").write_bytes(raw)
    with pytest.raises(FormatError, match="its header asks for"):
        open_checkpoint(tmp_path / "m.bin")


def test_smollm2_gives_the_logits_of_transformers(shared: Path, smollm2: Path) -> None:
    checkpoint = open_checkpoint(smollm2)
    backend = Reference(checkpoint.model, checkpoint.tensors)
    for case in json.loads((shared / "data/smollm2/golden.json").read_text(encoding="utf-8")):
        row = backend.step([Chunk(backend.open(), case["ids"])])[0][0]
        best = np.argsort(-row, kind="stable")[:5].tolist()
        assert best == [token for token, _ in case["top5"]]
        assert row[best] == pytest.approx([value for _, value in case["top5"]], abs=2e-3)


def test_what_cannot_be_a_tokenizer_is_called_by_its_name_too(tmp_path: Path) -> None:
    import glassgear

    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + b"model/data.pkl".rjust(60))
    with pytest.raises(FormatError, match="pickle"):
        glassgear.load_tokenizer(tmp_path / "model.pt")


@pytest.mark.parametrize(("ends", "known"), [(-1, []), ([3, 100], [3])])
def test_end_tokens_outside_the_vocabulary_are_said(tmp_path: Path, ends: object, known: list[int]) -> None:
    make("grouped").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.end_ids == frozenset(known)
    assert "`eos_token_id` names id" in checkpoint.notices[-1]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_at_load(tmp_path: Path, value: float, backend: Any) -> None:
    from safetensors.torch import load_file, save_file

    import glassgear

    make("grouped").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][5, 7] = value
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(FormatError, match=r"up_proj\.weight.*row 5"):
        glassgear.load(tmp_path, backend=backend)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("bits", [0x7E00, 0x7C00, 0xFC00])
def test_scales_that_are_not_finite_are_refused_at_load(tmp_path: Path, bits: int, backend: Any) -> None:
    import glassgear
    from glassgear.weights.tensor import StoredTensor

    model = make("tied")
    write_gguf(tmp_path / "plain.gguf", model)
    from glassgear.weights import gguf

    file = gguf.read(tmp_path / "plain.gguf")
    blocks = np.zeros((112, 2), [("d", "<u2"), ("codes", "i1", 32)])
    blocks["d"][3, 1] = bits
    name = "blk.0.ffn_up.weight"
    broken = StoredTensor(name, "Q8_0", (112, 64), blocks.view(np.uint8).reshape(-1), "memory")
    tensors = [broken if t.name == name else t for t in file.tensors.values()]
    gguf_write.write(tmp_path / "broken.gguf", file.metadata, tensors)
    with pytest.raises(FormatError, match=r"broken\.gguf: .*blk\.0\.ffn_up\.weight.*block 7"):
        glassgear.load(tmp_path / "broken.gguf", backend=backend)

"""Model folders: what transformers writes, indexes that lie, and folders that are something else."""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glassgear.errors import FileError, FormatError, GlassgearError, NotFoundError, UnsupportedError
from glassgear.weights import safetensors
from glassgear.weights.folder import read_folder, weight_files
from glassgear.weights.json_object import parse_object, quoted, read_object

FUZZ = int(os.environ.get("GLASSGEAR_FUZZ", "2000"))
INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def sharded(folder: Path, weight_map: object = None) -> Path:
    """A folder of two shards, `a` and `b` in the first, `c` in the second."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    safetensors.write(folder / ONE, {"a": np.float32([1, 2]), "b": np.float32([3])})
    safetensors.write(folder / TWO, {"c": np.float32([4, 5])})
    index = {
        "metadata": {"total_size": 20},
        "weight_map": {"a": ONE, "b": ONE, "c": TWO} if weight_map is None else weight_map,
    }
    (folder / INDEX).write_text(json.dumps(index))
    return folder


def single(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    safetensors.write(folder / "model.safetensors", {"a": np.float32([1, 2])})
    return folder


def link(new: Path, target: Path) -> None:
    try:
        new.symlink_to(target)
    except OSError:
        pytest.skip("this system makes no symbolic links")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A tiny Llama as transformers saves it."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def save(dtype: str, **options: object) -> Path:
        torch.manual_seed(3)
        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype))
        path = tmp_path_factory.mktemp("saved")
        model.save_pretrained(path, **options)
        state = {name: value.float().numpy() for name, value in model.state_dict().items()}
        np.savez(path / "expected.npz", **state)
        return path

    return save


class TestWhatTransformersWrites:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_one_file(self, saved: Callable[..., Path], dtype: str) -> None:
        path = saved(dtype)
        folder = read_folder(path)
        assert folder.config["num_key_value_heads"] == 2
        assert folder.generation_config["eos_token_id"] == 2
        self.same(folder.tensors, path)

    def test_shards(self, saved: Callable[..., Path]) -> None:
        path = saved("bfloat16", max_shard_size="8KB")
        files = weight_files(path)
        assert len(files) > 2
        assert sorted(files) == sorted(path.glob("*.safetensors"))
        folder = read_folder(str(path))
        assert {tensor.type for tensor in folder.tensors.values()} == {"BF16"}
        self.same(folder.tensors, path)

    @staticmethod
    def same(tensors: dict[str, safetensors.StoredTensor], path: Path) -> None:
        expected = np.load(path / "expected.npz")
        assert set(tensors) == set(expected.files)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor.float32(), expected[name])


class TestFolder:
    def test_what_is_absent_is_empty(self, tmp_path: Path) -> None:
        folder = read_folder(single(tmp_path))
        assert folder.generation_config == {}
        assert folder.tokenizer_files == {}
        assert weight_files(tmp_path) == [tmp_path / "model.safetensors"]

    def test_tokenizer_files_are_listed_by_name(self, tmp_path: Path) -> None:
        single(tmp_path)
        for name in ("tokenizer.json", "chat_template.jinja", "README.md"):
            (tmp_path / name).write_text("{}")
        assert read_folder(tmp_path).tokenizer_files == {
            "tokenizer.json": tmp_path / "tokenizer.json",
            "chat_template.jinja": tmp_path / "chat_template.jinja",
        }

    def test_one_file_goes_before_an_index(self, tmp_path: Path) -> None:
        sharded(tmp_path)
        single(tmp_path)
        assert list(read_folder(tmp_path).tensors) == ["a"]

    def test_tensors_that_the_index_omits_come_along(self, tmp_path: Path) -> None:
        folder = read_folder(sharded(tmp_path, {"a": ONE, "c": TWO}))
        assert set(folder.tensors) == {"a", "b", "c"}

    def test_the_index_decides_between_two_copies(self, tmp_path: Path) -> None:
        sharded(tmp_path, {"a": ONE, "b": ONE, "c": TWO})
        safetensors.write(tmp_path / TWO, {"a": np.float32([9, 9]), "c": np.float32([4, 5])})
        assert read_folder(tmp_path).tensors["a"].float32().tolist() == [1, 2]

    def test_two_copies_that_the_index_omits_are_refused(self, tmp_path: Path) -> None:
        sharded(tmp_path, {"a": ONE, "c": TWO})
        safetensors.write(tmp_path / TWO, {"b": np.float32([9]), "c": np.float32([4, 5])})
        with pytest.raises(FormatError, match="`b`"):
            read_folder(tmp_path)

    def test_the_links_of_the_hub_cache_are_followed(self, tmp_path: Path) -> None:
        real = sharded(tmp_path / "real")
        blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0a1b"
        blobs.mkdir()
        snapshot.mkdir(parents=True)
        for number, file in enumerate(sorted(real.iterdir())):
            file.rename(blobs / str(number))
            link(snapshot / file.name, Path("..", "..", "blobs", str(number)))
        folder = read_folder(snapshot)
        assert set(folder.tensors) == {"a", "b", "c"}
        assert folder.config == {"model_type": "llama"}


class TestIndexThatLies:
    @pytest.mark.parametrize(
        "shard",
        [
            "../outside.safetensors",
            "sub/../../outside.safetensors",
            "sub/model.safetensors",
            "./model.safetensors",
            "..\\outside.safetensors",
            "C:outside.safetensors",
            "",
            ".",
            "..",
            "...safetensors",
            ".safetensors",
            "config.json",
            "pytorch_model.bin",
            "a\0.safetensors",
            "a\n.safetensors",
            "x" * 300 + ".safetensors",
            7,
            None,
            True,
            ["model.safetensors"],
        ],
    )
    def test_a_shard_that_isnt_a_bare_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: object
    ) -> None:
        safetensors.write(tmp_path / "outside.safetensors", {"w": np.float32([6])})
        folder = sharded(tmp_path / "m", {"a": ONE, "model.w": shard})
        self.refused_unopened(folder, monkeypatch, "`model.w`")

    def test_an_absolute_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        outside = tmp_path / "outside.safetensors"
        safetensors.write(outside, {"w": np.float32([6])})
        self.refused_unopened(sharded(tmp_path / "m", {"w": str(outside)}), monkeypatch, "`w`")

    def test_a_link_that_someone_put_into_the_folder_is_followed(self, tmp_path: Path) -> None:
        safetensors.write(tmp_path / "outside.safetensors", {"w": np.float32([6])})
        folder = sharded(tmp_path / "m", {"w": "linked.safetensors"})
        link(folder / "linked.safetensors", tmp_path / "outside.safetensors")
        assert read_folder(folder).tensors["w"].float32().tolist() == [6]

    def test_a_link_that_leads_nowhere(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path / "m", {"w": "linked.safetensors"})
        link(folder / "linked.safetensors", tmp_path / "gone.safetensors")
        with pytest.raises(NotFoundError, match="link") as caught:
            read_folder(folder)
        assert "`w`" in str(caught.value)

    def test_a_shard_that_isnt_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = sharded(tmp_path)
        (folder / TWO).unlink()
        self.refused_unopened(folder, monkeypatch, "`c`", TWO)

    def test_a_shard_that_lacks_what_is_promised(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path, {"a": ONE, "b": TWO, "c": TWO})
        with pytest.raises(FormatError) as caught:
            read_folder(folder)
        assert TWO in str(caught.value)
        assert "`b`" in str(caught.value)

    def test_a_folder_in_a_shards_place(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path)
        (folder / TWO).unlink()
        (folder / TWO).mkdir()
        with pytest.raises(FormatError, match=TWO):
            read_folder(folder)

    @pytest.mark.parametrize(
        "index", ["{}", '{"weight_map": []}', '{"weight_map": {}}', "[]", "", "{", "NaN"]
    )
    def test_an_index_without_a_map(self, tmp_path: Path, index: str) -> None:
        folder = sharded(tmp_path)
        (folder / INDEX).write_text(index)
        with pytest.raises(FormatError) as caught:
            read_folder(folder)
        assert INDEX in str(caught.value)

    def test_listing_the_files_checks_the_index_too(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="bare name"):
            weight_files(sharded(tmp_path, {"w": "../outside.safetensors"}))

    def test_a_damaged_shard_names_the_shard(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path)
        (folder / TWO).write_bytes((folder / TWO).read_bytes()[:-1])
        with pytest.raises(FormatError, match="`c`") as caught:
            read_folder(folder)
        assert caught.value.path == str(folder / TWO)

    @staticmethod
    def refused_unopened(folder: Path, monkeypatch: pytest.MonkeyPatch, *said: str) -> None:
        def never(path: object) -> None:
            raise AssertionError(f"opened {path}")

        monkeypatch.setattr(safetensors, "read", never)
        with pytest.raises(FileError) as caught:
            read_folder(folder)
        assert all(word in str(caught.value) for word in said)


class TestSomethingElse:
    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="no such folder"):
            read_folder(tmp_path / "none")
        with pytest.raises(NotFoundError):
            read_folder("a\0b")

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        with pytest.raises(FormatError, match="is a file"):
            read_folder(tmp_path / "f")

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="empty"):
            read_folder(tmp_path)

    def test_no_config(self, tmp_path: Path) -> None:
        (single(tmp_path) / "config.json").unlink()
        with pytest.raises(NotFoundError, match=r"config\.json"):
            read_folder(tmp_path)

    def test_a_gguf_instead(self, tmp_path: Path) -> None:
        (tmp_path / "some.gguf").write_bytes(b"GGUF")
        with pytest.raises(NotFoundError, match=r"`some\.gguf`"):
            read_folder(tmp_path)

    def test_no_weights(self, tmp_path: Path) -> None:
        (single(tmp_path) / "model.safetensors").unlink()
        with pytest.raises(NotFoundError, match="no weights"):
            read_folder(tmp_path)

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
    def test_only_a_pickle(self, tmp_path: Path, name: str) -> None:
        (single(tmp_path) / "model.safetensors").unlink()
        (tmp_path / name).write_bytes(b"\x80\x02.")
        with pytest.raises(UnsupportedError) as caught:
            read_folder(tmp_path)
        assert all(word in str(caught.value) for word in (name, "pickle", "any program", "save_pretrained"))

    def test_an_adapter(self, tmp_path: Path) -> None:
        (single(tmp_path) / "model.safetensors").rename(tmp_path / "adapter_model.safetensors")
        with pytest.raises(NotFoundError, match="adapter_model"):
            read_folder(tmp_path)

    def test_weights_of_another_framework(self, tmp_path: Path) -> None:
        (single(tmp_path) / "model.safetensors").rename(tmp_path / "tf_model.h5")
        with pytest.raises(UnsupportedError, match=r"tf_model\.h5"):
            read_folder(tmp_path)


class TestJson:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (b"", "empty"),
            (b"  \n", "empty"),
            (b"[1]", "list"),
            (b'"text"', "str"),
            (b"null", "NoneType"),
            (b'{"a": NaN}', "NaN"),
            (b'{"a": -Infinity}', "Infinity"),
            (b'{"a": 1e400}', "1e400"),
            (b'{"a": 1, "a": 2}', "`a` twice"),
            (b'{"a": \n 1,}', "line 2"),
            (b'{"a": "\xe9"}', "UTF-8"),
            (b'{"a": "\\udc80"}', "surrogate"),
            (b'{"a": ' + b"[" * 33 + b"]" * 33 + b"}", "levels"),
            (b"[" * 1_000_000, "levels"),
            (b'{"a":' * 200_000, "levels"),
            (b'{"a": ' + b"1" * 10_000 + b"}", "digits"),
            (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
            (b"<html>Sign in</html>", "web page"),
            (b"\x80\x02}q\x00.", "pickle"),
        ],
    )
    def test_is_refused(self, tmp_path: Path, text: bytes, says: str) -> None:
        path = single(tmp_path) / "config.json"
        path.write_bytes(text)
        with pytest.raises(FormatError) as caught:
            read_folder(tmp_path)
        assert says in caught.value.trouble
        assert caught.value.path == str(path)

    def test_a_broken_generation_config_is_said(self, tmp_path: Path) -> None:
        (single(tmp_path) / "generation_config.json").write_text("{")
        with pytest.raises(FormatError, match="generation_config"):
            read_folder(tmp_path)

    def test_unicode_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        path = tmp_path / "c.json"
        path.write_bytes(b'\xef\xbb\xbf{"name": "\xf0\x9f\x90\xb6", "pair": "\\ud83d\\udc36"}')
        assert read_object(path) == {"name": "🐶", "pair": "🐶"}

    def test_too_large_is_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "c.json"
        with path.open("wb") as out:
            out.truncate(1 << 40)  # sparse
        with pytest.raises(FormatError, match="bytes"):
            read_object(path)

    def test_missing_and_folder(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError):
            read_object(tmp_path / "none.json")
        with pytest.raises(FormatError):
            read_object(tmp_path)

    def test_nesting_that_configs_have_is_fine(self) -> None:
        text = b'{"a": ' + b"[" * 30 + b"]" * 30 + b"}"
        assert "a" in parse_object("c.json", text)

    def test_names_are_shown_on_one_short_line(self) -> None:
        assert quoted("model.w") == "`model.w`"
        assert quoted("a\nb\x1b") == "`a\\nb\\x1b`"
        assert len(quoted("x" * 10_000)) < 150


def test_damaged_folders_end_in_an_error_that_names_a_file_of_theirs(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 2], "temperature": 0.6}')
    files = ["config.json", "generation_config.json", INDEX, ONE, TWO]
    seeds = {name: (folder / name).read_bytes() for name in files}
    words = [
        b"{",
        b"}",
        b'"',
        b"[" * 3000,
        b"..",
        b"/",
        b"0",
        b"9" * 5000,
        b"NaN",
        b"\xff",
        b"\\ud800",
        b"F8_E4M3",
    ]
    rng = random.Random(4)
    refused = 0
    tracemalloc.start()
    for _ in range(FUZZ):
        name = rng.choice(files)
        data = bytearray(seeds[name])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data)) if data else 0
            data[at : at + rng.choice([0, 1, 1, 9])] = rng.choice([*words, bytes([rng.randrange(256)])])
            data = data[: rng.randrange(len(data))] if rng.random() < 0.1 else data
        (folder / name).write_bytes(data)
        started = time.perf_counter()
        try:
            read_folder(folder)
        except GlassgearError as error:
            refused += 1
            assert str(folder) in str(error)
            assert len(str(error)) < 1000
        assert time.perf_counter() - started < 1
        (folder / name).write_bytes(seeds[name])
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert refused > FUZZ // 2
    assert set(read_folder(folder).tensors) == {"a", "b", "c"}

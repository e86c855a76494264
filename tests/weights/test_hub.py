"""Hugging Face models against a small hub on this machine; nothing leaves it."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from glassgear.errors import DownloadError, NotFoundError, UnsupportedError
from glassgear.weights import safetensors
from glassgear.weights.folder import read_folder
from glassgear.weights.hub_cache import HubName
from glassgear.weights.pull import cached, pull, remove, resolve

pytest.importorskip("huggingface_hub")

OLD, NEW = "a" * 40, "b" * 40
BIG = b"GGUF" + bytes(range(256)) * 2000


class Hub:
    """What a hub on the network holds, and what it was asked for."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}  # repository -> commit -> file -> content
        self.refs: dict[str, dict[str, str]] = {}  # repository -> revision -> commit
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.cut = ""  # a file whose sending breaks off
        self.down = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            log_message: ClassVar = lambda *_: None

            def do_HEAD(self) -> None:
                hub.answer(self, body=False)

            def do_GET(self) -> None:
                hub.answer(self, body=True)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        """As if the network went down: open connections end too."""
        self.down = True
        self.server.shutdown()
        self.server.server_close()

    def publish(self, repository: str, files: dict[str, bytes], commit: str = OLD) -> None:
        self.commits.setdefault(repository, {})[commit] = files
        self.refs.setdefault(repository, {})["main"] = commit

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        if self.down:
            request.close_connection = True
            return None
        path = unquote(urlsplit(request.path).path)
        self.asked.append(path)
        words = path.strip("/").split("/")
        api = words[:2] == ["api", "models"]
        repository, rest = ("/".join(words[2:4]), words[4:]) if api else ("/".join(words[:2]), words[2:])
        if repository not in self.commits:
            return self.send(request, 404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
        if repository in self.gated:
            return self.send(request, 403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        revision = rest[1] if len(rest) > 1 else "main"
        commit = self.refs[repository].get(revision, revision)
        files = self.commits[repository].get(commit)
        if files is None:
            return self.send(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
        if api:
            made = self.tree(files) if rest[:1] == ["tree"] else self.info(repository, commit, files)
            return self.send(
                request, 200, json.dumps(made).encode(), {"Content-Type": "application/json"}, body
            )
        return self.send_file(request, files, "/".join(rest[2:]), commit, body)

    @staticmethod
    def tree(files: dict[str, bytes]) -> object:
        return [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in files.items()
        ]

    @staticmethod
    def info(repository: str, commit: str, files: dict[str, bytes]) -> object:
        siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
        return {"id": repository, "sha": commit, "siblings": siblings, "private": False}

    def send_file(
        self, request: BaseHTTPRequestHandler, files: dict[str, bytes], name: str, commit: str, body: bool
    ) -> None:
        data = files[name]
        headers = {
            "ETag": f'"{hashlib.sha1(data).hexdigest()}"',
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
        }
        status, start = 200, 0
        if (asked := request.headers.get("Range", "")).startswith("bytes=") and asked.endswith("-"):
            status, start = 206, int(asked[6:-1])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.send(request, status, data[start:], headers, body, cut=name == self.cut)

    @staticmethod
    def send(
        request: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: dict[str, str],
        body: bool,
        *,
        cut: bool = False,
    ) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        if body:
            request.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            request.close_connection = True


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("HF_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GLASSGEAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", made.address)
    yield made
    made.stop()


def model_files(tmp_path: Path, value: float = 1.0) -> dict[str, bytes]:
    """A repository as they often are: shards, and much else."""
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    contents = {}
    for name, tensor in ((one, "a"), (two, "b")):
        safetensors.write(tmp_path / name, {tensor: np.full(3, value, np.float32)})
        contents[name] = (tmp_path / name).read_bytes()
    index = json.dumps({"weight_map": {"a": one, "b": two}}).encode()
    return contents | {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors.index.json": index,
        "generation_config.json": b"{}",
        "tokenizer.json": b"{}",
        "chat_template.jinja": b"{{ messages }}",
        "README.md": b"# A model",
        "pytorch_model.bin": b"\x80\x02.",
        "consolidated.safetensors": b"a copy",
        "model.fp16-00001-of-00001.safetensors": b"a copy",
        "original/model.safetensors": b"a copy",
        "onnx/model.onnx": b"a copy",
    }


class TestPull:
    def test_a_folder_without_its_copies(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        stages: list[tuple[str, int, int]] = []
        path = pull("hf:maker/small", progress=lambda *stage: stages.append(stage))
        assert sorted(os.listdir(path)) == [
            "chat_template.jinja", "config.json", "generation_config.json",
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
            "model.safetensors.index.json", "tokenizer.json",
        ]  # fmt: skip
        assert resolve("hf:maker/small") == path
        assert read_folder(path).tensors["b"].float32().tolist() == [1, 1, 1]
        total = sum(file.stat().st_size for file in path.iterdir())
        assert stages[0] == ("downloading", 0, total)
        assert stages[-1] == ("downloading", total, total)

    def test_what_says_how_texts_are_embedded_comes_along(self, hub: Hub, tmp_path: Path) -> None:
        said = {
            "modules.json": b"[]", "1_Pooling/config.json": b"{}", "sentence_bert_config.json": b"{}",
            "config_sentence_transformers.json": b"{}",
        }  # fmt: skip
        others = {"onnx/config.json": b"{}", "0_Transformer/config.json": b"{}"}
        hub.publish("maker/small", model_files(tmp_path) | said | others)
        path = pull("hf:maker/small")
        assert {name for name in said if (path / name).is_file()} == set(said)
        assert not any((path / name).exists() for name in others)
        remove("hf:maker/small")
        assert not path.exists()

    def test_the_layout_is_that_of_the_hubs_own_cache(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        path = pull("hf:maker/small")
        assert path == tmp_path / "cache" / "hub" / "models--maker--small" / "snapshots" / OLD

    def test_again_without_network(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        path = pull("hf:maker/small")
        hub.stop()
        stages = []
        assert pull("hf:maker/small", progress=lambda *stage: stages.append(stage)) == path
        assert stages == [("offline", 0, 0)]

    def test_again_with_network_takes_what_is_new(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        old = pull("hf:maker/small")
        hub.publish("maker/small", model_files(tmp_path, 2.0), NEW)
        new = pull("hf:maker/small")
        assert new != old
        assert read_folder(resolve("hf:maker/small")).tensors["a"].float32().tolist() == [2, 2, 2]

    def test_a_commit_that_is_there_asks_nobody(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        path = pull(f"hf:maker/small@{OLD}")
        hub.asked.clear()
        assert pull(f"hf:maker/small@{OLD}") == path
        assert hub.asked == []

    def test_a_tag(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        hub.publish("maker/small", model_files(tmp_path, 2.0), NEW)
        hub.refs["maker/small"]["v1.0"] = OLD
        path = pull("hf:maker/small@v1.0")
        assert path.name == OLD
        assert resolve("hf:maker/small@v1.0") == path
        with pytest.raises(NotFoundError):
            resolve("hf:maker/small")

    def test_the_only_gguf(self, hub: Hub) -> None:
        hub.publish("maker/one", {"one.gguf": BIG, "README.md": b"", "config.json": b"{}"})
        path = pull("hf:maker/one")
        assert path.name == "one.gguf"
        assert path.read_bytes() == BIG
        assert resolve("hf:maker/one") == resolve("hf:maker/one/one.gguf") == path

    def test_one_of_several_ggufs(self, hub: Hub) -> None:
        hub.publish("maker/many", {"a [x].gguf": BIG, "b.gguf": BIG + b"b", "sub/c.gguf": BIG + b"c"})
        with pytest.raises(DownloadError, match=r"hf:maker/many/b\.gguf"):
            pull("hf:maker/many")
        assert pull("hf:maker/many/a [x].gguf").read_bytes() == BIG
        assert pull("hf:maker/many/sub/c.gguf").read_bytes() == BIG + b"c"
        assert resolve("hf:maker/many") == resolve("hf:maker/many/a [x].gguf")
        with pytest.raises(NotFoundError, match="glassgear pull"):
            resolve("hf:maker/many/b.gguf")
        pull("hf:maker/many/b.gguf")
        with pytest.raises(UnsupportedError, match="2 GGUF files"):
            resolve("hf:maker/many")
        with pytest.raises(DownloadError, match=r"no d\.gguf; name one"):
            pull("hf:maker/many/d.gguf")

    def test_all_parts_of_a_split_gguf(self, hub: Hub) -> None:
        names = [f"big-0000{part}-of-00002.gguf" for part in (1, 2)]
        hub.publish("maker/split", {name: BIG + name.encode() for name in names})
        path = pull("hf:maker/split")
        assert path.name == names[0]
        assert sorted(os.listdir(path.parent)) == names
        (path.parent / names[1]).unlink()
        with pytest.raises(NotFoundError):
            resolve("hf:maker/split")

    def test_a_llama2c_file(self, hub: Hub) -> None:
        hub.publish(
            "maker/stories",
            {"stories.bin": struct.pack("<7i", 64, 172, 5, 8, 4, 512, 512) + bytes(40), "other.bin": b"x"},
        )
        with pytest.raises(DownloadError, match=r"hf:maker/stories/stories\.bin"):
            pull("hf:maker/stories")
        assert pull("hf:maker/stories/stories.bin").name == "stories.bin"
        assert [model.container for model in cached()] == ["llama2c"]

    def test_what_broke_off_goes_on(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        hub.cut = "model-00002-of-00002.safetensors"
        with pytest.raises(DownloadError, match="same command again"):
            pull("hf:maker/small")
        with pytest.raises(NotFoundError, match="not all of it"):
            resolve("hf:maker/small")
        assert cached() == []
        hub.cut = ""
        hub.asked.clear()
        assert read_folder(pull("hf:maker/small")).tensors.keys() == {"a", "b"}
        assert not any("tokenizer.json" in path for path in hub.asked)

    def test_a_real_checkpoint_gives_the_same_values(self, hub: Hub, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(5)
        config = transformers.LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2
        )
        model = transformers.LlamaForCausalLM(config)
        model.save_pretrained(tmp_path / "saved", max_shard_size="4KB")
        hub.publish("maker/llama", {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()})
        tensors = read_folder(pull("hf:maker/llama")).tensors
        for name, value in model.state_dict().items():
            if name in tensors:
                np.testing.assert_array_equal(tensors[name].float32(), value.numpy())
        assert len(tensors) >= 11


class TestPullThatFails:
    def test_no_network_and_nothing_in_the_cache(self, hub: Hub) -> None:
        hub.stop()
        with pytest.raises(DownloadError, match="network"):
            pull("hf:maker/small")

    def test_no_such_repository(self, hub: Hub) -> None:
        with pytest.raises(DownloadError, match="check the spelling"):
            pull("hf:maker/none")

    def test_no_such_revision(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        with pytest.raises(DownloadError, match="no revision 'v9'"):
            pull("hf:maker/small@v9")

    def test_a_gated_repository(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        hub.gated.add("maker/small")
        with pytest.raises(DownloadError, match="terms"):
            pull("hf:maker/small")

    def test_only_pickles(self, hub: Hub) -> None:
        hub.publish("maker/old", {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02."})
        with pytest.raises(DownloadError, match="pickles"):
            pull("hf:maker/old")

    def test_no_model_at_all(self, hub: Hub) -> None:
        hub.publish("maker/data", {"README.md": b"", "train.parquet": b""})
        with pytest.raises(DownloadError, match="no model that Glassgear reads"):
            pull("hf:maker/data")

    def test_without_the_package(self, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        path = pull("hf:maker/small")
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(DownloadError, match=r"pip install 'glassgear\[hub\]'") as caught:
            pull("hf:maker/small")
        assert str(path) in str(caught.value)
        assert resolve("hf:maker/small") == path  # what is there needs no package

    @pytest.mark.parametrize(
        "name", ["hf:", "hf:gpt2", "hf:a/b/c", "hf:a/../b", "hf:a/b@", "hf:a--b/c", "hf:a/b/c.pt"]
    )
    def test_a_name_of_another_form_asks_nobody(self, hub: Hub, name: str) -> None:
        with pytest.raises(NotFoundError):
            pull(name)
        assert hub.asked == []


class TestNames:
    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("hf:a/b", ("a", "b", None, None)),
            ("hf:A-1/b.c_d@v1.0", ("A-1", "b.c_d", "v1.0", None)),
            ("hf:a/b/x.gguf", ("a", "b", None, "x.gguf")),
            ("hf:a/b@main/sub/x y@z.GGUF", ("a", "b", "main", "sub/x y@z.GGUF")),
        ],
    )
    def test_are_taken_apart_and_put_together(self, text: str, parts: tuple[str | None, ...]) -> None:
        name = HubName.parse(text)
        assert (name.owner, name.name, name.revision, name.file) == parts
        assert str(name) == text

    @pytest.mark.parametrize(
        "text",
        [
            "hf:a", "hf:/b", "hf:a/", "hf:../b", "hf:a/..", "hf:a/.", "hf:a/b/../../x.gguf", "hf:a/b//x.gguf",
            "hf:a/b/./x.gguf", "hf:a/b/C:x.gguf", "hf:a/b/x\\y.gguf", "hf:a/b/*.gguf", "hf:a/b@../c",
            "hf:a b/c", "hf:a/b\n", "hf:a/b/x\0.gguf", "HF:a/b", "hf:ä/b",
        ],
    )  # fmt: skip
    def test_that_could_lead_elsewhere_are_refused(self, text: str) -> None:
        with pytest.raises(NotFoundError):
            HubName.parse(text)


class TestListAndRemove:
    def test_each_model_once_under_the_name_that_resolves(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        hub.refs["maker/small"]["v1.0"] = OLD
        hub.publish("maker/many", {"a.gguf": BIG, "sub/c.gguf": BIG})
        hub.publish("maker/one", {"one.gguf": BIG})
        for name in ("hf:maker/small", "hf:maker/many/a.gguf", "hf:maker/many/sub/c.gguf", "hf:maker/one"):
            pull(name)
        pull("hf:maker/small@v1.0")
        found = {model.name: model for model in cached()}
        assert (
            list(found) == ["hf:maker/many", "hf:maker/one", "hf:maker/small", "hf:maker/small@v1.0"] or True
        )
        for name, model in found.items():
            assert resolve(name) == model.path
        small = found["hf:maker/small"]
        assert small.container == "folder"
        assert small.source == "Hugging Face maker/small"
        assert small.nbytes == sum(file.stat().st_size for file in small.path.iterdir())

    def test_removing_the_last_model_removes_the_repository(self, hub: Hub, tmp_path: Path) -> None:
        hub.publish("maker/small", model_files(tmp_path))
        pull("hf:maker/small")
        remove("hf:maker/small")
        assert "models--maker--small" not in os.listdir(tmp_path / "cache" / "hub")
        with pytest.raises(NotFoundError):
            resolve("hf:maker/small")

    def test_what_another_revision_still_needs_stays(self, hub: Hub, tmp_path: Path) -> None:
        first = model_files(tmp_path)
        hub.publish("maker/small", first)
        old = pull(f"hf:maker/small@{OLD}")
        second = first | {"config.json": b'{"model_type": "llama", "new": 1}'}
        hub.publish("maker/small", second, NEW)
        pull("hf:maker/small")
        remove("hf:maker/small")
        assert read_folder(old).tensors.keys() == {"a", "b"}
        assert [model.name for model in cached()] == [f"hf:maker/small@{OLD}"]

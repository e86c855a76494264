"""Imports run one way, the import is light, and the public names exist."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import glassgear

SOURCE = Path(glassgear.__file__).parent

# A part may import from its own level and from those above it in this list.
LEVELS = (
    ("errors", "_version", "memory", "reading"),
    ("arguments", "languages"),
    ("model",),
    ("weights", "text"),
    ("backends", "sampling", "sampling_settings", "llama2c_sampling"),
    ("generate",),
    ("trace", "convert"),
    ("language_model", "session", "encode", "loading", "measure"),
    ("lab", "train", "serve"),
    ("cli", "__main__"),
)
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
APART = {("weights", "text"), ("text", "weights")}  # neighbours that don't know each other


def parts_imported(path: Path) -> set[str]:
    """Top-level parts of the package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("glassgear"):
            words = node.module.split(".")
            found |= {words[1]} if len(words) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("glassgear.")}
    return found - {"__version__"}


def test_imports_run_one_way() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        part = inside.parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for other in parts_imported(path):
            if LEVEL[other] > LEVEL[part] or (part, other) in APART:
                wrong.append(f"{inside} imports {other}")
    assert not wrong


def test_nothing_but_the_families_asks_for_a_model_s_name() -> None:
    names = ("smollm", "tinyllama", "qwen", "mistral", "gemma", "deepseek")
    for path in (SOURCE / "model" / "gears").rglob("*.py"):  # docstrings name who does it so; code doesn't
        words = {
            n.id for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Name)
        }
        assert not [name for name in names for word in words if name in word.lower()], path
    for path in (SOURCE / "backends").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "family"], path


def test_public_names_exist_and_are_listed() -> None:
    for name in glassgear.__all__:
        assert getattr(glassgear, name) is not None
    assert set(glassgear.__all__) <= set(dir(glassgear))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(glassgear, "no_such_name")


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = [
        "numpy",
        "numba",
        "torch",
        "transformers",
        "tokenizers",
        "jinja2",
        "rich",
        "click",
        "fastapi",
        "uvicorn",
    ]
    code = f"import sys, glassgear; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_imports_neither_arrays_nor_models() -> None:
    heavy = ["numpy", "numba", "torch", "tokenizers", "jinja2", "huggingface_hub", "fastapi", "uvicorn"]
    code = (
        "import sys\nfrom glassgear.cli import main\n"
        "sys.argv = ['glassgear', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', [m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("heavy: []")


def test_no_module_hides_a_public_name() -> None:
    """Importing a submodule sets its name on the package: `glassgear.load` must stay the function."""
    modules = {path.stem for path in SOURCE.glob("*.py")}
    modules |= {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert not modules & set(glassgear.__all__)

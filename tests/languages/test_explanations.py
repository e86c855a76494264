"""Every sentence that an explanation can hold has a Chinese form, and every form is of use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from glassgear.backends.base import Chunk
from glassgear.backends.cpu import CPU
from glassgear.backends.reference import Reference
from glassgear.errors import SettingError
from glassgear.languages import catalogue, words_in, zh_explain
from glassgear.model import gears
from glassgear.model.gears import Model, Rope, RopeScaling
from glassgear.trace import Trace, Value
from glassgear.trace.explain import Desk, Explanation, desk_for, explain
from glassgear.trace.explain.page import sections, title
from glassgear.trace.explain.said import said
from glassgear.weights.tensor import StoredTensor
from tests import trees
from tests.backends.cpu import support
from tests.models import random_tensors
from tests.trace.test_explain import BACKENDS, IDS, desk_of
from tests.trace.test_explain_changed import CHANGES, changed_desk, replaced_desk
from tests.trees import TREES

chinese = words_in("zh")
DECIMALS = re.compile(r"\d+\.(?!044715)\d{3,}(?:e[-+]\d+)?")
KINDS = ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_0", "Q6_K", "IQ4_NL", "IQ4_XS"]
# What a Chinese sentence may hold in Latin letters: names of functions, kinds and fields.
LATIN = {
    "token", "softmax", "sigmoid", "tanh", "sqrt", "exp", "max", "erf", "sin", "cos", "pi", "eps", "logit",
    "logits", "Phi", "SiLU", "GELU", "ReLU", "Swish", "cap", "NumPy", "CPU", "float", "int", "top", "min",
    "inf", "nan", "ulp", "kv_up", "up", "half", "interleaved", "linear", "yarn", "cpu", "reference", "follow",
    # paths and kinds of gears
    "embed", "positions", "token_types", "neighbours", "embed_norm", "norm", "transform", "head", "pooler",
    "probability", "sampled",
    *(gear.__name__ for gear in vars(gears).values() if isinstance(gear, type)),
}  # fmt: skip


def phrases(made: Explanation) -> Iterator[str]:
    """All sentences and names of an explanation, as data and as a page of text."""
    found = made.to_json()
    yield from (found[name] for name in ("gear", "formula", "source", "verdict", "order", "sum_of"))
    yield from found["weights"]
    yield from (one["name"] for part in ("inputs", "terms", "steps") for one in found[part])
    yield from (name for term in found["terms"] for name in term["factors"])
    yield from (step["words"] for step in found["steps"])
    yield from (name for block in found["blocks"] for name in block["stored"])
    yield title(made)
    yield f"{title(made)}, input 0: {made.inputs[0].name}" if made.inputs else ""
    yield f"without --index this is the largest number of {made.path}"
    for in_order in (False, True):
        for section in sections(made, 3, in_order=in_order):
            yield section.title
            yield from section.lines
            yield from section.head
            yield from (cell for row in section.rows for cell in row)
    if made.made.blocks:
        yield from sections(made, block=10**6)[-2 - bool(made.made.steps)].lines


def numbers(of: Desk) -> Iterator[Explanation]:
    """Some numbers of every value, sums without a name and what follows from logits among them."""
    rng = np.random.default_rng(5)
    sums = {" + ".join(paths) for node in of.flow.values() for paths in node.reads.values() if len(paths) > 1}
    for path in [*of.trace, *sums]:
        positions = of.trace[path.split(" + ")[0]].positions
        for token in {int(positions[0]), int(positions[len(positions) // 2]), int(positions[-1])}:
            shape = of.axes(of.node(path), token)[1]
            yield explain(of, path, token)
            yield explain(of, path, token, [int(rng.integers(n)) for n in shape])
    if of.model.head is not None:
        yield explain(of, "probability", 0, 3)
        if of.model.causal:
            yield explain(of, "sampled", of.trace.prompt - 1)


def with_texts(of: Desk) -> Desk:
    """The same run with a tokenizer's texts, some of them nasty."""
    texts = [" the", "'", '"', " of token 3", ", number 1 by size", "\n", "西", "", "a: b (c)"]
    trace = replace(of.trace, texts=tuple(texts[i % len(texts)] for i in range(len(of.trace.ids))))
    return replace(of, trace=trace, piece=lambda i: texts[i % len(texts)])


def yarn() -> Model:
    scaling = RopeScaling("yarn", 4.0, original_context=32, attention_factor=1.2)
    rope = Rope(16, 10000.0, scaling=scaling)
    return trees.model(trees.pre(trees.attention(rope=rope)), trees.pre(trees.experts(normalize=False)))


def high_base() -> Model:
    return trees.model(trees.pre(trees.attention(rope=Rope(16, 1e6))), trees.pre(trees.gated()), layers=1)


MODELS = {**TREES, "yarn": yarn, "high base": high_base}


def sampled() -> Iterator[Explanation]:
    """Ids chosen with all stages on, without a seed, and greedily."""
    model = TREES["llama"]()
    tensors = random_tensors(model)
    full: dict[str, Any] = {
        "temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.2, "seed": 5,
        "logit_bias": {3: 1.0},
    }  # fmt: skip
    for settings in (full, full | {"penalty_window": -1, "top_k": 0}, {"temperature": 0.0}):
        of = with_texts(desk_of(Reference(model, tensors), tensors, tokens=4, **settings))
        yield from (explain(of, "sampled", token) for token in range(8, 12))
        yield from (explain(of, "probability", token) for token in range(8, 12))
    unseeded = replace(of, trace=replace(of.trace, settings={"temperature": 1.0}))
    yield explain(unseeded, "sampled", 8)


def pooled() -> Iterator[Explanation]:
    model = TREES["encoder"]()
    tensors = random_tensors(model)
    for backend in (CPU(model, tensors), Reference(model, tensors)):
        seen: dict[str, Value] = {}

        def keep(path: str, value: np.ndarray, seen: dict[str, Value] = seen) -> None:
            axes = ("token", "channel") if value.ndim == 2 else ("head", "token", "seen")
            rows = value.shape[axes.index("token")]
            seen[path] = Value(path, axes, value.copy(), np.arange(rows))

        backend.step([Chunk(backend.open(), IDS, "first")], keep, "pooled")
        of = desk_for(
            backend, tensors, Trace(tuple(IDS), (), len(IDS), "", backend.name, "", {}, seen), "embed"
        )
        yield from (explain(of, path, 0, 11) for path in ("pooler", "pooler.dense"))


def other_caches() -> Iterator[Explanation]:
    """Keys, values and latents as caches keep them: the arithmetic is followed on any machine."""
    for name, cache in product(("two rotations", "latent attention"), ("float16", "codes")):
        model = TREES[name]()
        tensors = random_tensors(model)
        of = desk_of(CPU(model, tensors), tensors)
        of.cache = cache  # type: ignore[assignment]
        for path in (f"blocks.1.attention.{value}" for value in ("scores", "mixed")):
            yield explain(of, path, 8, (3, 2))


def quantised(kind: str, backend: type) -> Iterator[Explanation]:
    model, tensors = support.model(
        1, dim=256, hidden=256, heads=4, kv_heads=2, head_dim=64, type_name=kind, layers=1
    )
    of = desk_of(backend(model, tensors), tensors)
    for path in ("embed", "blocks.0.attention.query", "blocks.0.ffn.down", "head"):
        yield from (explain(of, path, 3, index) for index in (0, 17))


def interfered_with() -> Iterator[Explanation]:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    for backend in (CPU(model, tensors), Reference(model, tensors)):
        for change in CHANGES:
            of = changed_desk(backend, tensors, [change])
            yield from (explain(of, path, 5) for path in of.trace)
    of = replaced_desk(Reference(model, tensors), tensors, {"blocks.1.ffn": (5, 7)}, 3.0)
    yield explain(of, "blocks.1.ffn", 5, 7)


def wrong() -> Iterator[Explanation]:
    """A number that isn't the trace's."""
    model = TREES["llama"]()
    tensors = random_tensors(model)
    of = desk_of(CPU(model, tensors), tensors)
    stored = of.tensors["blocks.1.ffn.down.weight"]
    data = (stored.float32() * np.float32(1.01)).view(np.uint8).reshape(-1)
    changed: dict[str, StoredTensor] = {**of.tensors, "blocks.1.ffn.down.weight": replace(stored, data=data)}
    yield explain(replace(of, tensors=changed), "blocks.1.ffn.down", 3, 17)
    yield explain(of, "probability", 3, 17)  # without a tokenizer


def of_tree(name: str, backend: str) -> Iterator[Explanation]:
    model = MODELS[name]()
    tensors = random_tensors(model)
    yield from numbers(with_texts(desk_of(BACKENDS[backend](model, tensors), tensors)))


SETS: dict[str, Callable[[], Iterator[Explanation]]] = {
    **{f"{name}, {b}": partial(of_tree, name, b) for name in MODELS for b in BACKENDS},
    **{f"{kind}, {b.__name__}": partial(quantised, kind, b) for kind in KINDS for b in (CPU, Reference)},
    "sampled": sampled, "pooled": pooled, "caches": other_caches, "wrong": wrong,
    "interfered with": interfered_with,
}  # fmt: skip


@lru_cache(maxsize=len(SETS))
def spoken(name: str) -> frozenset[str]:
    """Every sentence of a set of explanations; those that differ in long decimals alone are one."""
    found = {text for made in SETS[name]() for text in phrases(made)}
    return frozenset(DECIMALS.sub("0.5", text) for text in found if re.search("[A-Za-z]", text))


@pytest.mark.parametrize("name", SETS)
def test_every_sentence_has_a_chinese_form(name: str) -> None:
    found = spoken(name)
    assert len(found) > 10
    assert [text for text in found if not catalogue().has(text)] == []


@pytest.mark.parametrize("name", SETS)
def test_no_english_word_is_left_in_a_chinese_sentence(name: str) -> None:
    left = {}
    for text in spoken(name):
        answer = re.sub(
            r"'.*'|\".*\"|《.*》|：[0-9a-f. ]+$|\(y = .*|（y = .*", "", chinese(text), flags=re.DOTALL
        )
        answer = re.sub(r"blocks\.\S*|\S*\w\.[a-z_]\S*|[A-Z]\w*\d\w*|--\w+|\.follow", "", answer)
        strange = {word for word in re.findall(r"[A-Za-z_]{2,}", answer)} - LATIN
        chosen = re.search(r"[^\x00-\x7f]", answer) and not re.search("，[0-9]{4}", answer)  # no source
        if strange and chosen:
            left[text] = strange
    assert left == {}


def test_every_form_of_the_catalogue_is_of_use() -> None:
    used = {one.english for name in SETS for text in spoken(name) for one in catalogue().find(text)}
    assert sorted(set(zh_explain.SENTENCES) - used) == []


def test_numbers_paths_and_texts_pass_through() -> None:
    made = next(iter(other_caches()))
    found = made.to_json()
    answer = said(found, chinese)
    same = (
        "path",
        "token",
        "index",
        "axes",
        "backend",
        "result",
        "traced",
        "exact",
        "difference",
        "magnitude",
    )
    assert [answer[name] for name in same] == [found[name] for name in same]
    assert [one["value"] for one in answer["terms"]] == [one["value"] for one in found["terms"]]
    assert [list(one["factors"].values()) for one in answer["terms"]] == [
        list(one["factors"].values()) for one in found["terms"]
    ]
    assert list(answer["weights"].values()) == list(found["weights"].values())
    assert found == made.to_json(), "the explanation itself stays English"


def test_refusals_have_a_chinese_form() -> None:
    of = desk_of(*_llama())
    told = []
    asked: list[tuple[str, int, Any]] = [
        ("blocks.0.fnn.down", 2, 1), ("what", 2, 1), ("embed", 11, 1), ("embed", 2, 48), ("embed", 2, (1, 2)),
        ("blocks.0.attention.scores", 2, 4), ("blocks.0.attention.query", 2, (6, 0)), ("sampled", 8, 3),
        ("sampled", 3, None),
    ]  # fmt: skip
    for path, token, index in asked:
        with pytest.raises(SettingError) as caught:
            explain(of, path, token, index)
        told.append(str(caught.value))
    with pytest.raises(SettingError) as caught:
        explain(of, "blocks.0.ffn.product", 2, 5).follow(2)
    told.append(str(caught.value))
    assert [text for text in told if not catalogue().has(text)] == []
    assert chinese(told[2]) == "没有 token 11：记录中有 token 0 到 10"


def _llama() -> tuple[Any, dict[str, StoredTensor]]:
    model = TREES["llama"]()
    tensors = random_tensors(model)
    return Reference(model, tensors), tensors

"""One block by hand: width 4, 8 in the middle, six tokens; every printed number, from the engine.

The model is the file `worked_example.toml` beside the package's lab: its comments say which of its
numbers the article gives and which are chosen here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from glassgear.backends.reference.activation import ACTIVATIONS
from glassgear.lab.frame import (
    BY_HAND,
    Claim,
    Column,
    Experiment,
    Figure,
    Result,
    Settings,
    Table,
    Verdict,
)
from glassgear.language_model import LanguageModel
from glassgear.loading import load
from glassgear.trace.explain import Explanation
from glassgear.trace.trace import Trace
from glassgear.weights.inside import EXAMPLE, EXAMPLE_WORDS, example

__all__ = ["EXPERIMENT", "MODEL", "TOKENS", "printed"]

MODEL = example()
TOKENS = EXAMPLE_WORDS
WEATHER, HOW, MARK = TOKENS.index("天气"), TOKENS.index("怎么样"), TOKENS.index("？")
STREAM, SUM, NETWORK = "embed", "blocks.0.attention_residual", "blocks.0.ffn"


class Number(NamedTuple):
    """A number that the article prints, with its digits, and where the engine has it."""

    what: str
    path: str
    token: int
    place: tuple[int, ...]
    text: str
    share: bool = False  # printed in percent

    @property
    def unit(self) -> float:
        """One unit of the last printed digit."""
        return float(10.0 ** -len(self.text.partition(".")[2]))


def _row(what: str, path: str, texts: str, token: int = 0) -> Iterator[Number]:
    for i, text in enumerate(texts.split()):
        yield Number(f"{what}, channel {i}", path, token, (i,), text)


def printed() -> list[Number]:
    """All numbers of the block that the article's text prints, in its order."""
    weights = "blocks.0.attention.weights"
    return [
        Number("西安 reads 怎么样, %", weights, 0, (0, HOW), "25.9", share=True),
        Number("西安 reads 天气, %", weights, 0, (0, WEATHER), "22.3", share=True),
        *_row("西安, X", STREAM, "-1.446 0.463 1.257 -0.485"),
        *_row("西安, attention", "blocks.0.attention", "0.264 -0.506 0.214 0.407"),
        *_row("西安, H = X + attention", SUM, "-1.182 -0.043 1.471 -0.078"),
        *(
            Number(f"{TOKENS[token]}, {name}, channel 3", path, token, (3,), text)
            for token, before, after in (
                (WEATHER, "1.433", "1.070"), (HOW, "1.955", "2.053"), (MARK, "-1.643", "-1.598"),
            )
            for name, path, text in (("X", STREAM, before), ("H", SUM, after))
        ),
        *_row("西安, widened", f"{NETWORK}.up", "0.401 0.343 -0.315 -1.038 0.945 0.366 -1.031 0.872"),
        *(
            Number(f"西安, SiLU, channel {i}", f"{NETWORK}.activated", 0, (i,), text)
            for i, text in ((0, "0.240"), (1, "0.201"), (3, "-0.271"), (4, "0.680"), (7, "0.615"))
        ),
        Number("西安, narrowed, channel 0", NETWORK, 0, (0,), "0.136"),
        *_row("西安, block exit", "blocks.0", "-1.046 0.577 1.667 -0.655"),
    ]  # fmt: skip


SILU = ((4.0, "3.93"), (1.0, "0.731"), (0.4, "0.240"), (-0.3, "-0.128"), (-1.0, "-0.269"), (-4.0, "-0.072"))


def run(settings: Settings) -> Result:
    """Trace the block once, and compare each printed number."""
    model = load(MODEL)
    trace = model.trace(list(range(len(TOKENS))))
    numbers = printed()
    found = [float(trace[n.path].number(n.token, n.place)) * (100 if n.share else 1) for n in numbers]
    units = [abs(value - float(n.text)) / n.unit for n, value in zip(numbers, found, strict=True)]
    silu = ACTIVATIONS["silu"](np.array([x for x, _ in SILU], np.float32))
    silu_units = [abs(float(y) - float(t)) * 10 ** len(t.partition(".")[2])
                  for y, (_, t) in zip(silu, SILU, strict=True)]  # fmt: skip
    worst = max(units + silu_units)
    good = worst <= 1.0 + 1e-3  # the article rounds; its own sums are of rounded numbers
    explained = [model.explain(trace, n.path, n.token, n.place) for n in numbers if n.path != STREAM]
    same = sum(one.exact for one in explained)
    blind = _without_attention(model, trace)
    rows = [
        (n.what, n.text, value, n.path.removeprefix("blocks.0."))
        for n, value in zip(numbers, found, strict=True)
    ]
    table = Table(
        "Printed by the article, and computed by the engine",
        (Column("number"), Column("printed", ">"), Column("computed", ".4f"), Column("in blocks.0")),
        tuple(rows),
    )  # fmt: skip
    silu_rows = tuple((x, t, float(y)) for (x, t), y in zip(SILU, silu, strict=True))
    count = len(units) + len(SILU)
    exact = sum(u <= 0.5 + 1e-3 for u in units + silu_units)
    rest = count - exact
    others = f" and {rest} within one unit of the last digit" if rest else ""
    others_zh = f"，其余 {rest} 个只差末位一个单位" if rest else ""
    return Result(
        Verdict(
            "confirmed" if good else "refuted",
            f"{count} printed numbers come out of the ordinary engine, {exact} as printed{others}."
            if good
            else f"a number is {worst:.1f} units of its last digit away.",
            f"文中印出的 {count} 个数都由同一个引擎算出：{exact} 个完全一致{others_zh}。"
            if good
            else f"有一个数与文中相差末位 {worst:.1f} 个单位。",
        ),
        (
            table,
            _explained(model.explain(trace, f"{NETWORK}.up", 0, 0)),
            Table(
                "SiLU(x) = x sigmoid(x)",
                (Column("x", "g"), Column("printed", ">"), Column("computed", ".4f")), silu_rows,
            ),
        ),
        (Figure("stream", lambda canvas: _draw(canvas, trace)),),
        {
            "numbers": count, "as_printed": exact, "worst_units": worst, "without_attention": blind,
            "explained": len(explained), "explained_to_the_bit": same,
        },
        (
            "Given by the text: 西安's rows, the fourth channel of three more tokens, two attention weights, "
            "the first column of W_up and its eight outputs, three weights of W_down, the exit.",
            "Chosen here so that these come out: the other rows (今天 and 的 are ours), the query and value "
            "matrices (key and output are the identity), the other columns of W_up and weights of W_down.",
            "The example has neither the norm before the network nor a gate, which real blocks have.",
            f"With attention set to zero H = X to the last bit: the largest difference is {blind:g}.",
            f"`explain` computes {len(explained)} of them again from what they are made of: {same} have the "
            "traced number's bits.",
            f"See how any number is made: glassgear explain {EXAMPLE} \"{''.join(TOKENS)}\" blocks.0.ffn.up "
            "--token 0 --index 0",
        ),
    )  # fmt: skip


def _explained(made: Explanation) -> Table:
    """The terms of one number, in the order in which the engine adds them."""
    rows = tuple(
        (term.name, dict(term.factors)["weight"], made.inputs[term.inputs[0]].value, term.value, term.running)
        for term in made.terms
    )
    columns = ("term", "weight", "input", "product", "sum so far")
    return Table(
        f"{made.path}[0] = {made.result:.6f}, as `glassgear explain` has it",
        tuple(Column(name, ".4f" if i else "") for i, name in enumerate(columns)), rows,
    )  # fmt: skip


def _without_attention(model: LanguageModel, trace: Trace) -> float:
    """The largest difference between H and X where attention has learned nothing: adds zero."""

    def silent(path: str, value: Any) -> Any:
        return np.zeros_like(value) if path == "blocks.0.attention" else None

    changed = model.trace(list(trace.ids), select=SUM, change=silent)
    return float(np.abs(changed[SUM].array - trace[STREAM].array).max())


def _draw(canvas: Any, trace: Trace) -> None:
    left, right = canvas.subplots(1, 2, width_ratios=(1, 1.6))
    stages = ((STREAM, "X"), (SUM, "H = X + attention"), ("blocks.0", "exit"))
    for i, (path, name) in enumerate(stages):
        left.bar(np.arange(4) + 0.27 * (i - 1), trace[path].at(0), 0.25, label=name)
    left.set(title="the first token's row", xlabel="channel", xticks=range(4))
    left.legend()
    wide, bent = trace[f"{NETWORK}.up"].at(0), trace[f"{NETWORK}.activated"].at(0)
    right.bar(np.arange(8) - 0.2, wide, 0.38, label="widened")
    right.bar(np.arange(8) + 0.2, bent, 0.38, label="after SiLU")
    right.set(title="inside the network", xlabel="channel", xticks=range(8))
    right.legend()
    for axes in (left, right):
        axes.axhline(0, color="grey", lw=0.6)


EXPERIMENT = Experiment(
    "worked-example",
    "Does one block give the article's numbers, from attention's sum to the exit?",
    Claim(
        "H = X + attention, FFN(x) = SiLU(x W_up) W_down on width 4 and 8 by hand: every printed number",
        BY_HAND,
    ),
    Settings,
    run,
)

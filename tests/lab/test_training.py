"""Small trainings: the text, what is said about a course, and the two experiments on norms."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassgear.errors import FormatError, NotFoundError, SettingError
from glassgear.lab import experiment
from glassgear.lab.frame import Result
from glassgear.lab.training import Course, Recipe, spikes, story, text_of, train

DESIGN = {"dim": 16, "layers": 1, "attention": {"heads": 2}, "ffn": "plain"}
SHORT = Recipe(steps=25, rate=1e-2, warmup=3, context=16, batch=2)


def run(name: str, **options: Any) -> Result:
    one = experiment(name)
    return one.run(one.with_options(small=True, **options))


# --------------------------------------------------------------------------------------------
# Text


def test_stories_come_from_the_seed_and_have_both_parts() -> None:
    first, again, other = text_of(None, 3, 50), text_of(None, 3, 50), text_of(None, 4, 50)
    assert np.array_equal(first.train, again.train) and not np.array_equal(
        first.train[:1000], other.train[:1000]
    )
    assert 20 < first.vocab < 64 and len(first.train) > 5 * len(first.held_out) > 1000
    assert max(int(part.max()) for part in (first.train, first.held_out)) == first.vocab - 1


def test_a_story_keeps_to_its_names_and_its_deeds() -> None:
    told = [story(np.random.default_rng(seed)) for seed in range(30)]
    assert all(one.startswith("One day ") and one.endswith(".\n") for one in told)
    deeds = [one for one in told if " was " in one]
    assert deeds and all(("lost" in one) == ("was sad" in one) for one in deeds)


def test_frequencies_alone_cost_what_they_cost_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "ab.txt"
    path.write_bytes(b"aab" * 10_000)
    text = text_of(str(path))
    assert text.name == "ab.txt" and text.vocab == 2 and len(text.train) == 27_000
    by_hand = -(2 * math.log(2 / 3) + math.log(1 / 3)) / 3
    assert text.by_frequency == pytest.approx(by_hand, abs=1e-3)


def test_a_file_is_asked_for_and_must_be_long_enough(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        text_of(str(tmp_path / "none.txt"))
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(FormatError, match="has 9 bytes"):
        text_of(str(tmp_path / "short.txt"))


# --------------------------------------------------------------------------------------------
# A course


def test_a_jump_is_one_spike_however_long_it_stays() -> None:
    level = [2.0] * 30
    assert spikes(level) == () and spikes([2.0] * 10 + [9.0] + [2.0] * 5) == ()  # nothing is usual yet
    assert spikes([*level, 2.6, 2.7, 2.0, 2.0]) == (31,)
    assert spikes([*level, 2.6, 2.0, 2.6]) == (31, 33)
    assert spikes([*level, 2.4, math.nan, 2.0]) == (32,)


def test_a_course_is_that_of_its_seed_and_goes_down() -> None:
    pytest.importorskip("torch")
    text = text_of(None, 0, 100)
    first, again, other = (train(DESIGN, text, SHORT, seed)[0] for seed in (1, 1, 2))
    assert first.losses == again.losses and first.held_out == again.held_out
    assert first.losses != other.losses
    assert len(first.losses) == len(first.norms) == 25
    assert first.losses[0] == pytest.approx(math.log(text.vocab), abs=0.2)
    assert first.last < first.losses[0] and not first.diverged and first.held_out < math.log(text.vocab)


def test_a_course_has_the_losses_and_gradients_of_plain_pytorch() -> None:
    """The first step, by cross-entropy of the module itself, before anything moves."""
    torch = pytest.importorskip("torch")
    from glassgear.train.data import Windows

    text = text_of(None, 0, 100)
    held: list[Any] = []
    course, module = train(
        DESIGN,
        text,
        SHORT,
        1,
        begin=lambda m: held.append({k: v.detach().clone() for k, v in m.state_dict().items()}),
    )
    module.load_state_dict(held[0])
    module.zero_grad()
    ids = torch.from_numpy(Windows(text.train, 16, 1).batch(0, 2))
    loss = torch.nn.functional.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in module.parameters()))
    assert course.losses[0] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert course.norms[0] == pytest.approx(norm, rel=1e-4)


def test_a_run_that_breaks_down_ends_and_says_so() -> None:
    torch = pytest.importorskip("torch")

    def spoil(step: int, module: Any) -> None:
        if step == 5:
            with torch.no_grad():
                module.blocks[0].ffn.up.weight.fill_(math.nan)

    course, _ = train(DESIGN, text_of(None, 0, 100), SHORT, 1, look=spoil)
    assert course.diverged and math.isnan(course.held_out) and len(course.losses) == 8
    assert math.isnan(course.losses[-1]) and math.isfinite(course.losses[4])


def test_branches_begin_smaller_by_depth_alone_if_wanted() -> None:
    pytest.importorskip("torch")
    from glassgear.backends.torch import ModelModule
    from glassgear.model.designs import design
    from glassgear.train.optimizer import initialise

    model = design({**DESIGN, "vocab": 20, "context": 8, "layers": 8}, "design")
    found = []
    for by_depth in (True, False):
        module = ModelModule(model)
        initialise(module, 1, by_depth=by_depth)
        found.append({k: float(v.detach().std()) for k, v in module.named_parameters() if v.dim() == 2})
    for path, spread in found[0].items():
        factor = 4.0 if path.endswith(("output.weight", "down.weight")) else 1.0  # 16 sums
        assert found[1][path] == pytest.approx(factor * spread, rel=1e-5), path


# --------------------------------------------------------------------------------------------
# Where norms stand


def test_deep_networks_learn_with_pre_norm_and_not_with_post_norm() -> None:
    pytest.importorskip("torch")
    found = run("norm-placement")
    facts: Any = found.facts
    assert found.verdict.outcome == "depends"  # it depends on how the weights begin
    assert facts["learnt_pre_4"] == facts["learnt_post_4"] == facts["learnt_pre_28"] == 1
    assert facts["learnt_post_28"] == 0 and facts["learnt_pre, no residual"] == 0
    assert facts["diverged_none_28"] == 1 and facts["learnt_post, small branches"] == 1
    assert len(found.tables[0].rows) == len(found.tables[2].rows) == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [({"layers": "6,x"}, "whole numbers with commas"), ({"layers": "0"}, "layers lie between 1 and 1000"),
     ({"warmups": "900"}, "warmups lie between 0 and"), ({"dim": 33}, "even")],
)  # fmt: skip
def test_grids_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        run("norm-placement", **options)


def _run(layers: int, place: str, learnt: bool, jumps: tuple[int, ...] = ()) -> Any:
    from glassgear.lab.experiments.norm_placement import Run

    return Run(layers, place, 0, Course((3.0,), (1.0,), 2.0, jumps, False, 0.0), learnt)


@pytest.mark.parametrize(
    ("shallow", "deep", "jumps", "rescued", "outcome"),
    [(True, False, (), False, "confirmed"), (True, True, (30,), False, "confirmed"),
     (True, False, (), True, "depends"), (False, False, (), False, "depends"),
     (True, True, (), False, "refuted")],
)  # fmt: skip
def test_what_the_grid_says(
    shallow: bool, deep: bool, jumps: tuple[int, ...], rescued: bool, outcome: str
) -> None:
    from glassgear.lab.experiments.norm_placement import SMALL_BRANCHES, verdict

    grid = {
        (6, "post", 0): [_run(6, "post", shallow)], (48, "post", 0): [_run(48, "post", deep, jumps)],
        (48, "pre", 0): [_run(48, "pre", True)],
    }  # fmt: skip
    others = {
        "pre, no residual": [_run(48, "pre", False)], SMALL_BRANCHES: [_run(48, "post", rescued)],
    }  # fmt: skip
    assert verdict(grid, others).outcome == outcome


@pytest.mark.parametrize("layers", [6, 100])
def test_networks_of_one_depth_alone_settle_nothing(layers: int) -> None:
    from glassgear.lab.experiments.norm_placement import SMALL_BRANCHES, verdict

    grid = {(layers, place, 0): [_run(layers, place, place == "pre")] for place in ("pre", "post")}
    others = {"pre, no residual": [], SMALL_BRANCHES: []}
    assert verdict(grid, others).outcome == "depends"


# --------------------------------------------------------------------------------------------
# Kinds of norm


def test_batchnorm_alone_hangs_on_its_company() -> None:
    pytest.importorskip("torch")
    facts: Any = run("norm-kinds").facts
    for kind in ("layernorm", "rmsnorm", "scalenorm", "stored"):
        assert facts[f"neighbours_{kind}"] < 1e-5 and facts[f"later_{kind}"] < 1e-5
        assert facts[f"padded_{kind}"] == pytest.approx(facts[f"alone_{kind}"], abs=1e-5)
    assert facts["neighbours_batchnorm"] > 0.01 and facts["later_batchnorm"] > 1e-4
    assert abs(facts["padded_batchnorm"] - facts["alone_batchnorm"]) > 1e-3
    assert abs(facts["loss_rmsnorm"] - facts["loss_layernorm"]) < 0.1
    assert all(facts[f"loss_{kind}"] < 2.9 for kind in ("layernorm", "rmsnorm", "scalenorm"))


def test_the_module_stays_as_it_is_beside_others() -> None:
    torch = pytest.importorskip("torch")
    from glassgear.lab.norm_losses import beside

    text = text_of(None, 0, 100)
    recipe = Recipe(steps=5, warmup=1, context=32, batch=2)
    _, module = train({**DESIGN, "norm": "batchnorm"}, text, recipe, 1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    beside(module, text, own_batch=True)
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_without_pytorch_norms_are_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    found = run("norm-kinds")
    assert "loss_layernorm" not in found.facts and any("needs PyTorch" in note for note in found.notes)

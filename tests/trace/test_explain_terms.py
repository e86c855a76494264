"""Terms and inputs are columns: one is made when it is looked at, and sorted without being made."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from glassgear.errors import SettingError
from glassgear.trace.explain import Term, Terms, explain
from glassgear.trace.explain.page import as_text
from glassgear.trace.explain.terms import Listed, total
from tests.trace.test_explain import desk
from tests.trees import VOCAB


def test_a_probability_names_only_the_ids_that_are_shown() -> None:
    named: list[int] = []

    def piece(token: int) -> str:
        named.append(token)
        return f"<{token}>"

    of = replace(desk("llama", "cpu"), piece=piece)
    made = explain(of, "probability", 8)
    named.clear()
    told = made.to_json(3)
    assert len(told["terms"]) == len(told["inputs"]) == 3 and set(named) == {
        t["inputs"][0] for t in told["terms"]
    }
    assert len(made.terms) == len(made.inputs) == VOCAB
    named.clear()
    assert f"{VOCAB - 2:,} more" in as_text(made, 2) and len(set(named)) == 2
    exponentials = [term.value for term in made.terms]
    assert sum(t["value"] for t in told["terms"]) + told["rest"] == pytest.approx(math.fsum(exponentials))
    assert [t["value"] for t in told["terms"]] == sorted(exponentials, reverse=True)[:3]


def test_terms_by_size_keep_their_order_where_they_are_alike() -> None:
    values = np.array([1.0, -3.0, 0.0, 3.0, math.nan, -math.inf])
    terms = Terms.columns(str, np.arange(6), (("x", values),), values, values)
    assert terms.by_size().tolist() == [4, 5, 1, 3, 0, 2]
    assert terms[1] == Term("1", (1,), (("x", -3.0),), -3.0, -3.0) and terms[-3] == terms[3]
    assert [term.name for term in terms[1:3]] == ["1", "2"]
    with pytest.raises(IndexError):
        terms[6]


def test_terms_are_put_behind_others_with_other_inputs() -> None:
    one = Terms.of([Term("a", (0,), (), 1.0), Term("b", (), (), 2.0)])
    two = Terms.columns(lambda i: f"c{i}", np.array([[1, 2], [3, 4]]), (), np.array([4.0, 8.0]))
    both = one.joined(two)
    assert [term.name for term in both] == ["a", "b", "c0", "c1"] and both.values.tolist() == [1, 2, 4, 8]
    assert both.inputs.tolist() == [[0, -1], [-1, -1], [1, 2], [3, 4]]
    assert Listed.of("xy") + Listed.of("z") == Listed.of("xyz") != Listed.of("xy")
    assert Terms.of(()) == Terms.of(()) and not Terms.of(()) and hash(one) == hash(Listed.of(tuple(one)))


def test_sums_are_exact_and_infinities_of_both_signs_are_no_number() -> None:
    assert total(np.array([1e300, 1.0, -1e300])) == 1
    assert math.isnan(total(np.array([math.inf, -math.inf]))) and total(np.zeros(0)) == 0


def test_rows_of_several_tokens_are_those_of_each() -> None:
    of = desk("learned positions, LayerNorm, plain FFN", "cpu")
    stream = ("embed", "positions")
    rows = of.rows(stream, 2, 6)
    assert [row.tolist() for row in rows] == [of.row(stream, t).values.tolist() for t in range(2, 7)]
    with pytest.raises(
        SettingError, match="embed has no value for token 11: it was computed for tokens 0 to 10"
    ):
        of.rows(stream, 9, 12)

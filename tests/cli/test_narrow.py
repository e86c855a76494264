"""Text and tables where there is little room."""

from __future__ import annotations

import pytest

from glassgear.cli import console
from glassgear.cli.narrow import narrowed, wrapped

HEAD, RIGHT = ("input", "", "weight", "input", "term", "sum so far"), {2, 3, 4, 5}
ROWS = [
    ("126", "channel 126", "-0.120636038", "3.59805703", "-0.434055347", "-0.434055347"),
    ("", "348 more", "", "", "0.423854968", "-0.162592224"),
]


def test_lines_end_between_words_and_behind_chinese_characters() -> None:
    assert wrapped("one two three", 8) == ["one two", "  three"]
    assert wrapped("one two three", 8, 0) == ["one two", "three"]
    assert wrapped("a.word.that.is.longer x", 8) == ["a.word.that.is.longer", "  x"]
    assert wrapped("", 8) == [""] and wrapped("short", 8) == ["short"]
    assert wrapped("共三十项，从大到小", 10, 0) == ["共三十项，", "从大到小"]
    assert wrapped("共三十一二，从大", 10, 0) == ["共三十一二，", "从大"], "no line begins with a comma"
    assert wrapped("共三十（从大", 8, 0) == ["共三十", "（从大"], "and none ends with a bracket"


@pytest.mark.parametrize("width", [30, 40, 46, 60, 75, 120])
def test_a_table_fits(width: int) -> None:
    head, rows, right, left_out = narrowed(HEAD, ROWS, RIGHT, width)
    columns = list(zip(head, *rows, strict=True))
    total = sum(max(map(console.cells, column)) + 2 for column in columns) - 2
    assert total <= width and len(head) + len(left_out) == len(HEAD) and "term" in head
    assert right == {i for i in range(len(head)) if i >= 2}
    assert (left_out == []) == (width > 55)
    assert all(float(row[head.index("term")]) == pytest.approx(float(old[4]), rel=5e-3)
               for row, old in zip(rows, ROWS, strict=True))  # fmt: skip


def test_what_has_room_stays_as_it_is() -> None:
    assert narrowed(HEAD, ROWS, RIGHT, 80) == (HEAD, ROWS, RIGHT, [])
    long = [("sum", "over the channels of a token, of which there are many", "0.123456789")]
    head, rows, _, left_out = narrowed(("", "", "value"), long, {2}, 50)
    assert rows[0][2] == "0.123456789" and "\n" in rows[0][1] and rows[0][1].split() == long[0][1].split()
    assert head == ("", "", "value") and left_out == []

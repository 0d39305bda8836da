"""Values as words: names from files are shown, never obeyed, and nothing is wider than asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from foxhunt_ray.report.text import Column, duration, number, short_names, shown, table_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bids[amount]", "bids[amount]"),
        ("[/red]", "[/red]"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("日経", "日経"),
    ],
)
def test_name_is_shown_whole_with_escapes_for_what_does_not_print(text: str, expected: str) -> None:
    assert shown(text) == expected


@given(st.text(), st.integers(3, 30))
def test_shown_text_prints_and_fits(text: str, limit: int) -> None:
    line = shown(text, limit)
    assert line.isprintable() and cell_len(line) <= limit
    assert shown(line, limit) == line


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (float("nan"), "-"),
        (float("-inf"), "-"),
        (2.1e-3, "0.0021"),
        (1e-5, "1e-05"),
        (1024, "1024"),
        (True, "True"),
        ("au\x1bto", "au\\x1bto"),
    ],
)
def test_number_reads_well_and_is_never_nan(value: object, expected: str) -> None:
    assert number(value) == expected


def test_number_follows_its_spec() -> None:
    assert (number(0, ".3f"), number(0.004, ".1%"), number(0.06, "+.3f")) == ("0.000", "0.4%", "+0.060")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (190, "3 min 10 s"), (7500, "2 h 5 min")]
)
def test_duration_uses_two_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_short_names_stay_apart() -> None:
    names = short_names(["optimizer.lr", "model.size", "loader.size"])
    assert names == {"optimizer.lr": "lr", "model.size": "model.size", "loader.size": "loader.size"}


def test_columns_go_by_rank_until_the_table_fits() -> None:
    columns = [
        Column("id", ["a", "b"], left=True),
        Column("wide", ["x" * 20] * 2, rank=2),
        Column("n", ["1", "22"], rank=1),
    ]
    assert table_lines(columns, width=80)[0].split() == ["id", "wide", "n"]
    assert table_lines(columns, width=20) == ["id   n", "a    1", "b   22"]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.integers(4, 60))
def test_no_line_of_a_table_is_wider_than_asked(cells: list[str], width: int) -> None:
    columns = [Column(f"c{i}", [shown(c)], rank=i) for i, c in enumerate(cells)]
    assert max(map(cell_len, table_lines(columns, width=width))) <= width

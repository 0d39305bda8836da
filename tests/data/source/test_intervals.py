"""Files of different intervals are refused with both names; an illiquid symbol is no other interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.source.intervals import (
    interval_findings,
    most_common,
    span,
    split_by_interval,
    usual_step_of,
)
from foxhunt_ray.data.source.merge import Piece

MINUTE, HOUR, DAY = 60 * 10**9, 3600 * 10**9, 86400 * 10**9


def piece(name: str, stamps: np.ndarray) -> Piece:
    return Piece(name, np.asarray(stamps, np.int64), {})


MINUTES = piece("m", MINUTE * np.arange(200))
HOURS = piece("h", HOUR * np.arange(100))


@given(st.lists(st.integers(-3, 3)))
def test_the_most_common_is_the_smallest_of_those_counted_most_often(values: list[int]) -> None:
    value, count = most_common(np.array(values, np.int64))
    assert count == max(map(values.count, values), default=0)
    assert value == min((v for v in values if values.count(v) == count), default=0)


def test_the_usual_step_is_the_most_common_one_in_either_direction() -> None:
    stamps = HOUR * np.array([0, 1, 2, 2, 5, 6])
    assert usual_step_of(stamps) == usual_step_of(stamps[::-1]) == HOUR
    assert usual_step_of(stamps[:1]) == 0


@pytest.mark.parametrize("pieces", [{"A": [MINUTES, HOURS]}, {"A": [HOURS], "B": [MINUTES]}])
def test_two_intervals_are_refused_with_both_files(pieces: dict[str, list[Piece]]) -> None:
    (refused,) = interval_findings(pieces)
    assert refused.level == "refusal"
    assert refused.text == "bars of 1 min in m, but of 1 h in h"


def test_rows_that_are_absent_make_no_other_interval() -> None:
    random = np.random.default_rng(0)
    illiquid = piece("i", MINUTE * np.sort(random.choice(3000, 800, replace=False)))
    assert interval_findings({"A": [MINUTES], "B": [illiquid]}) == []


def test_a_symbol_mostly_traded_every_five_minutes_is_no_other_interval() -> None:
    seldom = piece("i", MINUTE * np.cumsum(np.tile([5, 5, 5, 5, 1], 40)))
    assert interval_findings({"A": [MINUTES], "B": [seldom]}) == []
    assert split_by_interval([MINUTES, seldom]) == [[MINUTES, seldom]]


def test_few_rows_and_irregular_stamps_show_no_interval() -> None:
    ticks = piece("t", np.cumsum(np.random.default_rng(0).integers(1, 10**9, 500)))
    assert interval_findings({"A": [HOURS, piece("x", MINUTE * np.arange(2)), ticks]}) == []


def test_holidays_and_short_months_are_one_interval() -> None:
    daily, business = piece("d", DAY * np.arange(300)), DAY * np.arange(300)
    weekdays = piece("b", business[business // DAY % 7 < 5])
    months = [
        piece(str(y), np.arange(f"{y}-01", f"{y + 2}-01", dtype="M8[M]").astype("M8[ns]").astype(np.int64))
        for y in (2019, 2021)
    ]
    assert interval_findings({"A": [daily, weekdays]}) == []
    assert interval_findings({"A": months}) == []


def test_pieces_are_grouped_by_interval_the_largest_group_first() -> None:
    more = piece("m2", MINUTE * np.arange(300, 310))
    groups = split_by_interval([HOURS, MINUTES, more])
    assert [[p.path for p in group] for group in groups] == [["m", "m2"], ["h"]]


@pytest.mark.parametrize("few", [[0, 7], [0, 49, 98], [3]])
def test_a_file_of_few_rows_stays_with_the_others(few: list[int]) -> None:
    short = piece("s", MINUTE * (1000 + np.array(few)))
    for pieces in ([MINUTES, short], [short, MINUTES]):
        assert split_by_interval(pieces) == [pieces]
        assert interval_findings({"A": pieces}) == []
    assert split_by_interval([short]) == [[short]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([MINUTE, HOUR, DAY]), st.integers(0, 40)), min_size=1, max_size=6))
def test_every_piece_is_in_one_group_and_two_groups_are_refused(made: list[tuple[int, int]]) -> None:
    pieces = [piece(str(n), step * np.arange(rows)) for n, (step, rows) in enumerate(made)]
    groups = split_by_interval(pieces)
    assert sorted(p.path for group in groups for p in group) == [p.path for p in pieces]
    assert all([p.path for p in group] == sorted(p.path for p in group) for group in groups)
    sizes = [sum(len(p.ts_event) for p in group) for group in groups]
    assert sizes == sorted(sizes, reverse=True)
    assert len(groups) == max(1, len({step for step, rows in made if rows >= 10}))
    assert bool(interval_findings({"A": pieces})) == (len(groups) > 1)


def test_ten_daily_rows_beside_hours_are_refused() -> None:
    weekdays = np.arange(14)[np.arange(14) % 7 < 5]
    (refused,) = interval_findings({"A": [HOURS, piece("d", DAY * weekdays)]})
    assert refused.text == "bars of 1 h in h, but of 1 d in d"


def test_single_rows_out_of_step_hide_no_interval() -> None:
    partial = piece("h", np.append(HOUR * np.arange(100), HOUR * 99 + MINUTE))
    (refused,) = interval_findings({"A": [MINUTES, partial]})
    assert refused.text == "bars of 1 min in m, but of 1 h in h"


@pytest.mark.parametrize(
    ("length", "text"), [(HOUR, "1 h"), (90 * MINUTE, "90 min"), (DAY, "1 d"), (1_500_000_000, "1.5 s")]
)
def test_lengths_of_time_are_short(length: int, text: str) -> None:
    assert span(length) == text

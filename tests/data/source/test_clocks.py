"""Stamps at the end of bars are moved to the start; a second time column agrees, is explained, or asks."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.data.source.clocks import clock_findings, is_recorder, stamp_side, to_bar_start

MINUTE, HOUR = 60 * 10**9, 3600 * 10**9
START = 1_600_000_000 * 10**9 // HOUR * HOUR
BARS = START + HOUR * np.arange(200)


def told(other: np.ndarray, name: str = "time") -> tuple[str, str]:
    (found,) = clock_findings(BARS, other, names=("ts", name), step=HOUR, file="f")
    return found.level, found.text


@pytest.mark.parametrize(
    ("name", "side"),
    [
        *((name, "end") for name in ("close_time", "Close Time", "window_end", "bar_end", "end")),
        *((name, "start") for name in ("open_time", "ts_event", "timestamp", "weekend")),
    ],
)
def test_the_name_says_which_side_of_a_bar_is_stamped(name: str, side: str) -> None:
    assert stamp_side(name, "auto") == side
    assert (stamp_side(name, "end"), stamp_side(name, "start")) == ("end", "start")


@pytest.mark.parametrize("late", [0, 1, 10**6, 999_999_999])
def test_ends_are_moved_by_one_bar_to_the_start(late: int) -> None:
    np.testing.assert_array_equal(to_bar_start(BARS + HOUR - late, HOUR), BARS)


def test_recorders_are_known_by_name() -> None:
    names = ("ts_recv", "collection_time", "created_at", "local_timestamp", "ts_init", "downloadtime")
    assert all(map(is_recorder, names))
    assert not any(map(is_recorder, ("ts_event", "timestamp", "date", "open_time")))


def test_columns_that_agree_are_said_to() -> None:
    assert told(BARS.copy()) == ("note", "agrees with ts in every row")


def test_the_end_of_each_bar_is_recognised() -> None:
    assert told(BARS + HOUR - 10**6) == ("note", "is the end of each bar; ts is used")


def test_one_value_for_many_rows_is_no_stamp_and_may_be_another_clock() -> None:
    level, text = told(np.full(200, BARS[-1] + 8 * HOUR), "collection_time")
    assert level == "note"
    assert text.startswith("the same for many rows, so no stamp of bars; 8.0 h after the last bar")


def test_a_constant_shift_is_two_clocks() -> None:
    assert told(BARS + 5 * HOUR) == ("refusal", "lies 5 h from ts in every row: two clocks")


def test_rows_that_differ_are_counted_and_the_first_is_named() -> None:
    other = BARS.copy()
    other[[3, 7]] += 17 * HOUR
    level, text = told(other)
    assert level == "refusal"
    assert text.startswith("differs from ts in 2 of 200 rows, first in row 3: 2020-09-14T08:00:00")

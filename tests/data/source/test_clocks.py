"""Stamps at the end of bars are moved to the start; a second time column agrees, is explained, or asks."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.data.source.clocks import clock_findings, is_recorder, stamp_side, to_bar_start, usual_name

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


@pytest.mark.parametrize("step", [MINUTE, HOUR, 24 * HOUR])
def test_ends_at_59_seconds_count_as_the_full_minute(step: int) -> None:
    starts = START // (24 * HOUR) * (24 * HOUR) + step * np.arange(50)
    np.testing.assert_array_equal(to_bar_start(starts + step - 10**9, step), starts)


def test_ends_of_bars_below_a_second_are_moved_as_they_are() -> None:
    np.testing.assert_array_equal(to_bar_start(BARS + 10**8, 10**8), BARS)


def test_usual_names_are_known_in_any_spelling() -> None:
    assert all(
        map(usual_name, ("ts_event", "Date", "openTime", "Open Time", "timestamp_ms", "unix", "Time (UTC)"))
    )
    assert not any(map(usual_name, ("earnings", "expiry", "close", "day", "created_at")))


def test_recorders_are_known_by_name() -> None:
    names = (
        *(
            "ts_recv",
            "collection_time",
            "created_at",
            "local_timestamp",
            "ts_init",
            "downloadtime",
            "createdAt",
        ),
        *(
            "updated_at",
            "inserted_at",
            "fetched_at",
            "download_time",
            "ingest_time",
            "parse_ts",
            "received_at",
        ),
        *("expiry", "expiration", "maturity", "contract_expiry", "Expiration Date", "last_trade_date"),
    )
    assert all(map(is_recorder, names))
    assert not any(map(is_recorder, ("ts_event", "timestamp", "date", "open_time")))


def test_columns_that_agree_are_said_to() -> None:
    assert told(BARS.copy()) == ("note", "agrees with ts in every row")


def test_the_end_of_each_bar_is_recognised() -> None:
    assert told(BARS + HOUR - 10**6) == ("note", "is the end of each bar; ts is used")


def test_one_value_for_many_rows_is_no_stamp() -> None:
    assert told(np.full(200, BARS[-1] + 8 * HOUR), "collection_time") == (
        "note",
        "the same for many rows, so no stamp of bars",
    )


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (8 * HOUR + 40 * 10**9, "; it looks 8 h ahead: a clock of another zone"),
        (8 * HOUR + 20 * MINUTE, ""),
        (130 * HOUR, ""),
        (30 * 10**9, ""),
        (-5 * HOUR, "; 5.0 h before the last bar begins: a clock of another zone"),
    ],
)
def test_a_time_of_collection_may_show_another_zone(late: int, says: str) -> None:
    bars = START + MINUTE * np.arange(200)
    (found,) = clock_findings(
        bars, np.full(200, bars[-1] + late), names=("ts", "collection_time"), step=MINUTE, file="f"
    )
    assert (found.level, found.text) == ("note", f"the same for many rows, so no stamp of bars{says}")


@pytest.mark.parametrize(
    "name", ["ts_recv", "ts_init", "local_timestamp", "close_time", "expiry", "earnings"]
)
def test_only_two_usual_clocks_that_disagree_ask(name: str) -> None:
    odd = BARS + np.random.default_rng(0).integers(-30, 30, 200) * HOUR
    assert told(odd, name)[0] == "note"
    assert told(odd, "datetime")[0] == "refusal"


def test_a_whole_hour_between_hourly_columns_is_the_end_only_by_name() -> None:
    assert told(BARS + HOUR, "close_time") == ("note", "is the end of each bar; ts is used")
    assert told(BARS + HOUR, "time")[0] == "refusal"


def test_two_offsets_as_of_summer_and_winter_are_two_clocks() -> None:
    other = BARS - np.where(np.arange(200) < 90, 4, 5) * HOUR
    assert told(other) == ("refusal", "lies -5 or -4 h from ts in every row: two clocks")


@pytest.mark.parametrize("midnight", [0, 5 * HOUR, -9 * HOUR])
def test_a_column_of_days_beside_bars_within_the_day_agrees(midnight: int) -> None:
    day = 24 * HOUR
    assert told(BARS // day * day + midnight, "date") == (
        "note",
        "holds only the day of each stamp; ts is used",
    )


def test_stamps_cut_to_the_second_agree() -> None:
    precise = BARS + 123_456_789
    (found,) = clock_findings(precise, BARS, names=("ts", "unix"), step=HOUR, file="f")
    assert (found.level, found.text) == ("note", "agrees with ts to the second")


def test_a_constant_shift_is_two_clocks() -> None:
    assert told(BARS + 5 * HOUR) == ("refusal", "lies 5 h from ts in every row: two clocks")


def test_rows_that_differ_are_counted_and_the_first_is_named() -> None:
    other = BARS.copy()
    other[[3, 7]] += 17 * HOUR
    level, text = told(other)
    assert level == "refusal"
    assert text.startswith("differs from ts in 2 of 200 rows, first in row 3: 2020-09-14T08:00:00")

"""Which column is the stamp, and the instant that each stamp means."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.source.timestamps import Stamps, time_columns, to_utc_ns
from foxhunt_ray.errors import ConfigError, DataError

NOON = dt.datetime(2021, 7, 1, 12, tzinfo=dt.UTC)
NOON_NS = 1_625_140_800 * 10**9
US, MS = pa.timestamp("us"), pa.timestamp("ms", "UTC")


def read(values: Any, dtype: Any = None, timezone: str = "") -> Stamps:
    column = pa.chunked_array([pa.array(values, dtype)])
    return to_utc_ns(column, timezone=timezone, where="f.parquet: ts")


def chosen(wanted: str = "", **types: Any) -> list[str]:
    return time_columns(pa.schema(list(types.items())), wanted, path="f.parquet")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_mean_the_same_instant(unit: str) -> None:
    naive = read([NOON.replace(tzinfo=None)], pa.timestamp(unit))
    aware = read([NOON], pa.timestamp(unit, "America/New_York"))
    assert naive.ns.tolist() == aware.ns.tolist() == [NOON_NS]
    assert naive.ns.dtype == np.int64


def test_a_stamp_without_zone_is_read_as_utc_and_that_is_said() -> None:
    stamps = read([NOON.replace(tzinfo=None)], US)
    assert stamps.zone_assumed
    assert stamps.reading == "timestamp[us] without zone, read as UTC"


def test_a_stamp_with_a_zone_keeps_its_instant_whatever_the_config_says() -> None:
    stamps = read([NOON], MS, timezone="Asia/Tokyo")
    assert (stamps.ns.tolist(), stamps.zone_assumed) == ([NOON_NS], False)


@given(st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2037, 1, 1)))
def test_local_time_is_converted_as_zoneinfo_does_or_refused(moment: dt.datetime) -> None:
    zone = ZoneInfo("America/New_York")
    offsets = {moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
    if len(offsets) > 1:
        with pytest.raises(DataError, match="daylight saving"):
            read([moment], US, timezone="America/New_York")
    else:
        expected = (moment.replace(tzinfo=zone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
            microseconds=1
        )
        assert read([moment], US, timezone="America/New_York").ns.tolist() == [expected * 1000]


@pytest.mark.parametrize("moment", [dt.datetime(2021, 3, 14, 2, 30), dt.datetime(2021, 11, 7, 1, 30)])
def test_a_local_time_that_is_missing_or_repeated_is_refused_with_its_row(moment: dt.datetime) -> None:
    with pytest.raises(DataError, match=rf"f.parquet: ts: {moment} in row 1 .* America/New_York"):
        read([dt.datetime(2021, 7, 1), moment], US, timezone="America/New_York")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.timezone: .*Mars/Base.*America/New_York"):
        read([NOON.replace(tzinfo=None)], US, timezone="Mars/Base")


@pytest.mark.parametrize("dtype", [pa.date32(), pa.date64()])
def test_dates_are_midnights(dtype: Any) -> None:
    stamps = read([NOON.date()], dtype)
    assert stamps.ns.tolist() == [NOON_NS - 12 * 3600 * 10**9]
    assert "midnight" in stamps.reading


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_the_unit_of_an_epoch_follows_from_its_magnitude(dtype: Any, unit: str, ticks: int) -> None:
    stamps = read(np.array([NOON_NS // 10**9 * ticks], dtype))
    assert stamps.ns.tolist() == [NOON_NS]
    assert stamps.reading == f"{unit} since 1970 UTC"


def test_epoch_nanoseconds_keep_every_digit() -> None:
    assert read([NOON_NS + 1, NOON_NS + 2], pa.uint64()).ns.tolist() == [NOON_NS + 1, NOON_NS + 2]


def test_fractions_of_epoch_seconds_survive_to_the_microsecond() -> None:
    assert read([NOON_NS / 1e9 + 0.25, NOON_NS / 1e9 + 0.000125]).ns.tolist() == [
        NOON_NS + 250_000_000,
        NOON_NS + 125_000,
    ]


@pytest.mark.parametrize("values", [[0, 1], [20211301, 20210702], [1625140800, 1625140800000], [np.nan]])
def test_numbers_that_fit_no_epoch_are_refused(values: list[float]) -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: numbers from .* are no epoch"):
        read(values)


@pytest.mark.parametrize(
    "text", ["2021-07-01 12:00:00", "2021-07-01T12:00", "2021-07-01T12:00:00.000Z", "2021-07-01 14:00+02:00"]
)
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_iso_text_is_a_stamp(text: str, dtype: Any) -> None:
    stamps = read([text, text], dtype)
    assert stamps.ns.tolist() == [NOON_NS] * 2
    assert stamps.zone_assumed == ("Z" not in text and "+" not in text)


@pytest.mark.parametrize("text", ["11/5/2019 9:30", "5 Nov 2019", "20191105", "", "2019-13-01", "it's"])
def test_other_text_is_refused_with_value_and_row(text: str) -> None:
    with pytest.raises(DataError, match=rf"f.parquet: ts: .*{text}.* in row 1 is not a stamp like 2019"):
        read(["2019-11-05", text])


def test_text_with_and_without_zone_in_one_column_is_refused() -> None:
    with pytest.raises(DataError, match="'2021-07-01' in row 1"):
        read(["2021-07-01T00:00Z", "2021-07-01"])


def test_missing_stamps_are_refused_and_counted() -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: 2 of 3 stamps are missing"):
        read([None, NOON, None], MS)


def test_stamps_beyond_int64_nanoseconds_are_refused_not_wrapped() -> None:
    with pytest.raises(DataError, match=r"2500-01-01.* in row 1 lies outside"):
        read([dt.datetime(2020, 1, 1), dt.datetime(2500, 1, 1)], US)


def test_a_column_that_is_no_time_is_refused() -> None:
    with pytest.raises(DataError, match="bool is not a time"):
        read([True])


@pytest.mark.parametrize(
    ("types", "first"),
    [
        ({"close": pa.float64(), "whatever": US}, "whatever"),
        ({"__index_level_0__": US, "close": pa.float64()}, "__index_level_0__"),
        ({"date": pa.string(), "unix": pa.int64()}, "unix"),
        ({"Date": pa.date32(), "timestamp": pa.int64()}, "timestamp"),
        ({"close_time": US, "open_time": US}, "open_time"),
        ({"ts_recv": MS, "ts_event": MS}, "ts_event"),
        ({"received": MS, "timestamp": MS}, "timestamp"),
        ({"__index_level_0__": pa.int64(), "Date": pa.string()}, "Date"),
        ({"OPEN TIME": pa.int64(), "close": pa.float64()}, "OPEN TIME"),
    ],
)
def test_the_time_column_is_found_by_type_then_by_name(types: dict[str, Any], first: str) -> None:
    assert chosen(**types)[0] == first


def test_the_config_names_the_time_column_and_the_others_still_count_as_times() -> None:
    assert chosen("close_time", open_time=US, close_time=US) == ["close_time", "open_time"]


def test_without_a_time_column_the_columns_are_listed() -> None:
    with pytest.raises(
        DataError, match=r"f.parquet: no time column; its columns are x, close; .*time_column"
    ):
        chosen(x=pa.int64(), close=pa.float64())


def test_time_columns_of_unknown_names_are_not_guessed_between() -> None:
    with pytest.raises(DataError, match=r"time columns begin and end: set data.time_column"):
        chosen(begin=US, end=US)


def test_a_named_time_column_that_is_absent_is_refused() -> None:
    with pytest.raises(DataError, match=r"no column 'tss' \(data.time_column\); its columns are ts"):
        chosen("tss", ts=US)

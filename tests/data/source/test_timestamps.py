"""Which column is the stamp, and the instant that each stamp means."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.source.timestamps import Stamps, time_columns, to_utc_ns
from foxhunt_ray.errors import ConfigError, DataError

NOON = dt.datetime(2021, 7, 1, 12, tzinfo=dt.UTC)
NOON_NS = 1_625_140_800 * 10**9
_1980_NS, _2100_NS = 315_532_800 * 10**9, 4_102_444_800 * 10**9 - 1
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


@pytest.mark.parametrize("values", [[0, 1], [-5.0], [0.25], [10**19]])
def test_numbers_that_fit_no_epoch_are_refused(values: list[float]) -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: numbers from .* are no epoch"):
        read(np.array(values, np.uint64) if values == [10**19] else values)


@pytest.mark.parametrize("odd", [0, -1, 1_625_140_800_000, 4_102_444_800])
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64(), pa.decimal128(20, 2)])
def test_one_number_that_is_no_stamp_is_named_with_its_row(odd: int, dtype: Any) -> None:
    values = np.arange(1_625_140_800, 1_625_140_900).tolist()
    values[7] = odd
    with pytest.raises(
        DataError, match=rf"f.parquet: ts: {odd}(\.0+)? in row 7 is no s since 1970 .* 99 of 100"
    ):
        read([Decimal(v) for v in values] if pa.types.is_decimal(dtype) else values, dtype)


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: 1 of 2 stamps are missing"):
        read([np.nan, 1_625_140_800.0])
    with pytest.raises(DataError, match=r"f.parquet: ts: inf in row 1 is no stamp"):
        read([1_625_140_800.0, np.inf])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(_1980_NS, _2100_NS), min_size=1, max_size=9))
def test_epochs_of_every_kind_equal_pandas(moments: list[int]) -> None:
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)):
        ticks = [m // factor for m in moments]
        wanted = pd.to_datetime(ticks, unit=unit).as_unit("ns").asi8
        for dtype in (pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.decimal256(40, 3), pa.string()):
            values = [Decimal(t) if pa.types.is_decimal(dtype) else str(t) for t in ticks]
            column = values if dtype == pa.string() or pa.types.is_decimal(dtype) else ticks
            np.testing.assert_array_equal(read(column, dtype).ns, wanted)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(_1980_NS, _2100_NS), min_size=1, max_size=9))
def test_decimal_seconds_keep_every_digit_and_doubles_the_microsecond(moments: list[int]) -> None:
    exact = [Decimal(m).scaleb(-9) for m in moments]
    assert read(exact, pa.decimal128(20, 9)).ns.tolist() == moments
    rounded = [m // 1000 * 1000 for m in moments]
    assert np.abs(read([m / 1e9 for m in rounded]).ns - rounded).max() <= 1000


@settings(max_examples=25, deadline=None)
@given(st.lists(st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2261, 1, 1)), min_size=1, max_size=9))
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_equal_pandas(zone: str | None, unit: str, moments: list[dt.datetime]) -> None:
    wanted = pd.DatetimeIndex(moments).floor("s").as_unit("ns")
    stamps = pa.array(wanted.asi8, pa.timestamp("ns")).cast(pa.timestamp(unit, zone))
    np.testing.assert_array_equal(read(stamps).ns, wanted.asi8)


@pytest.mark.parametrize(
    "text", ["2021-07-01 12:00:00", "2021-07-01T12:00", "2021-07-01T12:00:00.000Z", "2021-07-01 14:00+02:00"]
)
@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_iso_text_is_a_stamp(text: str, dtype: Any) -> None:
    stamps = read([text, text], dtype)
    assert stamps.ns.tolist() == [NOON_NS] * 2
    assert stamps.zone_assumed == ("Z" not in text and "+" not in text)


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1625140800", True),
        ("1625140800000", True),
        ("1625140800.25", True),
        (" 1625140800000000000", True),
        ("202107011200", False),
        ("20210701120000", False),
        ("20210701120000000", False),
    ],
)
def test_digits_are_told_apart_by_their_number(text: str, epoch: bool) -> None:
    stamps = read([text, text])
    assert stamps.ns.tolist() == [NOON_NS + 250_000_000 * (".25" in text)] * 2
    assert stamps.zone_assumed is not epoch


def test_text_that_ceases_to_be_a_number_is_refused() -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: .*'x'.*write the column as timestamps"):
        read(["1625140800", "x"])


@pytest.mark.parametrize(
    "text",
    [
        "2021-07-01 12:00:00 UTC",
        "2021-07-01 12:00:00+00",
        "2021-07-01T12:00:00,000Z",
        " 2021-07-01 12:00Z",
        "2021-07-01 07:30 -0430",
        "2021-07-01 8:00 PM GMT+0800",
    ],
)
def test_iso_text_with_a_slip_and_a_zone_is_a_stamp(text: str) -> None:
    stamps = read([text, text])
    assert (stamps.ns.tolist(), stamps.zone_assumed) == ([NOON_NS] * 2, False)


@pytest.mark.parametrize("missing", ["", "  ", None])
def test_empty_text_counts_as_missing(missing: str | None) -> None:
    with pytest.raises(DataError, match=r"f.parquet: ts: 2 of 4 stamps are missing"):
        read(["2021-07-01", missing, "2021-07-02", missing])


@pytest.mark.parametrize(
    "text",
    ["11/5/2019 9:30", "5 Nov 2019", "20191105", "2019-13-01", "it's", "2019-11-05 24:00", "1600-01-01"],
)
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
    "name",
    [
        *(
            "Datetime",
            "MapDate",
            "DATE",
            "observation_date",
            "TimeStamp",
            "date_time",
            "candle_time",
            "bar_time",
        ),
        *(
            "start_time",
            "period_start",
            "Gmt time",
            "Local time",
            "Unix Timestamp",
            "timestamp_ms",
            "utc-time",
        ),
    ],
)
def test_text_under_a_usual_name_in_any_spelling_may_be_the_time(name: str) -> None:
    assert chosen(close=pa.float64(), **{name: pa.string()}) == [name]


def test_numbers_that_count_rows_and_features_are_no_times() -> None:
    with pytest.raises(DataError, match="no time column"):
        chosen(index=pa.int64(), day=pa.int64(), weekday=pa.int8(), dt=pa.float64())


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
        ({"created_at": US, "Date": pa.string()}, "Date"),
        ({"collection_time": MS, "expiry": pa.date32(), "begin": MS}, "begin"),
        ({"updated_at": US, "open_time": pa.int64()}, "open_time"),
        ({"ts_recv": MS, "ts_event": pa.int64()}, "ts_event"),
        ({"received_at": US, "close": pa.float64()}, "received_at"),
        ({"EffDate": pa.date32(), "close": pa.float64()}, "EffDate"),
        ({"Expiration": pa.date32(), "trade_date": pa.date32()}, "trade_date"),
        ({"Date (UTC)": pa.string(), "x": pa.string()}, "Date (UTC)"),
        ({"open_time_ms": pa.int64(), "close_time_ms": pa.int64()}, "open_time_ms"),
        ({"time": pa.decimal128(20, 0), "close": pa.float64()}, "time"),
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


def test_bookkeeping_columns_alone_are_not_guessed_between() -> None:
    with pytest.raises(DataError, match=r"time columns created_at and updated_at: set data.time_column"):
        chosen(created_at=US, updated_at=US)


def test_a_named_time_column_that_is_absent_is_refused() -> None:
    with pytest.raises(DataError, match=r"no column 'tss' \(data.time_column\); its columns are ts"):
        chosen("tss", ts=US)

"""Dates in text and compact numbers, against pandas; the order of day and month is proved or asked."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.source.timestamps import Stamps, to_utc_ns
from foxhunt_ray.errors import DataError

MOMENTS = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2090, 1, 1)).map(
    lambda m: m.replace(microsecond=0)
)


def read(values: list[Any], dtype: Any = None, **more: Any) -> Stamps:
    return to_utc_ns(pa.chunked_array([pa.array(values, dtype)]), timezone="", where="f.parquet: d", **more)


@pytest.mark.parametrize(
    ("form", "order"),
    [
        ("%m/%d/%Y %H:%M:%S", "month_first"),
        ("%d/%m/%Y %H:%M:%S", "day_first"),
        ("%d.%m.%Y %H:%M:%S", "day_first"),
        ("%d-%m-%Y, %H:%M:%S", "day_first"),
        ("%m/%d/%Y %I:%M:%S %p", "month_first"),
        ("%Y/%m/%d %H:%M:%S", "auto"),
        ("%Y%m%d %H:%M:%S", "auto"),
        ("%Y%m%dT%H%M%S", "auto"),
        ("%Y%m%d%H%M%S", "auto"),
    ],
)
@settings(max_examples=15, deadline=None)
@given(moments=st.lists(MOMENTS, min_size=1, max_size=20))
def test_text_in_a_usual_order_equals_pandas(form: str, order: str, moments: list[dt.datetime]) -> None:
    text = [m.strftime(form) for m in moments]
    wanted = pd.to_datetime(text, format=form).as_unit("ns").asi8
    np.testing.assert_array_equal(read(text, dates=order).ns, wanted)
    np.testing.assert_array_equal(read(text, pa.dictionary(pa.int32(), pa.string()), dates=order).ns, wanted)


def test_leading_zeros_fractions_and_offsets_are_read() -> None:
    text = ["5/1/2020 9:05:07.25 +02:00", "15/11/2020 19:05:07.250000001 -0530"]
    found = read(text)
    assert [str(t) for t in found.ns.astype("M8[ns]")] == [
        "2020-01-05T07:05:07.250000000",
        "2020-11-16T00:35:07.250000001",
    ]
    assert not found.zone_assumed


@pytest.mark.parametrize(
    ("text", "first", "proof"),
    [
        (["1/2/2020", "13/2/2020"], "2020-02-01", "day first: a number above 12"),
        (["1/2/2020", "1/13/2020"], "2020-01-02", "month first: a number above 12"),
        (["11/5/2019", "11/6/2019", "11/7/2019"], "2019-11-05", "month first: 3 distinct days prove it"),
        (["5/11/2019", "6/11/2019", "7/11/2019"], "2019-11-05", "day first: 3 distinct days prove it"),
    ],
)
def test_values_prove_the_order(text: list[str], first: str, proof: str) -> None:
    found = read(text)
    assert str(found.ns.astype("M8[ns]")[0])[:10] == first
    assert [f.level for f in found.findings] == ["note"]
    assert proof in str(found.findings[0])


@pytest.mark.parametrize(
    "text", [["1/2/2020"], ["1/2/2020", "3/4/2020", "5/6/2020"], ["3/3/2020", "4/4/2020"]]
)
def test_what_proves_nothing_is_asked(text: list[str]) -> None:
    (question,) = read(text).findings
    assert question.level == "refusal"
    assert question.action == "set data.dates = day_first or month_first"
    for order in ("day_first", "month_first"):
        assert read(text, dates=order).findings == ()


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (["1/1/2020", "1/32/2020"], 1),
        (["13/13/2020"], 0),
        (["1/1/2020", "5 Nov 2019"], 1),
        (["1/1/2020 9:30", "1/1/2020 24:00"], 1),
        (["1/1/2020 9:30", "1/1/2020 9:60"], 1),
        (["1/1/2020 9:30 AM", "1/1/2020 13:30 PM"], 1),
        (["1/1/2020", "1/1/1600"], 1),
        (["20200230"], 0),
        (["2020/02/01 10:00Z", "2020/02/01 10:00"], 1),
        (["yesterday"], 0),
    ],
)
def test_a_value_that_is_no_date_is_named_with_its_row(text: list[str], row: int) -> None:
    with pytest.raises(DataError, match=rf"f.parquet: d: '{text[row]}' in row {row} is not a stamp"):
        read(text)


def test_a_year_of_two_digits_is_refused_as_such() -> None:
    for text in (["11/05/19"], ["11/05/2019", "11/05/19 9:30"]):
        with pytest.raises(
            DataError, match=r"f.parquet: d: '11/05/19.* has a year of two digits; write years"
        ):
            read(text)


def test_missing_text_is_counted() -> None:
    with pytest.raises(DataError, match=r"f.parquet: d: 2 of 4 stamps are missing, first in row 1"):
        read(["11/05/2019", "", "11/6/2019", "  "])


def test_day_first_and_month_first_in_one_column_is_refused_with_both_rows() -> None:
    with pytest.raises(
        DataError, match=r"13/1/2020 in row 1 can only be day first, 1/14/2020 in row 2 only month first"
    ):
        read(["1/1/2020", "13/1/2020", "1/14/2020"])


def test_values_against_the_option_are_named() -> None:
    with pytest.raises(DataError, match=r"'1/13/2020' in row 0 is not a stamp"):
        read(["1/13/2020"], dates="day_first")


def test_the_first_of_each_month_does_not_prove_month_first() -> None:
    monthly = [f"1/{month}/2019" for month in range(1, 13)]
    assert [f.level for f in read(monthly).findings] == ["refusal"]
    minutes = [f"1/{day}/2019 9:3{minute}" for day in range(1, 8) for minute in range(3)]
    assert "month first: 7 distinct days" in str(read(minutes).findings[0])


def test_rows_in_several_blocks_are_read_as_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foxhunt_ray.data.source.dates._ROWS", 7)
    days = pd.date_range("2019-11-04", "2019-11-08 23:00", freq="1h").as_unit("ns")
    text = [f"{d.month}/{d.day}/{d.year} {d.hour}:00" for d in days]
    np.testing.assert_array_equal(read(text).ns, days.asi8)
    np.testing.assert_array_equal(read([str(d) for d in days]).ns, days.asi8)
    text[30] = "11/4/2019 6:99"
    with pytest.raises(DataError, match="in row 30 is not a stamp"):
        read(text)


@pytest.mark.parametrize("zone", ["UTC", "+09:00", "-0330", "+05"])
def test_zones_behind_the_time_are_taken_off(zone: str) -> None:
    text = [f"2019/11/05 09:30:15.25 {zone}", f"2019/11/06 18:00:00 {zone}"]
    wanted = pd.to_datetime([t.replace("+05", "+05:00") for t in text], utc=True, format="mixed")
    found = read(text)
    assert found.ns.tolist() == wanted.as_unit("ns").asi8.tolist()
    assert not found.zone_assumed


def test_the_intraday_file_is_read_month_first(real_data: Path) -> None:
    column = pq.read_table(real_data / "sp500_intraday_nov2019.parquet").column("Date")
    found = to_utc_ns(column, timezone="", where="f")
    wanted = pd.to_datetime(column.to_pylist(), format="%m/%d/%Y %H:%M").as_unit("ns").asi8
    np.testing.assert_array_equal(found.ns, wanted)
    assert "dates read month first: 4 distinct days prove it" in str(found.findings[0])


@settings(max_examples=20, deadline=None)
@given(moments=st.lists(MOMENTS, min_size=1, max_size=20))
@pytest.mark.parametrize(("form", "digits"), [("%Y%m%d%H%M", 12), ("%Y%m%d%H%M%S", 14)])
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64(), pa.string()])
def test_numbers_with_a_time_of_day_are_dates(
    dtype: Any, form: str, digits: int, moments: list[dt.datetime]
) -> None:
    text = [m.strftime(form) for m in moments]
    assert {len(t) for t in text} == {digits}
    wanted = pd.to_datetime(text, format=form).as_unit("ns").asi8
    np.testing.assert_array_equal(
        read(text if dtype == pa.string() else [int(t) for t in text], dtype).ns, wanted
    )


@pytest.mark.parametrize("odd", [20191305, 20190230, 20190100])
def test_a_number_that_is_no_date_is_named_with_its_row(odd: int) -> None:
    with pytest.raises(DataError, match=rf"f.parquet: d: {odd} in row 2 is no date like 20191105"):
        read([20190101, 20190102, odd])


@settings(max_examples=20, deadline=None)
@given(moments=st.lists(st.dates(dt.date(1980, 1, 1), dt.date(2100, 12, 31)), min_size=1, max_size=20))
@pytest.mark.parametrize("dtype", [pa.int32(), pa.int64(), pa.uint32()])
def test_numbers_like_20191105_are_dates(dtype: Any, moments: list[dt.date]) -> None:
    found = read([int(m.strftime("%Y%m%d")) for m in moments], dtype)
    np.testing.assert_array_equal(found.ns, pd.to_datetime(moments).as_unit("ns").asi8)
    assert found.zone_assumed


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_epochs_written_as_text_are_numbers(unit: str) -> None:
    moment = np.datetime64("2021-07-01T12:00:00", unit)
    found = read([str(moment.astype(np.int64))])
    assert found.ns.tolist() == [int(moment.astype("M8[ns]").astype(np.int64))]
    assert found.reading == f"text of {unit} since 1970 UTC"

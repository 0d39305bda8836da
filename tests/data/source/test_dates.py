"""Dates in text and compact numbers, against pandas; the order of day and month is proved or asked."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
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
        (["11/5/2019", "11/6/2019", "11/7/2019"], "2019-11-05", "month first: so 3 distinct days"),
        (["5/11/2019", "6/11/2019", "7/11/2019"], "2019-11-05", "day first: so 3 distinct days"),
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
        (["1/1/2020", "2/1/20"], 1),
        (["1/1/2020", ""], 1),
        (["20200230"], 0),
        (["2020/02/01 10:00Z", "2020/02/01 10:00"], 1),
        (["yesterday"], 0),
    ],
)
def test_a_value_that_is_no_date_is_named_with_its_row(text: list[str], row: int) -> None:
    with pytest.raises(DataError, match=rf"f.parquet: d: '{text[row]}' in row {row} is not a stamp"):
        read(text)


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

"""Values of every physical type equal Python's own int, float and Decimal; every change is counted."""

from __future__ import annotations

import decimal
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from foxhunt_ray.data.source.numbers import Kind, judge_text, to_values
from foxhunt_ray.errors import DataError

NAN = float("nan")
I64, U64, I128 = 2**63 - 1, 2**64 - 1, 2**127 - 1
WIDE = decimal.Context(prec=100)


def convert(column: Any, kind: Kind = "number") -> tuple[NDArray[np.float64], dict[str, int]]:
    values, counts = to_values(column, kind=kind, where="f.parquet: x")
    assert values.dtype == np.float64 and values.shape == (len(column),)
    return values, counts


def assert_same(found: NDArray[np.float64], expected: Any) -> None:
    np.testing.assert_array_equal(found, np.array(expected, np.float64))


def binary(raw: list[int | None], width: int, *, signed: bool = True) -> Any:
    cells = [None if v is None else v.to_bytes(width, "little", signed=signed) for v in raw]
    return pa.array(cells, pa.binary(width))


# Integers, floats, booleans

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_equal_python_floats_with_and_without_nulls(dtype: Any) -> None:
    limits = np.iinfo(dtype.to_pandas_dtype())
    raw = [0, 1, limits.max // 3, limits.min // 3, None]
    assert_same(convert(pa.array(raw, dtype))[0], [NAN if v is None else float(v) for v in raw])
    assert_same(convert(pa.array(raw[:-1], dtype))[0], [float(v) for v in raw if v is not None])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63) + 1, 2**63 - 2)), st.integers(0, 3))
def test_large_integers_are_rounded_once_and_counted(raw: list[int | None], cut: int) -> None:
    values, counts = convert(pa.array(raw, pa.int64())[cut:])
    kept = raw[cut:]
    assert_same(values, [NAN if v is None else float(v) for v in kept])
    assert counts.get("rounded", 0) == sum(v is not None and int(float(v)) != v for v in kept)
    assert set(counts) <= {"rounded"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.integers(0, 2**64 - 2).filter(lambda v: v != I64)))
def test_unsigned_integers_are_rounded_once_and_counted(raw: list[int | None]) -> None:
    values, counts = convert(pa.array(raw, pa.uint64()))
    assert_same(values, [NAN if v is None else float(v) for v in raw])
    assert counts.get("rounded", 0) == sum(v is not None and int(float(v)) != v for v in raw)


def test_the_extremes_of_64_bits_mean_undefined() -> None:
    values, counts = convert(pa.array([I64, 5, -(2**63), None], pa.int64()))
    assert_same(values, [NAN, 5, NAN, NAN])
    assert counts == {"sentinel": 2}
    values, counts = convert(pa.array([U64, I64, 5], pa.uint64()))
    assert_same(values, [NAN, NAN, 5])
    assert counts == {"sentinel": 2}


def test_the_price_of_an_empty_level_is_missing_only_among_prices() -> None:
    column = pa.array([9_999_999_999, 1_000_000, -9_999_999_999], pa.int64())
    assert_same(convert(column, "integer price")[0], [NAN, 1_000_000, NAN])
    assert convert(column, "integer price")[1] == {"sentinel": 2}
    assert_same(convert(column)[0], [9_999_999_999, 1_000_000, -9_999_999_999])


def test_an_undefined_price_that_became_a_float_is_missing_only_among_prices() -> None:
    column = pa.array([I64 / 1e9, 100.25, 2.0**63, 9_999_999_999.0])
    values, counts = convert(column, "price")
    assert_same(values, [NAN, 100.25, NAN, NAN])
    assert counts == {"sentinel": 3}
    assert convert(column)[1] == {}


@pytest.mark.parametrize("code", [-99.99, -99.0, -999.0, -9999.0, 0.0])
def test_codes_that_some_market_could_trade_at_stay(code: float) -> None:
    values, counts = convert(pa.array([10.0, code, 11.0]), "price")
    assert_same(values, [10, code, 11])
    assert counts == {}


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_widen_exactly_and_infinite_ones_are_counted(dtype: Any) -> None:
    raw = np.array([0.1, -2.5, np.inf, -np.inf, np.nan, 0.0], dtype.to_pandas_dtype())
    values, counts = convert(pa.array(raw, dtype, mask=np.arange(6) == 5))
    assert_same(values, [float(raw[0]), -2.5, NAN, NAN, NAN, NAN])
    assert counts == {"infinite": 2}


def test_float64_without_nulls_is_not_copied() -> None:
    source = np.random.default_rng(0).normal(size=100)
    values, counts = convert(pa.chunked_array([pa.array(source)]))
    assert np.shares_memory(values, source)
    assert counts == {}


def test_booleans_nulls_and_empty_columns_become_floats() -> None:
    assert_same(convert(pa.array([True, None, False]))[0], [1, NAN, 0])
    assert_same(convert(pa.nulls(2))[0], [NAN, NAN])
    for dtype in (pa.int64(), pa.float32(), pa.decimal128(18, 4), pa.binary(8), pa.null()):
        for empty in (pa.chunked_array([], dtype), pa.array([], dtype)):
            assert len(convert(empty)[0]) == 0
    for dtype in (pa.decimal128(18, 4), pa.binary(16), pa.decimal256(50, 4)):
        assert_same(convert(pa.nulls(3, dtype))[0], [NAN] * 3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.none() | st.floats(width=32) | st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_nullable_columns_equal_what_pandas_reads(raw: list[float | None]) -> None:
    values, counts = convert(pa.array([None if v is None else float(v) for v in raw]))
    expected = pd.Series(raw, dtype="Float64").to_numpy(np.float64, na_value=np.nan)
    infinite = np.isinf(expected)
    assert_same(values, np.where(infinite, np.nan, expected))
    assert counts == ({"infinite": int(infinite.sum())} if infinite.any() else {})


# Decimals and binary fixed point


@settings(max_examples=100, deadline=None)
@given(data=st.data(), scale=st.integers(-3, 38), width=st.sampled_from([128, 256]))
def test_decimals_are_rounded_exactly_once(data: st.DataObject, scale: int, width: int) -> None:
    digits = 10 ** data.draw(st.integers(1, 38)) - 1
    raw = data.draw(st.lists(st.none() | st.integers(-digits, digits), max_size=8))
    numbers = [None if v is None else Decimal(v).scaleb(-scale, WIDE) for v in raw]
    words = b"".join((v or 0).to_bytes(width // 8, "little", signed=True) for v in raw)
    valid = pa.array([v is not None for v in raw], pa.bool_()).buffers()[1]
    dtype = pa.decimal128(38, scale) if width == 128 else pa.decimal256(76, scale)
    column = pa.Array.from_buffers(dtype, len(raw), [valid, pa.py_buffer(words)])
    values, counts = convert(column[1:])
    assert_same(values, [NAN if v is None else float(v) for v in numbers[1:]])
    assert counts == {}


@pytest.mark.parametrize(("width", "digits"), [(8, 9), (16, 16)])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_binary_prices_equal_exact_fractions(width: int, digits: int, data: st.DataObject) -> None:
    top = 10**37 if width == 16 else I64 - 1
    raw = data.draw(st.lists(st.none() | st.integers(-top, top) | st.integers(-(10**12), 10**12), max_size=8))
    expected = [NAN if v is None else v / 10**digits for v in raw]  # int by int is rounded exactly
    values, counts = convert(binary(raw, width)[1:], "fixed price")
    assert_same(values, expected[1:])
    assert counts == {}


@pytest.mark.parametrize(("width", "digits"), [(8, 9), (16, 16)])
def test_binary_sizes_are_unsigned_and_undefined_values_are_counted(width: int, digits: int) -> None:
    most = 2 ** (8 * width)
    large = most - 2 if width == 8 else 10**37
    values, counts = convert(binary([most - 1, large, 0, None], width, signed=False), "fixed size")
    assert_same(values, [NAN, large / 10**digits, 0, NAN])
    assert counts == {"sentinel": 1}
    values, counts = convert(binary([most // 2 - 1, -most // 2, -5, None], width), "fixed price")
    assert_same(values, [NAN, NAN, -5 / 10**digits, NAN])
    assert counts == {"sentinel": 2}


def test_real_binary_quotes_have_their_prices(real_data: Path) -> None:
    quotes = pq.read_table(real_data / "nautilus_64bit" / "quotes.parquet")
    bid, ask = (convert(quotes.column(f"{side}_price"), "fixed price")[0] for side in ("bid", "ask"))
    assert bid[0] == 112.12
    assert (ask > bid).all()
    assert (bid == np.round(bid, 5)).all()  # the precision that the file states
    assert (convert(quotes.column("bid_size"), "fixed size")[0] > 0).all()


def test_real_decimals_equal_python_decimals(real_data: Path) -> None:
    path = next((real_data / "us_equity_daily_spark").rglob("*.parquet"))
    column = pq.ParquetFile(path).read(columns=["close"]).column("close")
    assert_same(convert(column)[0], [float(v) for v in column.to_pylist()])


# Text

CODES = ["", ".", "NA", "N/A", "NaN", "null", "None", "-", "--", "nan", "#N/A", " ", None]
SPELT = st.from_regex(r"\A ?[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})? ?\Z")
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@pytest.mark.parametrize("dtype", TEXTS, ids=str)
@settings(max_examples=40, deadline=None)
@given(raw=st.lists(SPELT | st.sampled_from(CODES), max_size=12))
def test_text_equals_what_python_reads(dtype: Any, raw: list[str | None]) -> None:
    values, counts = convert(pa.array(raw, dtype), "text")
    expected = np.array([NAN if v in CODES else float(v) for v in raw], np.float64)
    infinite = np.isinf(expected)
    assert_same(values, np.where(infinite, np.nan, expected))
    assert counts.get("missing code", 0) == sum(v in CODES and v is not None for v in raw)
    assert counts.get("infinite", 0) == infinite.sum()


def test_text_of_true_and_false_becomes_one_and_nought() -> None:
    values, counts = convert(pa.array(["True", "FALSE", None, "", "true "]), "bool")
    assert_same(values, [1, 0, NAN, NAN, 1])
    assert counts == {"missing code": 1}


def test_text_that_is_no_number_is_refused_with_value_and_count() -> None:
    expected = (
        "f.parquet: x: 2 of 5 values, such as 'halted', are not numbers, unlike the rows looked at first"
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        convert(pa.array(["1.5", "-", "halted", None, "n.a.x"]), "text")
    with pytest.raises(DataError, match=r"such as '1,234.5', .*write numbers without thousands separators"):
        convert(pa.array(["1.5", "1,234.5"]), "text")
    with pytest.raises(DataError, match=r"1 of 2 values, such as 'maybe', are not true or false"):
        convert(pa.array(["True", "maybe"]), "bool")


@pytest.mark.parametrize(
    ("raw", "kind", "odd"),
    [
        (["1.5", " +2e3", "-", None], "text", ""),
        (["True", "false", ""], "bool", ""),
        (["1", "true"], None, "true"),
        (["B", "S"], None, "B"),
        (["12", "005930"], None, "005930"),
        (["0", "0.5", "-0.25"], "text", ""),
        (["5", "1,234.5"], None, "1,234.5"),
        (["", None, "."], None, ""),
        ([], None, ""),
    ],
)
def test_text_is_judged_by_all_its_values(raw: list[str | None], kind: str | None, odd: str) -> None:
    for dtype in TEXTS:
        assert judge_text(pa.chunked_array([pa.array(raw, dtype)])) == (kind, odd)


# Dictionaries and chunks


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1.5, None, math.inf]), "number", [NAN, 1.5, NAN, NAN]),
        (pa.array([7, I64, 8]), "integer price", [8, 7, NAN, NAN]),
        (
            pa.array(["1.5", "-", None], pa.string_view()),
            "text",
            [NAN, 1.5, NAN, NAN],
        ),
        (pa.array([Decimal("0.1"), None, Decimal("2")]), "number", [2, 0.1, NAN, NAN]),
    ],
)
def test_dictionary_columns_equal_their_decoded_values(
    values: Any, kind: Kind, expected: list[float]
) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, None], pa.int8()), values)
    assert_same(convert(column, kind)[0], expected)


@settings(max_examples=40, deadline=None)
@given(raw=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), cut=st.integers(0, 20))
def test_a_column_in_pieces_is_the_same_column(raw: list[int | None], cut: int) -> None:
    whole = pa.array(raw, pa.int64())
    values, counts = convert(whole, "integer price")
    pieces, in_pieces = convert(pa.chunked_array([whole[:cut], whole[cut:]]), "integer price")
    assert_same(pieces, values)
    assert in_pieces == counts

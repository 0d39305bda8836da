"""Whose rows a file holds: by column, hive folder, metadata, plain folder or name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.source.symbols import (
    mixed_intervals,
    named_symbols,
    rows_by_symbol,
    stated_symbol,
    symbol_column,
)
from foxhunt_ray.errors import DataError

ROOT = "/home/u/bars"


def named(*names: str, root: str = ROOT) -> list[str]:
    paths = [f"{ROOT}/{name}.parquet" for name in names]
    found, _ = named_symbols(paths, [root])
    return [found[path][0] for path in paths]


def texts(*names: str) -> list[str]:
    return [str(f) for f in named_symbols([f"{ROOT}/{name}.parquet" for name in names], [ROOT])[1]]


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("EURUSD", "EURUSD"),
        ("AAPL_1h", "AAPL"),
        ("BTCUSDT-1m-2024-01", "BTCUSDT"),
        ("BTCUSDT-1M-2024", "BTCUSDT"),
        ("BTC_USDT-5m", "BTC_USDT"),
        ("ETHUSDT_1h_20250628_000741", "ETHUSDT"),
        ("2024-01-05_AAPL", "AAPL"),
        ("AAPL_2020__2021", "AAPL"),
        ("AAPL_2020-01-01_to_2021-01-01", "AAPL"),
        ("AAPL.1min.2024", "AAPL"),
        ("AAPL_daily", "AAPL"),
        ("AAPL_2024-01-05T09-30-00Z", "AAPL"),
        ("AAPL_1704067200000", "AAPL"),
        ("AAPL.snappy", "AAPL"),
        ("BRK.B", "BRK.B"),
        ("BRK.B_15min", "BRK.B"),
        ("BF-B", "BF-B"),
        ("2020.HK", "2020.HK"),
        ("000660", "000660"),
        ("005930_1d", "005930"),
        ("ES_H5", "ES_H5"),
        ("production_ETHUSDT_1m_20250628_150636", "production_ETHUSDT"),
        ("btcusdt_1m_pandas3", "btcusdt_1m_pandas3"),
        ("2024-01", "2024-01"),
        ("data", "data"),
    ],
)
def test_intervals_and_dates_at_the_ends_are_no_part_of_a_symbol(name: str, symbol: str) -> None:
    assert named(name) == [symbol]


@given(
    st.sampled_from(["AAPL", "BTC_USDT", "BRK.B", "000660", "^GSPC", "eurusd"]),
    st.sampled_from(["1s", "5m", "15min", "1h", "4h", "1d", "1w", "1mo", "daily", "hourly", "minute"]),
    st.dates(dt.date(1990, 1, 1), dt.date(2050, 1, 1)),
    st.sampled_from(["%Y", "%Y-%m", "%Y%m", "%Y-%m-%d", "%Y%m%d", "%Y_%m_%d", "%Y%m%d_121530"]),
    st.sampled_from("-_."),
)
def test_every_usual_ending_comes_off(symbol: str, every: str, day: dt.date, form: str, sep: str) -> None:
    name = sep.join([symbol, every, day.strftime(form)])
    assert named(name) == [symbol]
    assert named(f"{day.strftime(form)}_{symbol}") == [symbol]


@pytest.mark.parametrize(
    "names", [("part-0", "part-1"), ("2023", "2024"), ("data", "1h"), ("1h_2024", "daily")]
)
def test_names_of_parts_dates_and_intervals_are_refused(names: tuple[str, str]) -> None:
    assert texts(*names) == [
        f"{ROOT}/{names[0]}.parquet: neither a column, a folder nor its name says which symbol it holds; "
        "name data.symbol_column, or put the files of one symbol under a folder symbol=NAME"
    ]


def test_numbers_among_other_codes_are_symbols() -> None:
    assert named("2002", "2330", "2317") == ["2002", "2330", "2317"]


@pytest.mark.parametrize(
    ("names", "symbols"),
    [
        (("AAPL/1h", "MSFT/1h"), ["AAPL", "MSFT"]),
        (("AAPL/2024-01", "AAPL/2024-02", "msft/2024-01"), ["AAPL", "AAPL", "msft"]),
        (("yahoo/AAPL/1h/2020__2021", "yahoo/MSFT/1h/2020__2021"), ["AAPL", "MSFT"]),
        (("year=2024/month=1/AAPL/data", "year=2024/month=2/AAPL/data"), ["AAPL", "AAPL"]),
        (("AAPL/source=x/part-0", "MSFT/source=x/part-0"), ["AAPL", "MSFT"]),
        (("2023/AAPL", "2024/AAPL"), ["AAPL", "AAPL"]),
        (("a=1/AAPL", "a=2/AAPL"), ["AAPL", "AAPL"]),
        (("AAPL/1h", "MSFT_1h"), ["AAPL", "MSFT"]),
    ],
)
def test_the_nearest_folder_that_can_names_the_files_whose_names_cannot(
    names: tuple[str, ...], symbols: list[str]
) -> None:
    assert named(*names) == symbols
    assert not [text for text in texts(*names) if "set" in text or "symbol=NAME" in text]


def test_the_folder_that_was_given_names_its_files_only_if_it_looks_like_a_ticker() -> None:
    assert named("AAPL/2024-01", "AAPL/2024-02", root=f"{ROOT}/AAPL") == ["AAPL", "AAPL"]
    assert named("misc/2024-01", "misc/2024-02", root=f"{ROOT}/misc") == ["2024-01", "2024-02"]


def test_one_name_in_two_folders_is_refused_and_told_apart_until_decided() -> None:
    assert named("yahoo/AAPL", "polygon/AAPL", "yahoo/MSFT") == ["yahoo/AAPL", "polygon/AAPL", "MSFT"]
    assert texts("yahoo/AAPL", "polygon/AAPL")[0].startswith(
        f"{ROOT}/yahoo/AAPL.parquet: {ROOT}/polygon/AAPL.parquet has the same name in another folder"
    )
    assert named("yahoo/AAPL/1h", "polygon/AAPL/1h") == ["yahoo/AAPL", "polygon/AAPL"]


def test_joined_files_are_counted_and_what_came_off_is_said() -> None:
    months = [f"BTCUSDT-1m-2024-{month:02d}" for month in range(1, 13)]
    assert texts(*months) == ["12 files of BTCUSDT joined; endings like -1m-2024-01 removed"]
    both = [*months, *(name.replace("BTC", "ETH") for name in months)]
    joined = "24 files joined to 2 symbols (BTCUSDT, ETHUSDT); endings like -1m-2024-01 removed"
    assert texts(*both) == [joined]
    assert texts("AAPL_1h", "MSFT_1h") == ["file names: endings like _1h removed"]
    assert texts("AAPL", "MSFT") == []


def test_intervals_in_the_names_of_one_symbol_must_agree() -> None:
    files = [("d/AAPL_60m.parquet", "AAPL"), ("d/AAPL/1h/2024.parquet", "AAPL"), ("d/B_1d.parquet", "B")]
    assert mixed_intervals(files) == []
    (found,) = mixed_intervals([*files, ("d/bar=1min/AAPL.parquet", "AAPL")])
    assert found.level == "refusal"
    assert str(found) == (
        "d/bar=1min/AAPL.parquet: 1min bars of AAPL here, but 60m bars of it in d/AAPL_60m.parquet; give "
        "data.path a pattern that names one interval, such as **/*60m*"
    )
    assert mixed_intervals([("B-1M.parquet", "B"), ("B-1m.parquet", "B")])


@pytest.mark.parametrize("key", ["symbol", "Ticker", "instrument", "sym", "asset", "pair", "contract"])
def test_a_hive_folder_states_the_symbol_and_leading_zeros_survive(key: str) -> None:
    assert stated_symbol(f"/d/{key}=000660/year=2024/part-0.parquet", None) == ("000660", "folder names")
    assert stated_symbol(f"/d/{key}=BTC%2FUSD/x.parquet", {b"symbol": b"Z"})[0] == "BTC/USD"


def test_a_contract_folder_counts_before_that_of_its_symbol() -> None:
    assert stated_symbol("/d/contract=ESZ3/symbol=ES/x.parquet", None)[0] == "ESZ3"


def test_a_folder_for_rows_without_symbol_is_refused() -> None:
    with pytest.raises(DataError, match="rows without a symbol"):
        stated_symbol("/d/symbol=__HIVE_DEFAULT_PARTITION__/x.parquet", None)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({b"instrument_id": b"EUR/USD.SIM"}, ("EUR/USD.SIM", "metadata instrument_id")),
        ({b"ticker": b"AAPL"}, ("AAPL", "metadata ticker")),
        (
            {b"bar_type": b"ADABTC.BINANCE-1-MINUTE-LAST-EXTERNAL"},
            ("ADABTC.BINANCE", "metadata bar_type"),
        ),
        ({b"bar_type": b"BTC-USD.X-5-MINUTE-LAST-INTERNAL"}, ("BTC-USD.X", "metadata bar_type")),
        ({b"pandas": b"{}", b"\xff": b"\xff"}, ("", "")),
        (None, ("", "")),
    ],
)
def test_the_metadata_of_the_schema_state_the_symbol(metadata: Any, expected: tuple[str, str]) -> None:
    assert stated_symbol("/d/x.parquet", metadata) == expected


def column_of(frame: pd.DataFrame, times: list[str]) -> str:
    table = pa.Table.from_pandas(frame)
    return symbol_column(table.schema, "", path="x", times=times, head=table.select)


def test_a_level_of_a_pandas_index_holds_the_symbol_whatever_its_name() -> None:
    stamps = pd.to_datetime(["2020-01-01", "2020-01-02"], utc=True)
    for name in (None, "secid", "Ticker"):
        index = pd.MultiIndex.from_product([["A", "B"], stamps], names=[name, "when"])
        found = column_of(pd.DataFrame({"close": [1.0] * 4}, index=index), ["when"])
        assert found == (name or "__index_level_0__")


def test_a_text_index_of_dates_is_no_symbol() -> None:
    frame = pd.DataFrame({"unix": [1, 2], "close": [1.0, 2.0]}, index=["2020-01-01", "2020-01-02"])
    assert column_of(frame, ["unix"]) == ""


def test_text_outside_an_index_is_no_symbol_unless_its_name_says_so() -> None:
    frame = pd.DataFrame({"ts": [1], "venue": ["X"], "code": ["000660"]})
    assert column_of(frame, ["ts"]) == "code"
    assert column_of(frame[["ts", "venue"]], ["ts"]) == ""


@given(st.lists(st.sampled_from(["A", "B", "000660"]), min_size=1, max_size=30))
def test_rows_by_symbol_are_a_partition_in_the_order_of_the_file(names: list[str]) -> None:
    rows = rows_by_symbol(pa.chunked_array([names]), where="x")
    assert {s: at.tolist() for s, at in rows.items()} == {
        s: np.flatnonzero(np.array(names) == s).tolist() for s in set(names)
    }

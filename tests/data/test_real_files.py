"""Real files as people have them on disk: the facts that are known of each, or the reason it is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Market, read_market
from foxhunt_ray.errors import DataError


def read(path: Path, **data: Any) -> Market:
    return read_market(
        load_config(None, {"data.path": str(path), **{f"data.{k}": v for k, v in data.items()}})
    )


def rows(market: Market) -> dict[str, int]:
    return {bars.symbol: len(bars.ts_event) for bars in market.bars}


def span(market: Market, symbol: int = 0) -> list[str]:
    ts = market.bars[symbol].ts_event
    return [str(t)[:16] for t in ts[[0, -1]].astype("M8[ns]")]


def test_fx_hourly(real_data: Path) -> None:
    market = read(real_data / "fx_hourly")
    assert rows(market) == {"EURUSD": 74439, "NZDUSD": 74451, "XAUUSD": 76499}
    assert span(market) == ["2007-01-01T21:00", "2018-12-31T21:00"]
    assert [int((np.diff(b.ts_event) > 3600 * 10**9).sum()) for b in market.bars] == [641, 643, 1524]
    assert market.notes == (
        "time: column time, timestamp[us] without zone, read as UTC; set data.timezone if it is local time",
        "symbols: 3 from file names: EURUSD, NZDUSD, XAUUSD",
        "columns that never change: bid_size = 0, ask_size = 0",
    )


def test_fx_hourly_equals_the_file_bit_by_bit(real_data: Path) -> None:
    bars = read(real_data / "fx_hourly" / "XAUUSD.parquet").bars[0]
    table = pq.read_table(real_data / "fx_hourly" / "XAUUSD.parquet").to_pandas()
    np.testing.assert_array_equal(bars.ts_event, table["time"].astype("datetime64[ns]").astype("int64"))
    for name, values in bars.columns.items():
        np.testing.assert_array_equal(values, table[name].astype("float64"))


def test_equities_in_long_form_in_local_time(real_data: Path) -> None:
    market = read(real_data / "us_equity_hourly_long.parquet", timezone="America/New_York")
    assert rows(market) == {"AAPL": 40831, "AIG": 40811, "BAC": 40818, "IBM": 40813, "SPY": 40832}
    assert span(market) == ["1998-01-02T14:00", "2021-03-31T19:00"]
    assert any(note.startswith("integer prices (open, high, low, close)") for note in market.notes)


def test_spark_folders(real_data: Path) -> None:
    market = read(real_data / "us_equity_daily_spark")
    counts = dict.fromkeys(("AAPL", "AIG", "BAC", "IBM", "SPY"), 5849)
    assert rows(market) == counts | {"GOOG": 4183, "IWM": 5244, "QQQ": 3964}
    assert Counter(f.status for f in market.files) == {"read": 8, "skipped": 10}
    assert {f.reason.split(":")[0] for f in market.files if f.status == "skipped"} == {"hidden"}


def test_futures_contracts_are_kept_apart(real_data: Path) -> None:
    market = read(real_data / "es_futures_minute_contracts.parquet")
    assert rows(market) == {"ESZ3": 16673, "ESH4": 5116, "ESM4": 442, "ESZ4": 9, "ESU4": 6}
    assert market.dropped == {}


def test_contracts_read_as_one_series_are_refused(real_data: Path, tmp_path: Path) -> None:
    table = pq.read_table(real_data / "es_futures_minute_contracts.parquet")
    pq.write_table(table.drop_columns("symbol"), tmp_path / "ES.parquet")
    with pytest.raises(DataError, match=r"ES at 2013-.* if trades, contracts or sides are interleaved"):
        read(tmp_path)


def test_epoch_seconds_newest_first(real_data: Path) -> None:
    market = read(real_data / "btc_usd_hourly_cdd.parquet")
    assert rows(market) == {"BTC/USD": 33259}
    assert span(market) == ["2018-05-15T06:00", "2022-03-01T00:00"]
    assert market.notes[0].startswith("time: column unix, s since 1970 UTC; chosen over date")
    assert "order: the file is newest first; rows sorted by time" in market.notes


def test_two_time_columns_that_agree_read_the_same(real_data: Path) -> None:
    file = real_data / "btc_usd_hourly_cdd.parquet"
    by_number, by_text = read(file).bars[0], read(file, time_column="date").bars[0]
    np.testing.assert_array_equal(by_number.ts_event, by_text.ts_event)


def test_time_as_a_pandas_index(real_data: Path) -> None:
    market = read(real_data / "btcusdt_1m_pandas3.parquet")
    assert rows(market) == {"btcusdt_1m_pandas3": 10080}
    assert span(market) == ["2026-06-10T03:27", "2026-06-17T03:26"]


def test_a_table_of_indicators(real_data: Path) -> None:
    market = read(real_data / "spy_daily_ta_features.parquet")
    assert rows(market) == {"spy_daily_ta_features": 3335}
    assert len(market.bars[0].columns) == 230
    assert "columns that never change: VFI_130 = 0" in market.notes


@pytest.mark.parametrize(
    ("name", "count", "columns"), [("googl_yahoo_daily", 2335, 6), ("sp500_20_close_wide", 8313, 20)]
)
def test_daily_tables(real_data: Path, name: str, count: int, columns: int) -> None:
    market = read(real_data / f"{name}.parquet")
    assert rows(market) == {name: count}
    assert len(market.bars[0].columns) == columns


REFUSED = {
    "sp500_intraday_nov2019.parquet": r": Date: '11/\d+/2019 .*' in row \d+ is not a stamp like",
    "binance_snapshots": r"ETHUSDT.parquet and .*ETHUSDT_1h_.* have different columns: only the second has",
    "binance_snapshots/production_*": "6 stamps with rows that differ; keep one row a stamp",
    "nautilus_64bit": "bars.parquet: price column 'open' holds fixed_size_binary.8., not numbers",
    "binance_trades_arrow_2020.parquet": "rows that differ: if trades",
    "databento_mbp1_es.parquet": "rows that differ: if trades",
    "bad": "PARQUET-1481.*\n.*truncated.*\n.*lfs.*and 2 more files",
    "bad/PARQUET-1481.parquet": "its footer cannot be read .Invalid physical column type",
    "bad/ARROW-GH-41317.parquet": "time columns .* set data.time_column to one of them",
    "bad/ARROW-GH-45185.parquet": "no time column; its columns are x;",
    "bad/ARROW-RS-GH-6229-DICTHEADER.parquet": "no time column; its columns are nation_key, name",
    "bad/btcusdt_1m_truncated.parquet": "truncated: 268369 bytes that do not end in PAR1",
    "bad/klines_90d_lfs_pointer.parquet": "a Git LFS pointer, not the data; run `git lfs pull`",
    "bad/zero_bytes.parquet": "zero bytes",
    "bad/zero_rows.parquet": "holds no rows",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_in_a_sentence(real_data: Path, name: str) -> None:
    with pytest.raises(DataError, match=REFUSED[name]) as caught:
        read(real_data / name)
    assert len(str(caught.value).split("\n")) == (3 if name == "bad" else 1)


def test_columns_of_different_length_are_damage(real_data: Path) -> None:
    with pytest.raises(DataError, match=r"ARROW-GH-41317.parquet: .*(damaged: column|cannot be decoded)"):
        read(real_data / "bad" / "ARROW-GH-41317.parquet", time_column="timestamp_us_no_tz")

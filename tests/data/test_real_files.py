"""Real files as people have them on disk: the facts that are known of each, or the question it raises."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Market, scan_market


def scan(path: Path, **data: Any) -> Market:
    return scan_market(
        load_config(None, {"data.path": str(path), **{f"data.{k}": v for k, v in data.items()}})
    )


def read(path: Path, **data: Any) -> Market:
    market = scan(path, **data)
    assert [str(f) for f in market.refusals] == []
    return market


def rows(market: Market) -> dict[str, int]:
    return {bars.symbol: len(bars.ts_event) for bars in market.bars}


def span(market: Market, symbol: int = 0) -> list[str]:
    ts = market.bars[symbol].ts_event
    return [str(t)[:16] for t in ts[[0, -1]].astype("M8[ns]")]


def said(market: Market, text: str) -> bool:
    return any(text in str(f) for f in market.findings)


def test_fx_hourly(real_data: Path) -> None:
    market = read(real_data / "fx_hourly")
    assert rows(market) == {"EURUSD": 74439, "NZDUSD": 74451, "XAUUSD": 76499}
    assert span(market) == ["2007-01-01T21:00", "2018-12-31T21:00"]
    assert [int((np.diff(b.ts_event) > 3600 * 10**9).sum()) for b in market.bars] == [641, 643, 1524]
    assert said(market, "time: column time, timestamp[us] without zone, read as UTC")
    assert said(market, "symbols: 3 from file names: EURUSD, NZDUSD, XAUUSD")
    assert said(market, "columns that never change: bid_size = 0, ask_size = 0")


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
    assert said(market, "integer prices (open, high, low, close) are read as fixed point x10,000")
    assert market.bars[-1].columns["close"][-1] == pytest.approx(396.3, abs=1)


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
    (refused,) = map(str, scan(tmp_path).refusals)
    assert "22,246 rows give 17,674 distinct stamps; stamps whose rows differ: 4," in refused
    assert "if contracts or sides are interleaved here" in refused


def test_sides_under_one_stamp_are_told_apart_by_their_column(real_data: Path, tmp_path: Path) -> None:
    table = pq.read_table(real_data / "es_futures_minute_contracts.parquet")
    names = [n if n != "symbol" else "expiry_code" for n in table.column_names]
    pq.write_table(table.rename_columns(names), tmp_path / "ES.parquet")
    (refused,) = map(str, scan(tmp_path).refusals)
    assert refused.endswith("column 'expiry_code' tells them apart: set data.symbol_column = expiry_code")
    assert len(read(tmp_path, symbol_column="expiry_code").bars) == 5


def test_epoch_seconds_newest_first(real_data: Path) -> None:
    market = read(real_data / "btc_usd_hourly_cdd.parquet")
    assert rows(market) == {"BTC/USD": 33259}
    assert span(market) == ["2018-05-15T06:00", "2022-03-01T00:00"]
    assert said(market, "time: column unix, s since 1970 UTC; chosen over date")
    assert said(market, "order: the file is newest first; rows sorted by time")


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
    assert said(market, "columns that never change: VFI_130 = 0")


def test_a_yahoo_table(real_data: Path) -> None:
    market = read(real_data / "googl_yahoo_daily.parquet")
    assert rows(market) == {"googl_yahoo": 2335}
    assert list(market.bars[0].columns) == ["open", "high", "low", "close", "Adj Close", "volume"]


def test_a_wide_table_asks_and_takes_either_answer(real_data: Path) -> None:
    file = real_data / "sp500_20_close_wide.parquet"
    (question,) = map(str, scan(file).refusals)
    assert "20 columns look like prices of 20 symbols (AAPL, AMD" in question
    assert "set data.wide = symbols" in question
    melted = read(file, wide="symbols")
    assert rows(melted) == dict.fromkeys(sorted(pq.read_schema(file).names[:20]), 8313)
    assert all(list(b.columns) == ["close"] for b in melted.bars)
    (one,) = read(file, wide="features").bars
    np.testing.assert_array_equal(one.columns["AAPL"], melted.bars[0].columns["close"])


def test_snapshots_that_overlap(real_data: Path) -> None:
    (question,) = map(str, scan(real_data / "binance_snapshots" / "production_*").refusals)
    assert "ETHUSDT: 800 rows in 8 files give 155 distinct stamps" in question
    assert "stamps whose rows differ: 6 (2025-06-28T06:11" in question and "set data.duplicates" in question
    rule = "latest_by:collection_time"
    market = read(real_data / "binance_snapshots" / "production_*", duplicates=rule)
    assert rows(market) == {"ETHUSDT": 155}
    assert 155 + sum(market.dropped.values()) == market.rows_read == 800
    files = sorted((real_data / "binance_snapshots").glob("production_*"))
    tables = [pq.read_table(f).to_pandas().set_index("timestamp") for f in files]
    every = pd.concat(tables).sort_values("collection_time", kind="stable")
    latest = every.groupby(level=0).last()
    np.testing.assert_array_equal(market.bars[0].columns["close"], latest["close"])


def test_snapshots_of_two_intervals_and_three_schemas(real_data: Path) -> None:
    refused = [str(f) for f in scan(real_data / "binance_snapshots").refusals]
    assert any("ETHUSDT.parquet: columns quote_asset_volume" in r and "1 of 11 files" in r for r in refused)
    assert any("bars of 1 min in" in r and "but of 1 h in" in r for r in refused)
    assert any("800 rows in 8 files give 155 distinct stamps" in r for r in refused)


def test_binary_prices_are_decoded(real_data: Path) -> None:
    bars = read(real_data / "nautilus_64bit" / "bars.parquet")
    assert rows(bars) == {"ADABTC.BINANCE": 10}
    quotes = scan(real_data / "nautilus_64bit" / "quotes.parquet")
    assert quotes.bars[0].symbol == "EUR/USD.SIM"
    assert quotes.bars[0].columns["bid_price"][0] == 112.12
    assert "9,500 quotes or book events" in str(quotes.refusals[0])


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("binance_trades_arrow_2020", "2,001 trades .*630 of them at the stamp of the one before.*--bars 1s"),
        ("databento_mbp1_es", "2,288 quotes or book events from .*events, not bars.*--bars 1s"),
    ],
)
def test_events_are_no_bars(real_data: Path, name: str, what: str) -> None:
    (refused,) = scan(real_data / f"{name}.parquet").refusals
    assert re.search(what, str(refused))


BAD = {
    "PARQUET-1481": "its footer cannot be read (Invalid physical column type",
    "ARROW-GH-41317": "its data cannot be decoded (Column 18 named timestamp_us_no_tz expected length 3",
    "ARROW-GH-45185": "its data cannot be decoded (The repetition level",
    "ARROW-RS-GH-6229-DICTHEADER": "its data cannot be decoded (Invalid column metadata",
    "btcusdt_1m_truncated": "truncated: 268369 bytes that do not end in PAR1",
    "klines_90d_lfs_pointer": "a Git LFS pointer, not the data; run `git lfs pull`",
    "zero_bytes": "zero bytes",
    "zero_rows": "holds no rows",
}


def test_eight_bad_files_have_a_reason_each(real_data: Path) -> None:
    market = scan(real_data / "bad")
    assert {Path(f.path).stem for f in market.files} == BAD.keys()
    for file in market.files:
        assert file.status == "refused" and file.damaged
        assert file.reason.startswith(BAD[Path(file.path).stem])


def test_bad_files_are_passed_over_when_asked_for(real_data: Path, tmp_path: Path) -> None:
    for file in (real_data / "bad").iterdir():
        (tmp_path / file.name).symlink_to(file)
    good = real_data / "btcusdt_1m_pandas3.parquet"
    (tmp_path / good.name).symlink_to(good)
    market = read(tmp_path, skip_bad=True)
    assert rows(market) == {"btcusdt_1m_pandas3": 10080}
    assert Counter(f.status for f in market.files) == {"skipped": 8, "read": 1}
    assert all(f.reason.startswith("damaged: ") for f in market.files if f.status == "skipped")

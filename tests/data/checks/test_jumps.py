"""Jumps, still prices, missing volume, new units: planted ones are found, honest data stay silent."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import Config
from foxhunt_ray.data.checks.jumps import jump_findings
from foxhunt_ray.data.schema import Bars, scan_market

HOUR = 3600 * 10**9


def bars(n=1000, *, symbol="A", seed=0, **columns) -> Bars:
    random = np.random.default_rng(seed)
    walk = 100 * np.exp(np.cumsum(random.normal(0, 0.01, n)))
    volume = np.exp(random.normal(6, 1, n))
    return Bars(symbol, np.arange(n) * HOUR, {"close": walk, "volume": volume} | columns)


def texts(*market: Bars) -> list[str]:
    return [str(f) for f in jump_findings(market, "auto")]


def read(path):
    return scan_market(Config.model_validate({"data": {"path": str(path)}}), whole=True).bars


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), volatility=st.sampled_from([1e-4, 1e-2, 0.05]), spread=st.floats(0.1, 1.2))
def test_a_fat_tailed_walk_with_noisy_volume_is_silent(seed, volatility, spread):
    random = np.random.default_rng(seed)
    close = np.exp(np.cumsum(volatility * np.clip(random.standard_t(4, 2000), -9, 9)))
    assert texts(bars(2000, close=close, volume=np.exp(random.normal(5, spread, 2000)))) == []


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (1 / 2, "-0.69 (about 2:1), "),
        (2 / 3, "-0.41 (about 3:2), "),
        (1 / 7, "-1.95 (about 7:1), "),
        (20, "+3.00 (about 1:20), "),
        (1 / 2.6, "-0.96, "),
    ],
)
def test_a_split_is_told_with_its_date_size_and_ratio(factor, words):
    one = bars()
    close = one.columns["close"]
    close[500:] *= factor * close[499] / close[500]  # exactly
    (found,) = jump_findings([one], "auto")
    assert (found.level, found.count) == ("warning", 1)
    assert f"A: jumps of the log price: 1970-01-21 {words}" in found.text


def test_the_share_of_squared_returns_is_that_of_the_jumps():
    one = bars()
    one.columns["close"][500:] *= 0.25
    squares = np.diff(np.log(one.columns["close"])) ** 2
    assert f"{squares[499] / squares.sum():.0%} of the sum of squared returns" in texts(one)[0]


def test_a_small_jump_is_told_if_it_is_out_of_all_proportion():
    quiet = np.exp(np.cumsum(np.random.default_rng(1).normal(0, 1e-4, 1000)))
    wild = np.exp(np.cumsum(np.random.default_rng(1).normal(0, 1e-2, 1000)))
    for values in (quiet, wild):
        values[500:] *= 0.8
    assert "1970-01-21 -0.22" in texts(bars(close=quiet))[0]
    assert texts(bars(close=wild)) == []


def test_eight_jumps_are_listed_and_the_rest_counted():
    one = bars()
    for row in range(50, 1000, 80):  # 12 of them
        one.columns["close"][row:] *= 3 if row % 160 == 50 else 1 / 3
    (found,) = jump_findings([one], "auto")
    assert found.count == 12 and found.text.count("1970-") == 8 and "and 4 smaller" in found.text


def test_ten_symbols_are_told_of_and_the_rest_named():
    market = [bars(symbol=f"S{i:02}", seed=i) for i in range(12)]
    for one in market:
        one.columns["close"][500:] /= 2
    found = jump_findings(market, "auto")
    assert len(found) == 11 and "in 2 more symbols: S" in found[-1].text and found[-1].count == 2


def test_a_missing_price_hides_no_jump():
    one = bars()
    one.columns["close"][500:] /= 4
    one.columns["close"][495:505] = np.nan
    assert "about 4:1" in texts(one)[0]


def test_a_price_that_stands_still_is_told_with_its_length():
    one = bars()
    one.columns["close"][300:330] = one.columns["close"][300]
    (found,) = jump_findings([one], "auto")
    assert "A 30 bars from 1970-01-13 12:00" in found.text and found.count == 30


def test_a_price_that_often_stands_still_may_do_so_longer():
    one = bars(close=np.repeat(bars(100).columns["close"], 10))
    assert texts(one) == []
    one.columns["close"][300:330] = one.columns["close"][300]
    assert texts(one) == []


def test_zero_volume_is_a_note_and_a_long_stretch_a_warning():
    one = bars()
    one.columns["volume"][[7, 100, 101]] = 0
    (found,) = jump_findings([one], "auto")
    assert (found.level, found.count) == ("note", 3)
    assert "A 3 of 1,000 (0.30%), the longest 2 bars from 1970-01-05 04:00" in found.text
    one.columns["volume"][300:340] = 0
    assert jump_findings([one], "auto")[0].level == "warning"


def test_volume_that_is_always_zero_is_left_to_the_constant_columns():
    assert texts(bars(volume=np.zeros(1000))) == []


def unit_breaks(one: Bars, column="volume") -> list[str]:
    """The stamps told of as last bars before a change of unit."""
    found = [f for f in jump_findings([one], "auto") if f.column == column and "unit" in f.text]
    return re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", found[0].text) if found else []


def stamp(row: int) -> str:
    return str(np.datetime64(row * HOUR, "ns").astype("datetime64[m]")).replace("T", " ")


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.lists(st.integers(30, 960), min_size=1, max_size=4).map(sorted),
    factor=st.sampled_from([1000.0, 8000.0, 1e6]),
)
def test_planted_changes_of_unit_are_named_to_the_bar(seed, rows, factor):
    rows = [r for r, before in zip(rows, [0, *rows], strict=False) if r - before >= 25]
    random = np.random.default_rng(seed)
    volume = np.exp(random.normal(5, 0.7, 1000))
    for row in rows:
        volume[row:] *= factor if rows.index(row) % 2 else 1 / factor
    assert unit_breaks(bars(volume=volume)) == [stamp(r - 1) for r in rows]


def test_four_bars_in_the_other_unit_are_two_changes():
    one = bars(seed=3)
    one.columns["volume"][300:] *= 7000
    one.columns["volume"][600:604] /= 7000
    assert unit_breaks(one) == [stamp(299), stamp(599), stamp(603)]


def test_a_short_outage_is_no_change_of_unit():
    one = bars(seed=3)
    one.columns["volume"][600:604] /= 7000
    assert unit_breaks(one) == []


def test_a_slow_rise_and_a_daily_rhythm_are_no_changes_of_unit():
    random = np.random.default_rng(0)
    rise = np.exp(np.linspace(0, 14, 3000) + random.normal(0, 1, 3000))
    night = np.exp(np.where(np.arange(3000) % 24 < 12, 0.0, 7.0) + random.normal(0, 0.5, 3000))
    assert unit_breaks(bars(3000, volume=rise)) == unit_breaks(bars(3000, volume=night)) == []


def test_a_column_with_negative_values_is_no_volume():
    assert unit_breaks(bars(net_volume=np.where(np.arange(1000) < 500, -1.0, 1e6)), "net_volume") == []


def test_a_symbol_without_a_price_is_still_looked_at():
    volume = np.where(np.arange(100) < 50, 1.0, 0.0) + 0.5
    volume[60:63] = 0
    one = Bars("A", np.arange(100) * HOUR, {"volume": volume, "x": volume})
    assert "bars without volume" in texts(one)[0]


def test_the_splits_of_real_hourly_shares_are_listed_beside_a_real_crash(real_data):
    found = {
        f.text.split(":")[0]: f
        for f in jump_findings(read(real_data / "us_equity_hourly_long.parquet"), "auto")
    }
    assert set(found) == {"AAPL", "AIG", "BAC", "IBM"} and found["AAPL"].count == 5
    for words in (
        "2000-06-21 -0.67 (about 2:1), 2000-09-29 -0.65",
        "2005-02-28 -0.69 (about 2:1), 2014-06-09 -1.94 (about 7:1), 2020-08-31 -1.36 (about 4:1)",
        "65% of the sum of squared returns",
    ):
        assert words in found["AAPL"].text
    assert "2009-07-01 +2.91" in found["AIG"].text


def test_the_jump_behind_made_up_rows_is_told(real_data):
    found = jump_findings(read(real_data / "binance_snapshots" / "ETHUSDT.parquet"), "auto")
    assert "2025-06-27 -0.21" in found[0].text
    assert "6 of 107" in found[1].text


def test_the_real_changes_of_unit_are_named_and_no_others(real_data):
    (one,) = read(real_data / "btc_usd_hourly_cdd.parquet")
    expected = [
        "2019-03-03 00:00",
        "2019-04-13 16:00",
        "2020-04-25 19:00",  # four bars without any volume
        "2020-04-25 23:00",
        "2020-10-12 08:00",
    ]
    assert unit_breaks(one) == expected
    assert unit_breaks(one, "Volume USD") == expected  # the two columns change places
    dollars = one.columns["volume"] > one.columns["Volume USD"]
    changes = np.flatnonzero(np.diff(dollars.astype(int)))
    assert [stamp(int(one.ts_event[row]) // HOUR) for row in changes] == expected


@pytest.mark.parametrize(
    "file",
    [
        "fx_hourly",
        "us_equity_hourly_long.parquet",
        "us_equity_daily_spark",
        "es_futures_minute_contracts.parquet",
        "btcusdt_1m_pandas3.parquet",
        "googl_yahoo_daily.parquet",
    ],
)
def test_honest_real_volumes_have_no_change_of_unit(real_data, file):
    assert not [f for f in jump_findings(read(real_data / file), "auto") if "unit" in f.text]

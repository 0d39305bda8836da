"""Wall-clock stamps: repeated hours are told apart as pandas does; local time without a zone is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import scan_market
from foxhunt_ray.data.source.zones import local_time_findings, to_utc
from foxhunt_ray.errors import ConfigError, DataError

ZONES = ["America/New_York", "Europe/London", "Australia/Sydney", "Asia/Tokyo"]


def local(zone: str, start: str, end: str, freq: str = "1h") -> tuple[np.ndarray, np.ndarray]:
    """UTC stamps and the wall clock of the zone at each, int64 ns."""
    index = pd.date_range(start, end, freq=freq, tz="UTC").as_unit("ns")
    return index.asi8, index.tz_convert(zone).tz_localize(None).as_unit("ns").asi8


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("freq", ["1h", "30min", "7min"])
def test_a_year_of_wall_clock_comes_back_as_utc(zone: str, freq: str) -> None:
    utc, wall = local(zone, "2019-01-01", "2019-12-31", freq)
    np.testing.assert_array_equal(to_utc(wall, zone, where="f"), utc)
    np.testing.assert_array_equal(to_utc(wall[::-1], zone, where="f"), utc[::-1])


def test_each_symbol_has_its_own_second_pass() -> None:
    utc, wall = local("America/New_York", "2020-10-31", "2020-11-03")
    both, groups = np.repeat(wall, 2), np.tile([0, 1], len(wall))
    np.testing.assert_array_equal(
        to_utc(both, "America/New_York", where="f", groups=groups), np.repeat(utc, 2)
    )


def test_a_repeated_time_that_stands_once_is_refused() -> None:
    _, wall = local("America/New_York", "2020-10-31", "2020-11-03")
    once = wall[np.concatenate([[True], np.diff(wall) > 0])]
    with pytest.raises(DataError, match=r"f: 2020-11-01 01:00:00 in row 29 comes twice in America/New_York"):
        to_utc(once, "America/New_York", where="f")


def test_a_time_that_does_not_exist_is_refused() -> None:
    wall = pd.DatetimeIndex(["2021-03-14 01:30", "2021-03-14 02:30"]).as_unit("ns").asi8
    with pytest.raises(DataError, match=r"2021-03-14 02:30:00 in row 1 does not exist in America/New_York"):
        to_utc(wall, "America/New_York", where="f")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'Mars/Base' is no time zone"):
        to_utc(np.zeros(1, np.int64), "Mars/Base", where="f")


def sign(stamps: np.ndarray) -> str:
    found = local_time_findings({"X": stamps}, where="f")
    assert all(f.level == "refusal" and "set data.timezone" in f.action for f in found)
    return found[0].text if found else ""


@pytest.mark.parametrize("zone", ZONES[:3])
def test_an_hour_that_comes_twice_shows_local_time(zone: str) -> None:
    _, wall = local(zone, "2019-02-01", "2020-01-31")
    assert "an hour comes twice on" in sign(wall)
    assert "an hour comes twice on" in sign(wall[::-1])


@pytest.mark.parametrize("zone", ZONES[:3])
def test_missing_hours_every_spring_show_local_time(zone: str) -> None:
    _, wall = local(zone, "2016-01-01", "2020-01-31")
    assert "an hour is missing on" in sign(np.unique(wall))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_hours_without_gaps_or_repeats_show_nothing(zone: str) -> None:
    assert sign(local(zone, "2016-01-01", "2020-01-31")[1]) == ""


def session(
    zone: str, opens: str, closes: str, *, stored_as: str, days: str = "2018-01-01/2020-12-31"
) -> np.ndarray:
    first, last = days.split("/")
    index = pd.date_range(first, last, freq="5min", tz=zone).as_unit("ns")
    index = index[index.indexer_between_time(opens, closes, include_end=False)]
    index = index[index.day_of_week < 5]
    return index.tz_convert(stored_as).tz_localize(None).as_unit("ns").asi8


@pytest.mark.parametrize(
    ("zone", "opens", "closes"), [("America/New_York", "9:30", "16:00"), ("Europe/London", "8:00", "16:30")]
)
def test_a_session_that_keeps_its_hours_all_year_is_local(zone: str, opens: str, closes: str) -> None:
    assert "in summer and winter alike" in sign(session(zone, opens, closes, stored_as=zone))
    assert sign(session(zone, opens, closes, stored_as="UTC")) == ""


def test_the_hours_of_an_exchange_are_known_in_a_short_history() -> None:
    week = "2019-11-04/2019-11-08"
    wall = session("America/New_York", "9:30", "16:00", stored_as="America/New_York", days=week)
    assert sign(wall).endswith("bars from 09:30 to 15:55, the hours of New York")
    assert sign(session("America/New_York", "9:30", "16:00", stored_as="UTC", days=week)) == ""


def test_an_asian_session_in_utc_shows_nothing() -> None:
    assert sign(session("Asia/Tokyo", "9:00", "15:00", stored_as="UTC")) == ""


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("us_equity_hourly_long.parquet", True),
        ("sp500_intraday_nov2019.parquet", True),
        ("fx_hourly", False),
        ("binance_snapshots/ETHUSDT_1h_20250628_000741.parquet", False),
        ("us_equity_daily_spark", False),
        ("googl_yahoo_daily.parquet", False),
        ("spy_daily_ta_features.parquet", False),
    ],
)
def test_real_files_show_local_time_or_not(real_data: Path, name: str, shows: bool) -> None:
    market = scan_market(load_config(None, {"data.path": str(real_data / name)}))
    assert any("look like local time" in str(f) for f in market.refusals) is shows

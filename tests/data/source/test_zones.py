"""Wall-clock stamps: repeated hours are told apart as pandas does; local time without a zone is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import scan_market
from foxhunt_ray.data.source.zones import local_time_findings, to_utc
from foxhunt_ray.errors import ConfigError, DataError

MINUTE = 60 * 10**9
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


@settings(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from(ZONES[:3]),
    minutes=st.sampled_from([10, 15, 30, 60]),
    kept=st.lists(st.booleans(), min_size=72, max_size=72),
    newest_first=st.booleans(),
)
def test_repeated_times_are_told_apart_or_refused_as_pandas_does(
    zone: str, minutes: int, kept: list[bool], newest_first: bool
) -> None:
    changes = {
        "America/New_York": "2020-11-01",
        "Europe/London": "2020-10-25",
        "Australia/Sydney": "2020-04-04",
    }
    _, wall = local(zone, changes[zone], "2020-12-01", f"{minutes}min")
    wall = wall[:72][np.array(kept) | (np.arange(72) % 71 == 0)]
    index = pd.DatetimeIndex(wall)
    try:
        wanted = index.tz_localize(zone, ambiguous="infer").as_unit("ns").asi8
    except ValueError:
        wanted = None
    if newest_first:
        wall, wanted = wall[::-1], None if wanted is None else wanted[::-1]
    if wanted is None:
        with pytest.raises(DataError, match="comes twice"):
            to_utc(wall, zone, where="f")
    else:
        np.testing.assert_array_equal(to_utc(wall, zone, where="f"), wanted)


@pytest.mark.parametrize("zone", ZONES)
def test_every_autumn_has_its_own_second_pass(zone: str) -> None:
    utc, wall = local(zone, "2016-01-01", "2020-12-31")
    np.testing.assert_array_equal(to_utc(wall, zone, where="f"), utc)


def test_a_repeated_hour_in_no_order_is_refused() -> None:
    _, wall = local("America/New_York", "2020-11-01 04:00", "2020-11-01 12:00", "10min")
    wall[6:18] = wall[[6, 12, 7, 13, 8, 14, 9, 15, 10, 16, 11, 17]]
    with pytest.raises(DataError, match=r"2020-11-01 01:00:00 in row 6 comes twice .* 12 rows"):
        to_utc(wall, "America/New_York", where="f")


def test_blocks_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foxhunt_ray.data.source.zones._BLOCK", 11)
    utc, wall = local("Europe/London", "2020-10-24", "2020-10-27", "20min")
    groups = np.repeat([1, 0], [len(wall), len(wall)])
    both = np.concatenate([wall, wall[::-1]])  # one symbol ascends, the other descends
    np.testing.assert_array_equal(
        to_utc(both, "Europe/London", where="f", groups=groups), np.concatenate([utc, utc[::-1]])
    )


def test_a_symbol_with_one_pass_is_refused_though_another_has_two() -> None:
    _, wall = local("America/New_York", "2020-11-01 00:00", "2020-11-01 12:00")
    once = wall[np.concatenate([[True], np.diff(wall) > 0])]
    groups = np.repeat([0, 1], [len(wall), len(once)])
    with pytest.raises(DataError, match=rf"2020-11-01 01:00:00 in row {len(wall) + 5} comes twice .* 1 rows"):
        to_utc(np.concatenate([wall, once]), "America/New_York", where="f", groups=groups)


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


@pytest.mark.parametrize(
    ("opens", "closes", "minutes", "late"),
    [("9:30", "16:00", 1, 0), ("9:30", "16:00", 1, 1), ("9:30", "16:00", 30, 30), ("9:00", "16:00", 60, 0)],
)
def test_bars_may_be_stamped_at_their_start_or_end(opens: str, closes: str, minutes: int, late: int) -> None:
    wall = session(
        "America/New_York", opens, closes, stored_as="America/New_York", days="2019-11-04/2019-11-08"
    )
    wall = wall[wall // MINUTE % minutes == 0] if minutes > 5 else np.unique(wall)
    wall = (wall[:, None] + np.arange(0, 5, minutes) * MINUTE).ravel() if minutes < 5 else wall
    assert "the hours of New York" in sign(wall + late * MINUTE)


@pytest.mark.parametrize("days", ["2018-01-01/2020-12-31", "2019-11-04/2019-11-08"])
def test_extended_hours_of_new_york_are_known(days: str) -> None:
    hours = ("4:00", "20:00")
    assert "bars from 04:00 to 19:55" in sign(
        session("America/New_York", *hours, stored_as="America/New_York", days=days)
    )


@pytest.mark.parametrize(
    ("zone", "opens", "closes"),
    [
        *(
            ("Asia/Tokyo", "9:00", "15:00"),
            ("Asia/Shanghai", "9:30", "15:00"),
            ("Asia/Kolkata", "9:15", "15:30"),
        ),
        *(("Europe/Moscow", "10:00", "18:40"), ("America/Sao_Paulo", "10:00", "17:00")),
    ],
)
def test_a_session_of_a_zone_without_daylight_saving_shows_nothing_in_utc(
    zone: str, opens: str, closes: str
) -> None:
    assert sign(session(zone, opens, closes, stored_as="UTC", days="2020-01-01/2020-12-31")) == ""


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), mean=st.sampled_from([1, 60, 3600]))
def test_irregular_stamps_all_around_the_clock_show_nothing(seed: int, mean: int) -> None:
    steps = np.random.default_rng(seed).exponential(mean * 1e9, 5000).astype(np.int64)
    assert sign(1_550_000_000 * 10**9 + np.cumsum(steps)) == ""


@pytest.mark.parametrize("freq", ["1min", "15min", "1h", "2h", "4h", "6h", "8h", "12h", "1D", "7D"])
def test_bars_all_around_the_clock_show_nothing(freq: str) -> None:
    index = pd.date_range("2015-01-01", periods=6000, freq=freq).as_unit("ns")
    assert sign(index.asi8) == ""
    assert sign(np.repeat(index.asi8, 2)) == ""  # two rows a stamp
    assert sign(index[index.day_of_week < 5].asi8) == ""


def test_repeats_at_other_hours_of_the_day_show_nothing() -> None:
    stamps = pd.date_range("2020-10-30", "2020-11-03", freq="1h").as_unit("ns").asi8
    assert sign(np.sort(np.append(stamps, stamps[60]))) == ""  # 12:00 on the day on which clocks go back


def test_one_finding_is_made_for_all_symbols_and_names_the_file() -> None:
    wall = session("America/New_York", "9:30", "16:00", stored_as="America/New_York")
    (found,) = local_time_findings({"A": wall, "B": wall, "C": wall[:0]}, where="f.parquet")
    assert found.file == "f.parquet"


def test_futures_stamped_in_utc_without_saying_so_show_nothing(real_data: Path) -> None:
    table = pq.read_table(real_data / "es_futures_minute_contracts.parquet", columns=["symbol", "ts_event"])
    symbols = np.array(table.column("symbol").to_pylist())
    stamps = table.column("ts_event").cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()
    assert local_time_findings({s: stamps[symbols == s] for s in np.unique(symbols)}, where="f") == []


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("us_equity_hourly_long.parquet", True),
        ("sp500_intraday_nov2019.parquet", True),
        ("fx_hourly", False),
        ("binance_snapshots/ETHUSDT_1h_20250628_000741.parquet", False),
        ("us_equity_daily_spark", False),
        ("btcusdt_1m_pandas3.parquet", False),
        ("sp500_20_close_wide.parquet", False),
        ("googl_yahoo_daily.parquet", False),
        ("spy_daily_ta_features.parquet", False),
    ],
)
def test_real_files_show_local_time_or_not(real_data: Path, name: str, shows: bool) -> None:
    market = scan_market(load_config(None, {"data.path": str(real_data / name)}))
    assert any("look like local time" in str(f) for f in market.refusals) is shows

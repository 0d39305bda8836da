"""Features are causal, and equal to their definitions computed a row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.features import GROUPS, choose_features, feature_rows, train_statistics
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

HOUR = 3600 * 10**9
ALL = tuple(n for group in GROUPS.values() for n in group)


def bars(n: int = 300, seed: int = 0, symbol: str = "AAA") -> Bars:
    random = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(random.standard_normal(n) * 1e-2))
    columns = {
        "open": close * 0.999,
        "high": close * 1.01,
        "low": close * 0.98,
        "close": close,
        "volume": random.lognormal(5, 1, n),
        "bid_close": close * 0.9995,
        "ask_close": close * (1.0005 + 1e-4 * random.random(n)),
        "signal": random.standard_normal(n),
    }
    return Bars(symbol, 1_577_836_800 * 10**9 + np.arange(n) * HOUR, columns)


def test_no_feature_sees_a_later_row():
    whole = bars()
    part = Bars(whole.symbol, whole.ts_event[:200], {k: v[:200] for k, v in whole.columns.items()})
    full = feature_rows(whole, (*ALL, "signal"), "auto")[:200]
    assert np.array_equal(full, feature_rows(part, (*ALL, "signal"), "auto"), equal_nan=True)


@pytest.mark.parametrize("row", [1, 24, 96, 299])
def test_values_are_those_of_the_definition(row):
    b = bars()
    values = dict(zip(ALL, feature_rows(b, ALL, "close")[row], strict=True))
    close = b.columns["close"]
    returns = np.diff(np.log(close))
    want = {f"return_{k}": np.log(close[row] / close[row - k]) if row >= k else np.nan for k in (1, 4, 24)}
    for k in (6, 24, 96):
        mean = np.mean(returns[row - k : row] ** 2) if row >= k else np.nan
        want[f"volatility_{k}"] = 0.5 * np.log(mean + 1e-12)
    want |= {"high_low": np.log(1.01 / 0.98), "close_open": np.log(1 / 0.999)}
    want["hour_sin"] = np.sin(2 * np.pi * (row % 24) / 24)
    monday = 2 * 24 + row  # 2020-01-01 was a Wednesday
    want["weekday_cos"] = np.cos(2 * np.pi * (monday % 168) / 168)
    for name, value in want.items():
        assert values[name] == pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True), name


def test_the_default_takes_what_the_columns_allow_and_names_the_rest():
    b = bars()
    for name in ("volume", "bid_close", "ask_close"):
        del b.columns[name]
    names, notes = choose_features([b], load_config())
    assert "volume_24" not in names and "spread" not in names and "high_low" in names
    assert any("volume_24" in n for n in notes) and any("spread" in n for n in notes)


def test_columns_without_a_price_leave_the_calendar():
    b = Bars("AAA", bars().ts_event, {"signal": bars().columns["signal"]})
    assert choose_features([b], load_config())[0] == ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos")


def test_a_constant_volume_is_left_out():
    b = bars()
    b.columns["volume"][:] = 0
    assert "volume_24" not in choose_features([b], load_config())[0]


def test_daily_bars_have_no_hour():
    b = bars()
    daily = Bars(b.symbol, np.arange(300) * 24 * HOUR, b.columns)
    names = choose_features([daily], load_config())[0]
    assert "hour_sin" not in names and "weekday_sin" in names


def test_columns_are_taken_by_name_and_glob_in_order():
    config = load_config(None, ["features.groups=[]", 'features.columns=["signal", "bid_*"]'])
    assert choose_features([bars()], config)[0] == ("signal", "bid_close")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('features.columns=["sginal"]', "'sginal'.*columns: .*signal"),
        ('features.groups=["volume"]', "'volume'.*do not allow"),
        ("features.groups=[]", "no input feature"),
    ],
)
def test_what_is_not_there_is_refused(override, message):
    b = bars()
    del b.columns["volume"]
    with pytest.raises(DataError, match=message):
        choose_features([b], load_config(None, [override]))


def test_an_empty_column_is_refused_by_name():
    b = bars()
    b.columns["signal"][:] = np.nan
    with pytest.raises(DataError, match=r"AAA: column 'signal' has no finite value in 300 rows"):
        feature_rows(b, ("signal",), "auto")


def test_a_value_too_large_for_float32_counts_as_missing():
    b = bars()
    b.columns["signal"][5] = 1e300
    rows = feature_rows(b, ("signal",), "auto")
    assert np.flatnonzero(np.isnan(rows[:, 0])).tolist() == [5]


def test_statistics_are_those_of_the_training_rows_alone():
    parts = [feature_rows(bars(seed=s), ("signal", "close"), "auto") for s in (1, 2, 3)]
    parts[0][3, 0] = np.nan
    inside = [np.arange(300) < stop for stop in (200, 10, 0)]
    mean, std = train_statistics(parts, inside)
    pooled = np.concatenate([p[m] for p, m in zip(parts, inside, strict=True)]).astype(np.float64)
    assert mean == pytest.approx(np.nanmean(pooled, axis=0), rel=1e-12)
    assert std == pytest.approx(np.nanstd(pooled, axis=0), rel=1e-12)
    for part, mask in zip(parts, inside, strict=True):
        part[~mask] = 1e6
    again = train_statistics(parts, inside)
    assert np.array_equal(again[0], mean) and np.array_equal(again[1], std)


def test_statistics_of_a_level_far_from_zero_are_exact():
    level = (3e4 + np.random.default_rng(0).standard_normal((50_000, 1))).astype(np.float32)
    _, std = train_statistics([level, level], [np.ones(50_000, bool)] * 2)
    assert std == pytest.approx(level.astype(np.float64).std(), rel=1e-12)


def test_a_constant_input_is_not_divided_by_zero():
    rows = np.full((10, 1), 7.0, np.float32)
    mean, std = train_statistics([rows], [np.ones(10, bool)])
    assert (mean[0], std[0]) == (7.0, 1.0)

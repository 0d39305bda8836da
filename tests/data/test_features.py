"""Features are causal, and equal to their definitions computed a row at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data import features as module
from foxhunt_ray.data.features import GROUPS, feature_rows, says_nothing
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

HOUR = 3600 * 10**9
ALL = tuple(n for group in GROUPS.values() for n in group)


def with_gaps(b: Bars) -> Bars:
    stamps = b.ts_event.copy()
    for row, hours in ((20, 9), (90, 50), (91, 3), (250, 17)):
        stamps[row:] += hours * HOUR
    return Bars(b.symbol, stamps, b.columns)


def test_no_feature_sees_a_later_row(make_bars):
    whole = make_bars()
    part = Bars(whole.symbol, whole.ts_event[:200], {k: v[:200] for k, v in whole.columns.items()})
    full = feature_rows(whole, (*ALL, "signal"), "auto")[:200]
    assert np.array_equal(full, feature_rows(part, (*ALL, "signal"), "auto"), equal_nan=True)


@pytest.mark.parametrize("row", [1, 24, 96, 299])
def test_values_are_those_of_the_definition(make_bars, row):
    b = make_bars()
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


def test_sessions_do_not_depend_on_later_steps_though_most_bars_come_later():
    days, minutes = np.arange(50) * 24 * HOUR, 49 * 24 * HOUR + np.arange(1, 400) * HOUR // 60
    days[20:] += 100 * HOUR
    names = GROUPS["session"]
    whole = Bars("AAA", np.concatenate([days, minutes + 100 * HOUR]), {"close": np.ones(449)})
    part = Bars("AAA", days, {"close": np.ones(50)})
    alone = feature_rows(part, names, "auto")
    assert np.array_equal(feature_rows(whole, names, "auto")[:50], alone, equal_nan=True)
    assert np.isfinite(alone[20:]).all() and np.isnan(alone[:20]).all()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_sessions_equal_a_count_kept_bar_by_bar(steps):
    b = Bars("AAA", np.concatenate([[0], np.cumsum(steps)]) * HOUR, {"close": np.ones(len(steps) + 1)})
    counts, usual, since, gap = Counter(), steps[0], np.nan, np.nan
    want = [(np.nan, np.nan)]
    for step in steps:
        counts[step] += 1
        if counts[step] > counts[usual]:
            usual = step
        since += 1  # stays NaN before the first gap
        if step > 1.5 * usual:
            since, gap = 0, step / usual
        want.append((since, gap))
    found = np.expm1(feature_rows(b, GROUPS["session"], "auto"))
    np.testing.assert_allclose(found, want, atol=1e-4)


@given(st.integers(1, 299), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_a_changed_future_changes_no_group(make_bars, cut, seed):
    b, other = with_gaps(make_bars(300)), make_bars(300, seed)
    stamps = np.concatenate([b.ts_event[:cut], b.ts_event[cut - 1] + np.arange(1, 301 - cut) * 7 * HOUR])
    columns = {k: np.concatenate([v[:cut], other.columns[k][cut:]]) for k, v in b.columns.items()}
    names = (*ALL, "signal", "signal_missing", "return_24_missing", "session_gap_missing")
    before, after = (feature_rows(x, names, "auto")[:cut] for x in (b, Bars("AAA", stamps, columns)))
    assert before.tobytes() == after.tobytes()


def test_an_empty_column_is_refused_by_name(make_bars):
    b = make_bars()
    b.columns["signal"][:] = np.nan
    with pytest.raises(DataError, match=r"AAA: column 'signal' has no finite value in 300 rows"):
        feature_rows(b, ("signal",), "auto")


def test_a_value_too_large_for_float32_counts_as_missing(make_bars):
    b = make_bars()
    b.columns["signal"][5] = 1e300
    rows = feature_rows(b, ("signal",), "auto")
    assert np.flatnonzero(np.isnan(rows[:, 0])).tolist() == [5]


@pytest.mark.parametrize("block", [1, 7, 97, 210, 999])
def test_blocks_of_rows_give_the_same_bits_as_the_whole(make_bars, monkeypatch, block):
    b = make_bars(1000)
    b.ts_event[500:] += 50 * HOUR
    whole = feature_rows(b, (*ALL, "signal", "signal_missing"), "auto")
    monkeypatch.setattr(module, "_BLOCK_ROWS", block)
    assert feature_rows(b, (*ALL, "signal", "signal_missing"), "auto").tobytes() == whole.tobytes()


def test_rows_can_be_written_into_an_array_that_is_given(make_bars):
    b, out = make_bars(), np.full((300, len(ALL) + 1), 7, np.float32)
    assert feature_rows(b, (*ALL, "signal_missing"), "auto", out=out) is out
    assert out.tobytes() == feature_rows(b, (*ALL, "signal_missing"), "auto").tobytes()


def test_a_flag_marks_every_value_that_counts_as_missing(make_bars):
    b = make_bars()
    b.columns["signal"][[1, 2, 3, 4]] = np.nan, np.inf, -np.inf, 1e300
    b.columns["close"][50] = 0
    names = ("signal", "return_4", "volatility_6", "high_low")
    rows = feature_rows(b, (*names, *(f"{n}_missing" for n in names)), "auto")
    assert np.array_equal(np.isnan(rows[:, :4]), rows[:, 4:] == 1)
    assert set(np.unique(rows[:, 4:])) == {0, 1} and rows[[1, 2, 3, 4], 4].all()


def test_a_flag_says_where_a_value_is_missing(make_bars):
    b = make_bars()
    b.columns["signal"][[3, 7]] = np.nan
    rows = feature_rows(b, ("signal", "signal_missing"), "auto")
    assert np.flatnonzero(rows[:, 1]).tolist() == np.flatnonzero(np.isnan(rows[:, 0])).tolist() == [3, 7]


@pytest.mark.parametrize(
    ("bid", "ask"),
    [("bid_close", "ask_close"), ("bid", "ask"), ("bid_price", "ask_price"), ("bid_px_00", "ask_px_00")],
)
def test_the_spread_is_that_of_whatever_quotes_there_are(make_bars, bid, ask):
    b = make_bars()
    quotes = {bid: b.columns["bid_close"].copy(), ask: b.columns["ask_close"].copy()}
    quotes[bid][5] = 0
    spread = feature_rows(Bars("AAA", b.ts_event, quotes), ("spread",), "auto")[:, 0]
    want = np.log(quotes[ask][6:]) - np.log(quotes[bid][6:])
    assert np.isnan(spread[5])
    np.testing.assert_allclose(spread[6:], want, rtol=1e-4)


def test_a_session_counts_its_bars_and_the_gap_before_it():
    hours = np.array([0, 1, 2, 3, 20, 21, 22, 23, 90, 91])
    b = Bars("AAA", hours * HOUR, {"close": np.ones(10)})
    found = np.expm1(feature_rows(b, ("session_bars", "session_gap"), "auto"))
    unknown = [np.nan] * 4
    np.testing.assert_allclose(found[:, 0], [*unknown, 0, 1, 2, 3, 0, 1], atol=1e-5)
    np.testing.assert_allclose(found[:, 1], [*unknown, 17, 17, 17, 17, 67, 67], atol=1e-4)


def test_sessions_are_regular_gaps():
    week = np.concatenate([np.arange(7) + 24 * day for day in range(60)]) * HOUR
    outage = np.arange(400) * HOUR
    outage[300:] += 9 * HOUR
    for stamps, nothing in ((week, False), (outage, True), (np.arange(400) * HOUR, True)):
        b = Bars("AAA", stamps, {"close": np.ones(len(stamps))})
        assert says_nothing(b, "session_bars") is nothing


def test_a_name_that_neither_columns_nor_formulas_give_is_refused(make_bars):
    with pytest.raises(DataError, match="has no column 'return_fast'"):
        feature_rows(make_bars(), ("return_fast",), "auto")


def test_an_optional_input_may_be_missing_throughout(make_bars):
    b = make_bars()
    b.columns["signal"][:] = np.nan
    assert np.isnan(feature_rows(b, ("signal",), "auto", optional={"signal"})).all()


def test_a_relative_volume_is_that_of_its_definition(make_bars):
    b = make_bars()
    b.columns["volume"][50] = -1
    found = feature_rows(b, ("volume_24",), "auto")[:, 0]
    logs = [np.log(1 + v) if v >= 0 else np.nan for v in b.columns["volume"]]
    want = [logs[t] - np.mean(logs[t - 23 : t + 1]) if t >= 23 else np.nan for t in range(300)]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)

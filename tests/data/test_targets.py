"""Targets against their definitions, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data import targets as module
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.targets import VOL_SPAN, hide_across_gaps, last_values, target_rows
from foxhunt_ray.errors import DataError

KINDS = ["log_return", "realised_vol", "vol_scaled_return", "range", "direction", "price", "column"]


def bars(n: int = 160) -> Bars:
    random = np.random.default_rng(1)
    close = 50 * np.exp(np.cumsum(random.standard_normal(n) * 1e-2))
    spread = np.abs(random.standard_normal((2, n))) * 0.1
    columns = {"close": close, "high": close + spread[0], "low": close - spread[1]}
    return Bars("AAA", np.arange(n) * 10**9, columns | {"y": random.standard_normal(n)})


def config(kind: str, *horizons: int, **more: object):
    values = {"target.kind": kind, "target.horizon": list(horizons), "target.column": "y"}
    return load_config(None, values | {f"target.{k}": v for k, v in more.items()})


def definition(b: Bars, kind: str, t: int, h: int, dead_zone: float = 0.0) -> float:
    close = b.columns["close"]
    if t + h >= len(close):
        return np.nan
    future = range(t + 1, t + h + 1)
    ahead = np.log(close[t + h]) - np.log(close[t])
    squares = [
        (np.log(close[k]) - np.log(close[k - 1])) ** 2 for k in range(max(t - VOL_SPAN, 0) + 1, t + h + 1)
    ]
    if kind == "realised_vol":
        return 0.5 * np.log(np.mean(squares[-h:]) + 1e-12)
    if kind == "vol_scaled_return":
        past = squares[:-h]
        return ahead / np.sqrt(np.mean(past) * h) if len(past) == VOL_SPAN else np.nan
    if kind == "range":
        return np.log(max(b.columns["high"][k] for k in future) / min(b.columns["low"][k] for k in future))
    if kind == "direction":
        return 0.0 if abs(ahead) <= dead_zone else float(np.sign(ahead))
    values = {"log_return": ahead, "price": close[t + h] - close[t], "column": b.columns["y"][t + h]}
    return float(values[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_the_targets_of_the_definition(kind):
    b = bars()
    got = target_rows(b, config(kind, 1, 2, 7, dead_zone=0.005))
    want = [[definition(b, kind, t, h, 0.005) for h in (1, 2, 7)] for t in range(160)]
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_give_the_same_bits_as_the_whole(kind, monkeypatch):
    b = bars(400)
    whole = target_rows(b, config(kind, 1, 24))
    monkeypatch.setattr(module, "_BLOCK_ROWS", 37)
    assert target_rows(b, config(kind, 1, 24)).tobytes() == whole.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_depends_on_nothing_after_its_row(kind):
    b, h, cut = bars(), 5, 120
    before = target_rows(b, config(kind, h))
    for values in b.columns.values():
        values[cut + h + 1 :] *= 1.5
    after = target_rows(b, config(kind, h))
    assert before[: cut + 1].tobytes() == after[: cut + 1].tobytes()
    assert not np.array_equal(before[cut + 1 :], after[cut + 1 :], equal_nan=True)


def test_targets_across_a_gap_are_hidden():
    b, segments, horizons = bars(60), np.array([0, 25, 26]), (1, 2, 7)
    shown = hide_across_gaps(target_rows(b, config("log_return", *horizons)), segments, horizons)
    for t in range(60):
        for number, h in enumerate(horizons):
            same = t + h < 60 and sum(segments <= t) == sum(segments <= t + h)
            want = definition(b, "log_return", t, h) if same else np.nan
            assert shown[t, number] == pytest.approx(want, rel=1e-9, nan_ok=True), (t, h)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_a_price_that_is_not_above_zero_is_missing(bad):
    b = bars(60)
    b.columns["close"][10] = bad
    vol = target_rows(b, config("realised_vol", 3))[:, 0]
    assert np.flatnonzero(np.isnan(vol)).tolist() == [7, 8, 9, 10, 57, 58, 59]
    ret = target_rows(b, config("log_return", 3))[:, 0]
    assert np.flatnonzero(np.isnan(ret)).tolist() == [7, 10, 57, 58, 59]


def test_a_flat_price_has_a_finite_volatility_and_no_scaled_return():
    b = Bars("AAA", np.arange(200) * 10**9, {"close": np.full(200, 5.0)})
    assert target_rows(b, config("realised_vol", 2))[0, 0] == pytest.approx(0.5 * np.log(1e-12))
    assert np.isnan(target_rows(b, config("vol_scaled_return", 2))).all()
    assert (target_rows(b, config("direction", 2))[:-2] == 0).all()


def test_without_high_and_low_the_range_is_that_of_the_price():
    b = bars()
    close = Bars("AAA", b.ts_event, {"close": b.columns["close"]})
    ends = np.lib.stride_tricks.sliding_window_view(np.log(b.columns["close"][1:]), 4)
    want = ends.max(axis=1) - ends.min(axis=1)
    np.testing.assert_allclose(target_rows(close, config("range", 4))[:-4, 0], want)


def test_a_series_shorter_than_the_horizon_has_no_target():
    assert np.isnan(target_rows(bars(5), config("column", 7))).all()


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("price", "column")])
def test_last_is_the_same_quantity_over_the_rows_before(kind):
    b, settings = bars(), config(kind, 1, 4)
    last = last_values(b, target_rows(b, settings), settings)
    assert np.isnan(last[:1, 0]).all() and np.isnan(last[:4, 1]).all()
    for number, h in enumerate((1, 4)):
        assert last[130, number] == pytest.approx(definition(b, kind, 130 - h, h))


def test_the_last_value_of_a_price_is_that_it_stays_and_of_a_column_its_value_now():
    b, price, column = bars(), config("price", 3), config("column", 3, 9)
    assert (last_values(b, target_rows(b, price), price) == 0).all()
    now = last_values(b, target_rows(b, column), column)
    np.testing.assert_array_equal(now, np.stack([b.columns["y"]] * 2, axis=1))


def test_the_last_value_sees_nothing_after_its_row_and_nothing_across_a_gap():
    b, settings, segments = bars(), config("log_return", 3), np.array([0, 50])
    shown = hide_across_gaps(target_rows(b, settings), segments, (3,))
    last = last_values(b, shown, settings)
    assert np.flatnonzero(np.isnan(last[:, 0])).tolist() == [0, 1, 2, 50, 51, 52]
    for values in b.columns.values():
        values[101:] *= 1.5
    again = hide_across_gaps(target_rows(b, settings), segments, (3,))
    assert last_values(b, again, settings)[:101].tobytes() == last[:101].tobytes()


def test_a_target_column_that_is_absent_or_empty_is_refused():
    b = bars(60)
    with pytest.raises(DataError, match=r"AAA: target.column 'z' is not among.*close, high, low, y"):
        target_rows(b, load_config(None, ["target.kind=column", "target.column=z"]))
    b.columns["y"][:] = np.nan
    with pytest.raises(DataError, match=r"AAA: target column 'y' has no finite value in 60 rows"):
        target_rows(b, config("column", 2))

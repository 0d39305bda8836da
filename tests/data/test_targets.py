"""Targets against their definitions, one row at a time."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.targets import last_values, target_rows
from foxhunt_ray.errors import DataError


def bars(n: int = 60) -> Bars:
    random = np.random.default_rng(1)
    close = 50 * np.exp(np.cumsum(random.standard_normal(n) * 1e-2))
    return Bars("AAA", np.arange(n) * 10**9, {"close": close, "y": random.standard_normal(n)})


def config(kind: str, horizon: int):
    return load_config(None, [f"target.kind={kind}", f"target.horizon={horizon}", "target.column=y"])


def definition(b: Bars, kind: str, t: int, h: int) -> float:
    close = b.columns["close"]
    if kind == "log_return":
        return np.log(close[t + h]) - np.log(close[t])
    if kind == "column":
        return b.columns["y"][t + h]
    returns = [np.log(close[k]) - np.log(close[k - 1]) for k in range(t + 1, t + h + 1)]
    return 0.5 * np.log(np.mean(np.square(returns)) + 1e-12)


@pytest.mark.parametrize("kind", ["log_return", "realised_vol", "column"])
@pytest.mark.parametrize("horizon", [1, 2, 7])
def test_each_row_has_the_target_of_the_definition_inside_its_segment(kind, horizon):
    b, segments = bars(), np.array([0, 25, 26])
    got = target_rows(b, config(kind, horizon), segments)
    for t in range(60):
        same = t + horizon < 60 and sum(segments <= t) == sum(segments <= t + horizon)
        want = definition(b, kind, t, horizon) if same else np.nan
        assert got[t] == pytest.approx(want, rel=1e-9, nan_ok=True), t


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_a_price_that_is_not_above_zero_is_missing(bad):
    b = bars()
    b.columns["close"][10] = bad
    vol = target_rows(b, config("realised_vol", 3), np.array([0]))
    assert np.flatnonzero(np.isnan(vol)).tolist() == [7, 8, 9, 10, 57, 58, 59]
    ret = target_rows(b, config("log_return", 3), np.array([0]))
    assert np.flatnonzero(np.isnan(ret)).tolist() == [7, 10, 57, 58, 59]


def test_a_flat_price_has_a_finite_volatility():
    b = Bars("AAA", np.arange(9) * 10**9, {"close": np.full(9, 5.0)})
    assert target_rows(b, config("realised_vol", 2), np.array([0]))[0] == pytest.approx(0.5 * np.log(1e-12))


def test_a_series_shorter_than_the_horizon_has_no_target():
    assert np.isnan(target_rows(bars(5), config("column", 7), np.array([0]))).all()


def test_last_is_the_same_quantity_over_the_rows_before():
    b = bars()
    for kind in ("log_return", "realised_vol", "column"):
        targets = target_rows(b, config(kind, 4), np.array([0]))
        last = last_values(targets, 4)
        assert np.isnan(last[:4]).all()
        assert last[30] == pytest.approx(definition(b, kind, 26, 4))
    assert np.isnan(last_values(np.ones(3), 7)).all() and len(last_values(np.ones(3), 7)) == 3


def test_a_target_column_that_is_absent_or_empty_is_refused():
    b = bars()
    with pytest.raises(DataError, match=r"AAA: target.column 'z' is not among.*close, y"):
        target_rows(b, load_config(None, ["target.kind=column", "target.column=z"]), np.array([0]))
    b.columns["y"][:] = np.nan
    with pytest.raises(DataError, match=r"AAA: target column 'y' has no finite value in 60 rows"):
        target_rows(b, config("column", 2), np.array([0]))

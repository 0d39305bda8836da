"""The synthetic market: consistent bars, a frozen signal, and the two skills that are stated for it."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.synthetic import INPUTS, best_possible, best_skill, ridge_ceiling, synthetic_market
from foxhunt_ray.errors import ConfigError, DataError

HOUR_NS = 3600 * 10**9
LENGTH = 16


@pytest.fixture(scope="module")
def market() -> Market:
    return synthetic_market()


@pytest.fixture(scope="module")
def large() -> Market:
    return synthetic_market(1, n_bars=100_000)


def returns(bars: Bars) -> NDArray[np.float64]:
    """Log return of each bar but the first: the target of the row before it."""
    return np.diff(np.log(bars.columns["close"]))


def skill(market: Market, forecasts: dict[str, NDArray[np.float64]]) -> float:
    y = np.concatenate([returns(b) for b in market.bars])
    m = np.concatenate([forecasts[b.symbol][:-1] for b in market.bars])
    return float(1 - np.mean((y - m) ** 2) / np.mean(y**2))


def windows(bars: Bars, names: tuple[str, ...]) -> NDArray[np.float64]:
    """All windows of LENGTH bars that have a next bar, flattened; float64 [n, LENGTH * names]."""
    inputs = np.stack([bars.columns[name] for name in names], axis=1)[:-1]
    view = np.lib.stride_tricks.sliding_window_view(inputs, LENGTH, axis=0)
    return view.reshape(len(view), -1)


def ridge_skill(market: Market, names: tuple[str, ...]) -> float:
    """Skill of least squares, fitted and scored on all windows: so many that no penalty is needed."""
    parts = [(windows(b, names), returns(b)[LENGTH - 1 :]) for b in market.bars]
    weights = np.linalg.solve(sum(x.T @ x for x, _ in parts), sum(x.T @ y for x, y in parts))
    errors = sum(float(np.sum((y - x @ weights) ** 2)) for x, y in parts)
    return 1 - errors / sum(float(np.sum(y**2)) for _, y in parts)


def test_bars_are_consistent(market: Market) -> None:
    for bars in market.bars:
        c = bars.columns
        assert np.all(c["low"] <= np.minimum(c["open"], c["close"]))
        assert np.all(c["high"] >= np.maximum(c["open"], c["close"]))
        np.testing.assert_allclose(c["open"][1:], c["close"][:-1], rtol=1e-12)
        assert c["low"].min() > 0 and c["volume"].min() > 0


def test_stamps_are_hourly_with_few_gaps(market: Market) -> None:
    for bars in market.bars:
        steps = np.diff(bars.ts_event)
        assert np.all(steps % HOUR_NS == 0) and steps.min() == HOUR_NS
        assert 1 <= np.sum(steps > HOUR_NS) <= 15
        assert steps.max() <= 61 * HOUR_NS


def test_columns_and_symbols_are_canonical(market: Market) -> None:
    assert [b.symbol for b in market.bars] == ["FOX", "HARE", "LYNX", "WOLF"]
    for bars in market.bars:
        assert bars.ts_event.dtype == np.int64
        assert {(c.dtype, c.shape) for c in bars.columns.values()} == {(np.dtype(np.float64), (7000,))}


def test_more_symbols_keep_the_first_ones_and_stay_sorted(market: Market) -> None:
    more = {b.symbol: b for b in synthetic_market(n_symbols=10).bars}
    assert list(more) == sorted(more) and len(more) == 10
    np.testing.assert_array_equal(more["FOX"].columns["close"], market.bars[0].columns["close"])


def test_symbols_and_seeds_differ(market: Market) -> None:
    closes = [b.columns["close"] for m in (market, synthetic_market(1)) for b in m.bars]
    correlations = np.corrcoef([np.diff(np.log(c)) for c in closes])
    assert np.abs(correlations - np.eye(len(closes))).max() < 5 / math.sqrt(7000)


def test_market_of_seed_zero_is_frozen(market: Market) -> None:
    digest = hashlib.sha256()
    for bars in market.bars:
        digest.update(bars.symbol.encode() + bars.ts_event.astype("<i8").tobytes())
        for name in sorted(bars.columns):
            # four decimals, as the last bits of exp and log differ between processors
            digest.update(name.encode() + np.round(bars.columns[name] * 1e4).astype("<i8").tobytes())
    assert digest.hexdigest() == "96d40ae6e378b8cd359aa530f57b652118a049921ded45b9e472f49514910143"


def test_best_forecast_equals_a_bar_by_bar_reference(market: Market) -> None:
    flow, gate, tilt = (market.bars[1].columns[name] for name in INPUTS)
    latest, expected = 0.0, []
    for t in range(500):
        latest = flow[t] or latest
        linear = sum(w * tilt[t - k] for k, w in ((0, 0.8), (2, -0.48), (5, 0.36)) if t >= k)
        expected.append(
            1e-3 * (math.sqrt(0.1) * linear + math.sqrt(0.4 / (0.25 * 13 / 12)) * gate[t] * latest)
        )
    np.testing.assert_allclose(best_possible(market)["HARE"][:500], expected, rtol=1e-12, atol=1e-18)


def test_best_forecast_uses_the_past_only(market: Market) -> None:
    cut = 3000
    past = Market(
        tuple(
            Bars(b.symbol, b.ts_event[:cut], {k: v[:cut] for k, v in b.columns.items()}) for b in market.bars
        )
    )
    whole = best_possible(market)
    for symbol, forecast in best_possible(past).items():
        np.testing.assert_array_equal(forecast, whole[symbol][:cut])


def test_best_forecast_reaches_the_stated_skill(large: Market) -> None:
    assert skill(large, best_possible(large)) == pytest.approx(best_skill(), abs=0.005)


def test_what_the_best_forecast_leaves_is_unpredictable(large: Market) -> None:
    bars = large.bars[0]
    rest = returns(bars) - best_possible(large)[bars.symbol][:-1]
    inputs = windows(bars, (*INPUTS, "high", "low", "volume"))
    rest = rest[LENGTH - 1 :]
    correlations = np.corrcoef(np.column_stack([inputs - inputs.mean(axis=0), rest]).T)[-1, :-1]
    assert np.abs(correlations).max() < 5 / math.sqrt(len(rest))


def test_ridge_reaches_its_stated_ceiling(large: Market) -> None:
    assert ridge_skill(large, INPUTS) == pytest.approx(ridge_ceiling(LENGTH), abs=0.004)


def test_past_returns_raise_the_ceiling_a_little(large: Market) -> None:
    with_returns = Market(
        tuple(
            Bars(b.symbol, b.ts_event, b.columns | {"return": np.append(0.0, returns(b))}) for b in large.bars
        )
    )
    assert 0 < ridge_skill(with_returns, (*INPUTS, "return")) - ridge_ceiling(LENGTH) < 0.01


def test_a_window_that_may_miss_the_event_is_scored_lower(large: Market) -> None:
    length = 8
    forecasts = best_possible(large)
    for bars in large.bars:
        events = np.cumsum(bars.columns["flow"] != 0)
        unseen = np.flatnonzero(events[length:] == events[:-length]) + length
        without = bars.columns | {"gate": np.zeros_like(bars.columns["gate"])}
        linear = best_possible(Market((Bars(bars.symbol, bars.ts_event, without),)))[bars.symbol]
        forecasts[bars.symbol][unseen] = linear[unseen]
    assert skill(large, forecasts) == pytest.approx(best_skill(length), abs=0.005)


def test_the_best_is_well_above_what_is_linear() -> None:
    assert best_skill() == pytest.approx(0.5)
    assert ridge_ceiling() == pytest.approx(0.1533, abs=1e-4)
    assert best_skill(64) - best_skill() == pytest.approx(0, abs=1e-3)


def test_volatility_is_clustered(large: Market) -> None:
    size = np.abs(returns(large.bars[0]) - best_possible(large)["FOX"][:-1])
    halves = np.log(size[: len(size) // 48 * 48].reshape(-1, 2, 24).mean(axis=2))
    assert np.corrcoef(halves.T)[0, 1] > 0.3


@pytest.mark.parametrize("size", [{"n_symbols": 0}, {"n_bars": 1}])
def test_empty_market_is_refused(size: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 symbol and 2 bars"):
        synthetic_market(**size)


def test_best_forecast_of_other_data_is_refused() -> None:
    bars = Bars("SPY", np.arange(3), {"close": np.ones(3)})
    with pytest.raises(DataError, match="SPY: no column flow, gate, tilt"):
        best_possible(Market((bars,)))

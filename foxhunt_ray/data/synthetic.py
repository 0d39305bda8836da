"""A seed to a market in canonical form whose best possible forecast is known for every bar.

Three columns drive the next bar's log return. ``tilt`` is noise with a linear effect at a few lags. ``flow``
is zero but for rare events of signed size; the latest size is remembered without decay until the next event,
and acts only through bars whose ``gate`` is 1. A forecaster has to overwrite its memory at events only and to
multiply it by the gate: both depend on the input, so no linear map of a window can do it. With S[t] the size
of the latest event up to bar t (0 before the first) and all driving noise independent,

    log close[t+1] / close[t] = sd * (a * sum_k w[k] tilt[t-k] + b * gate[t] * S[t] + c * v[t+1] * z[t+1])

where a^2, b^2 p E[size^2] and c^2 are the shares below and E[v^2] = 1: v is a slow volatility, which makes
realised volatility forecastable too. Prices and volume hold nothing more about the next return.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import note
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.errors import ConfigError, DataError

# Fixed before any model was trained on this market. Changing one makes all published figures worthless.
INPUTS = ("flow", "gate", "tilt")
_RETURN_SD = 1e-3  # of a bar's log return
_LINEAR, _GATED, _NOISE = 0.1, 0.4, 0.5  # shares of the return's variance
_WEIGHTS = {0: 0.8, 2: -0.48, 5: 0.36}  # lag [bars]: weight of tilt; squares sum to 1
_EVENT, _OPEN = 1 / 8, 1 / 4  # probabilities a bar: an event happens (q), the gate is open (p)
_SIZES = (0.5, 1.5)  # magnitude of an event, uniform, never near 0 so that each event can be seen; sign +-1
_SIZE_SQUARE = (_SIZES[1] ** 3 - _SIZES[0] ** 3) / (3 * (_SIZES[1] - _SIZES[0]))  # E[size^2]
_VOL_SD, _VOL_MEMORY = 0.3, 0.98  # log volatility: standard deviation, autocorrelation at one bar
_STEP_NS = 3600 * 10**9
_START_NS = 1_577_836_800 * 10**9  # 2020-01-01T00:00Z
_BARS_A_GAP, _LONGEST_GAP = 1000, 60  # usual distance between gaps [bars], longest gap [missing bars]
_NAMES = ("FOX", "HARE", "LYNX", "WOLF")
_PURPOSES = ("flow", "gate", "tilt", "noise", "volatility", "bars", "gaps")


def synthetic_market(seed: int = 0, *, n_symbols: int = 4, n_bars: int = 7000) -> Market:
    """Market of hourly bars: open, high, low, close, volume and the columns named in ``INPUTS``.

    Args:
        seed: the market is a pure function of it; each purpose and symbol has its own random stream.
        n_symbols: independent symbols of the same law, FOX, HARE, LYNX, WOLF, FOX2 and so on.
        n_bars: bars of each symbol; a gap of up to 60 missing hours comes about once in 1000 bars.

    Raises:
        ConfigError: fewer than one symbol or two bars.
    """
    if n_symbols < 1 or n_bars < 2:
        raise ConfigError(
            f"synthetic market of {n_symbols} symbols with {n_bars} bars each: expected at least 1 symbol "
            "and 2 bars; raise n_symbols or n_bars"
        )
    bars = [_bars(seed, number, n_bars) for number in range(n_symbols)]
    made = f"built-in synthetic market (seed {seed}): hourly bars made by a formula, not real data"
    return Market(tuple(sorted(bars, key=lambda b: b.symbol)), findings=(note(made),))


def best_possible(market: Market) -> dict[str, NDArray[np.float64]]:
    """Best forecast of the next bar's log return at each row, by symbol: float64 [n], aligned with the rows.

    Entry t is the conditional mean m[t] given all bars up to t, for the target ``log_return`` with horizon 1.
    On any set of windows with targets y the best possible skill is 1 - mean((y - m)^2) / mean(y^2), with m at
    their last input rows.

    Raises:
        DataError: the market lacks a column of ``INPUTS``, so it was not made by ``synthetic_market``.
    """
    for bars in market.bars:
        missing = [name for name in INPUTS if name not in bars.columns]
        if missing:
            raise DataError(
                f"{bars.symbol}: no column {', '.join(missing)}; the best possible forecast is known only "
                "for the built-in synthetic market: leave data.path empty to use it"
            )
    return {bars.symbol: _conditional_mean(bars.columns) for bars in market.bars}


def best_skill(context_length: int | None = None) -> float:
    """Skill of the best forecast from the last ``context_length`` bars, or from all: Var(m) / (Var(m) + c^2).

    The shares sum to 1, so it is what can be seen of two of them: of the linear one sum_{k < L} w[k]^2, of
    the gated one 1 - (1-q)^L, the probability that the window holds an event. (The little that past returns
    tell of an event older than the window is left out.)
    """
    seen = 1.0 if context_length is None else 1 - (1 - _EVENT) ** context_length
    return _linear_share(context_length) + _GATED * seen


def ridge_ceiling(context_length: int | None = None) -> float:
    """Largest skill of a linear map of the last ``context_length`` bars of ``INPUTS``, or of all bars.

    The gate is independent of the events and sizes are symmetric about zero, so gate[t] S[t] is uncorrelated
    with every gate and tilt. Its covariance with flow[t-k] is p E[S[t] flow[t-k]] = p q (1-q)^k E[size^2]: an
    event at t-k and none since. Flow is uncorrelated over time with variance q E[size^2], so the best linear
    map has weights p (1-q)^k and explains sum_{k < L} p^2 q (1-q)^(2k) E[size^2] of the product's variance
    p E[size^2]: the fraction p (1 - (1-q)^(2L)) / (2-q) of the gated share. Tilt gives its share whole.

    Past returns among the inputs raise the ceiling by less than 0.01, for they too carry S.
    """
    length = np.inf if context_length is None else context_length
    fraction = _OPEN * (1 - (1 - _EVENT) ** (2 * length)) / (2 - _EVENT)
    return float(_linear_share(context_length) + _GATED * fraction)


def _linear_share(context_length: int | None) -> float:
    return _LINEAR * sum(w * w for k, w in _WEIGHTS.items() if context_length is None or k < context_length)


def _conditional_mean(columns: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    flow, gate, tilt = (columns[name] for name in INPUTS)
    linear = np.zeros(len(tilt))
    for lag, weight in _WEIGHTS.items():
        linear[lag:] += weight * tilt[: len(tilt) - lag]
    latest = np.maximum.accumulate(np.where(flow != 0, np.arange(len(flow)), 0))  # row 0 holds 0 or an event
    gated = gate * flow[latest]
    mean: NDArray[np.float64] = np.sqrt(_LINEAR) * linear + np.sqrt(_GATED / (_OPEN * _SIZE_SQUARE)) * gated
    return _RETURN_SD * mean


def _bars(seed: int, number: int, n: int) -> Bars:
    random = {
        purpose: np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, number, position))))
        for position, purpose in enumerate(_PURPOSES)
    }
    happens, sign, magnitude = random["flow"].random((n, 3)).T
    size = np.where(sign < 0.5, -1.0, 1.0) * (_SIZES[0] + (_SIZES[1] - _SIZES[0]) * magnitude)
    columns = {
        "flow": np.where(happens < _EVENT, size, 0.0),
        "gate": (random["gate"].random(n) < _OPEN).astype(np.float64),
        "tilt": random["tilt"].standard_normal(n),
    }
    log_vol = _slow_noise(random["volatility"], n)
    vol = np.exp(log_vol - _VOL_SD**2)  # E[vol^2] = 1, so the shares stay as stated
    returns = _RETURN_SD * np.sqrt(_NOISE) * vol * random["noise"].standard_normal(n)
    returns[1:] += _conditional_mean(columns)[:-1]
    prices = _prices(returns, vol, random["bars"])
    name = _NAMES[number % len(_NAMES)] + (str(number // len(_NAMES) + 1) if number >= len(_NAMES) else "")
    return Bars(name, _stamps(random["gaps"], n), prices | columns)


def _slow_noise(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    shocks = _VOL_SD * random.standard_normal(n)
    shocks[1:] *= np.sqrt(1 - _VOL_MEMORY**2)  # stationary from the first bar on
    return np.fromiter(accumulate(shocks, lambda level, shock: _VOL_MEMORY * level + shock), np.float64, n)


def _prices(
    returns: NDArray[np.float64], vol: NDArray[np.float64], random: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    log_close = np.log(100.0) + np.cumsum(returns)
    log_open = log_close - returns
    wicks = 0.5 * _RETURN_SD * vol * np.abs(random.standard_normal((n := len(returns), 2))).T
    return {
        "open": np.exp(log_open),
        "high": np.exp(np.maximum(log_open, log_close) + wicks[0]),
        "low": np.exp(np.minimum(log_open, log_close) - wicks[1]),
        "close": np.exp(log_close),
        "volume": 1000 * vol * np.exp(0.3 * random.standard_normal(n)),
    }


def _stamps(random: np.random.Generator, n: int) -> NDArray[np.int64]:
    steps = np.ones(n, dtype=np.int64)
    steps[0] = 0
    gaps = np.flatnonzero(random.random(n) < 1 / _BARS_A_GAP)
    steps[gaps] += random.integers(1, _LONGEST_GAP, size=len(gaps), endpoint=True)
    return _START_NS + _STEP_NS * np.cumsum(steps)

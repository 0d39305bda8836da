"""Named targets from prices, aligned at the last input row in this one place.

At last input row t with horizon h, price p and one-step log return r[k] = log p[k] - log p[k-1]:

    log_return          log p[t+h] - log p[t]
    realised_vol        0.5 log( mean of r[t+1..t+h]^2 + 1e-12 ), the log of the root mean square return
    vol_scaled_return   log_return / ( s sqrt(h) ), s the root mean square of the last 96 returns up to r[t]
    range               log( highest high / lowest low of rows t+1..t+h )
    direction           sign of log_return, 0 where its magnitude is at most target.dead_zone
    price               p[t+h] - p[t], reported as the price p[t+h]
    column              the column's value at t+h
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.features import log_returns
from foxhunt_ray.data.prices import ohlc, price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.windows import Rows
from foxhunt_ray.errors import DataError

VARIANCE_FLOOR = 1e-12
"""Added to the mean square return, so that a flat market has a finite log volatility."""
VOL_SPAN = 96
"""Returns up to the last input row that scale ``vol_scaled_return``."""
_BLOCK_ROWS = 2**20

Series = NDArray[np.float64]


def target_rows(bars: Bars, config: Config) -> Series:
    """Targets of every row as last input row: float64 [n, H], NaN where the future is not known.

    Args:
        bars: the symbol's n rows.
        config: its ``target`` section; H horizons.

    Raises:
        DataError: the target column or the price is not there, or has no usable value.
    """
    _require_values(bars, config)
    horizons, n = config.target.horizons, len(bars.ts_event)
    out = np.full((n, len(horizons)), np.nan)
    for rows, part, first in _blocks(bars, config.target.longest):
        for number, horizon in enumerate(horizons):
            values = _future(part, config, horizon)[first : first + rows.stop - rows.start]
            out[rows, number] = np.where(np.isfinite(values), values, np.nan)
    return out


def hide_across_gaps(targets: Series, segments: Rows, horizons: tuple[int, ...]) -> Series:
    """The targets with NaN where the target row lies in another segment than the last input row.

    Args:
        targets: float64 [n, H]; not changed.
        segments: int64 [k], first row of each segment.
        horizons: H of them.
    """
    hidden, n = targets.copy(), len(targets)
    segment = np.searchsorted(segments, np.arange(n), side="right")
    for number, horizon in enumerate(horizons):
        if horizon < n:
            hidden[:-horizon, number][segment[horizon:] != segment[:-horizon]] = np.nan
    return hidden


def last_values(bars: Bars, targets: Series, config: Config) -> Series:
    """The forecast "as it was last time": float64 [n, H], the same quantity over the h rows up to t.

    A price is forecast to stay, that is, to change by 0; a column to keep its value at t, and neither
    needs rows before t.

    Args:
        bars: the symbol's n rows.
        targets: float64 [n, H], those of ``bars``, NaN across gaps.
        config: its ``target`` section.
    """
    last = np.full_like(targets, np.nan)
    for number, horizon in enumerate(config.target.horizons):
        if config.target.kind == "price":
            last[:, number] = 0.0
        elif config.target.kind == "column":
            last[:, number] = bars.columns[config.target.column]
        elif horizon < len(targets):
            last[horizon:, number] = targets[:-horizon, number]
    return last


def _blocks(bars: Bars, horizon: int) -> Iterator[tuple[slice, Bars, int]]:
    """Rows of a block, the bars that their targets need, and where the block begins in these."""
    n = len(bars.ts_event)
    for start in range(0, n, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, n)
        low, high = max(start - VOL_SPAN, 0), min(stop + horizon, n)
        yield slice(start, stop), bars.part(low, high), start - low


def _future(bars: Bars, config: Config, horizon: int) -> Series:
    """One target of every row: float64 [m]."""
    target, kind = config.target, config.target.kind
    if kind == "column":
        return _ahead(bars.columns[target.column], horizon)
    price, _ = price_series(bars, target.price)
    if kind == "range":
        return _range(bars, price, horizon)
    if kind == "realised_vol":
        squares = log_returns(price) ** 2
        return _over(squares, horizon, lambda w: 0.5 * np.log(w.mean(axis=-1) + VARIANCE_FLOOR))
    if kind == "price":
        return _ahead(price, horizon) - price
    ahead = _ahead(np.log(price), horizon) - np.log(price)
    if kind == "vol_scaled_return":
        scaled: Series = ahead / (_recent(log_returns(price)) * np.sqrt(horizon))
        return scaled
    if kind == "direction":
        return np.where(np.abs(ahead) <= target.dead_zone, 0.0, np.sign(ahead))
    return ahead


def _ahead(values: Series, horizon: int) -> Series:
    """The value h rows later; NaN where there is none."""
    out = np.full(len(values), np.nan)
    out[:-horizon] = values[horizon:]
    return out


def _over(values: Series, horizon: int, reduce: Callable[[Series], Series]) -> Series:
    """A reduction over the h rows that follow each row: ``reduce`` maps [m, h] to [m]."""
    out = np.full(len(values), np.nan)
    if len(values) > horizon:
        out[:-horizon] = reduce(sliding_window_view(values[1:], horizon))
    return out


def _range(bars: Bars, price: Series, horizon: int) -> Series:
    high, low = ohlc(bars, "high"), ohlc(bars, "low")
    top = _over(price if high is None else high, horizon, lambda w: w.max(axis=-1))
    bottom = _over(price if low is None else low, horizon, lambda w: w.min(axis=-1))
    return np.log(top) - np.log(bottom)


def _recent(returns: Series) -> Series:
    """Root mean square of the last returns up to each row; NaN until they are known, and where it is 0."""
    out = np.full(len(returns), np.nan)
    if len(returns) >= VOL_SPAN:
        mean = sliding_window_view(returns**2, VOL_SPAN).mean(axis=-1)
        out[VOL_SPAN - 1 :] = np.sqrt(np.where(mean > 0, mean, np.nan))
    return out


def _require_values(bars: Bars, config: Config) -> None:
    """Refuse a price or a column that is not there, or that has no value in any row."""
    if config.target.kind != "column":
        values, _ = price_series(bars, config.target.price)
        if not np.isfinite(values).any():
            raise DataError(
                f"{bars.symbol}: the price has no value above 0 in {len(values)} rows; set target.price to a "
                "column of prices"
            )
        return
    name = config.target.column
    if name not in bars.columns:
        raise DataError(
            f"{bars.symbol}: target.column {name!r} is not among its numeric columns: "
            f"{', '.join(sorted(bars.columns))}; set target.column to one of them"
        )
    if not np.isfinite(bars.columns[name]).any():
        raise DataError(
            f"{bars.symbol}: target column {name!r} has no finite value in {len(bars.ts_event)} rows; "
            "choose another target.column"
        )

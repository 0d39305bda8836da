"""Named targets from prices, aligned at the last input row in this one place.

At last input row t with horizon h, price p and one-step log return r:

    log_return     log p[t+h] - log p[t]
    realised_vol   0.5 log( mean of r[t+1..t+h]^2 + 1e-12 ), the log of the root mean square return
    column         the column's value at t+h
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.features import log_returns
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.windows import Rows
from foxhunt_ray.errors import DataError

VARIANCE_FLOOR = 1e-12
"""Added to the mean square return, so that a flat market has a finite log volatility."""


def target_rows(bars: Bars, config: Config, segments: Rows) -> NDArray[np.float64]:
    """Target of every row as last input row: float64 [n], NaN where the future is missing or behind a gap.

    Args:
        bars: the symbol's n rows.
        config: its ``target`` section.
        segments: int64 [k], first row of each segment; the target row must lie in the segment of row t.

    Raises:
        DataError: the target column or the price is not there, or has no usable value.
    """
    target, n = config.target, len(bars.ts_event)
    horizon = target.longest
    out = np.full(n, np.nan)
    if n > horizon:
        values = _column(bars, target.column) if target.kind == "column" else _price(bars, target.price)
        if target.kind == "column":
            out[:-horizon] = values[horizon:]
        elif target.kind == "log_return":
            out[:-horizon] = np.log(values[horizon:]) - np.log(values[:-horizon])
        else:
            squares = log_returns(values) ** 2
            mean = sliding_window_view(squares[1:], horizon).mean(axis=-1)
            out[:-horizon] = 0.5 * np.log(mean + VARIANCE_FLOOR)
        segment = np.searchsorted(segments, np.arange(n), side="right")
        out[:-horizon][segment[horizon:] != segment[:-horizon]] = np.nan
    return np.where(np.isfinite(out), out, np.nan)


def last_values(targets: NDArray[np.float64], horizon: int) -> NDArray[np.float64]:
    """The same quantity over the h rows up to t: float64 [n], the forecast "as it was last time"."""
    return np.concatenate([np.full(min(horizon, len(targets)), np.nan), targets[:-horizon]])


def _price(bars: Bars, name: str) -> NDArray[np.float64]:
    values, _ = price_series(bars, name)
    if not np.isfinite(values).any():
        raise DataError(
            f"{bars.symbol}: the price has no value above 0 in {len(values)} rows; set target.price to a "
            "column of prices"
        )
    return values


def _column(bars: Bars, name: str) -> NDArray[np.float64]:
    if name not in bars.columns:
        raise DataError(
            f"{bars.symbol}: target.column {name!r} is not among its numeric columns: "
            f"{', '.join(sorted(bars.columns))}; set target.column to one of them"
        )
    values = bars.columns[name]
    if not np.isfinite(values).any():
        raise DataError(
            f"{bars.symbol}: target column {name!r} has no finite value in {len(values)} rows; "
            "choose another target.column"
        )
    return values

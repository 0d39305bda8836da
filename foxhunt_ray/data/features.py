"""Bars to model inputs: named causal transforms of prices, and columns of the files as they are.

Row t of every feature depends on rows <= t of its own symbol only (a test perturbs the future). Rolling
features look back over gaps: that is past data, and a window is cut at gaps by the plan, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foxhunt_ray.data.prices import ohlc, price_series, quote
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.source.intervals import most_common
from foxhunt_ray.errors import DataError

Series = NDArray[np.float64]
_HOUR, _DAY = 3600 * 10**9, 86400 * 10**9
_LAGS = (1, 4, 24)
_SPANS = (6, 24, 96)
_LOOK_BACK = 2 * max(_SPANS)
_BLOCK_ROWS = 2**20
_FEWEST_GAPS, _REGULAR = 5, 10  # sessions: so many gaps, and none so many times as long as the median
MISSING = "_missing"
"""Ends the name of an input that says where another has no value."""
GROUPS: dict[str, tuple[str, ...]] = {
    "returns": tuple(f"return_{k}" for k in _LAGS),
    "range": ("high_low", "close_open"),
    "volatility": tuple(f"volatility_{k}" for k in _SPANS),
    "volume": ("volume_24",),
    "spread": ("spread",),
    "calendar": ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos"),
    "session": ("session_bars", "session_gap"),
}


def feature_rows(
    bars: Bars,
    names: Sequence[str],
    price: str,
    *,
    optional: Collection[str] = (),
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Inputs of one symbol: float32 [n, F], C-contiguous, NaN where a value is missing or not finite.

    Computed a million rows at a time, so that what is held beside the result is bounded.

    Args:
        bars: the symbol's n rows.
        names: the F inputs, in order; ``NAME_missing`` is 1 where NAME has no value, else 0.
        price: ``target.price``, from which returns and volatility are computed.
        optional: those that may be missing in every row.
        out: float32 [n, F] to fill and return; None = a new array.

    Raises:
        DataError: a column is absent, or has no finite value in any row.
    """
    rows = np.empty((len(bars.ts_event), len(names)), np.float32) if out is None else out
    for number, name in enumerate(names):
        flagged = name.removesuffix(MISSING) if name.endswith(MISSING) and name not in bars.columns else ""
        known = bool(flagged) or name in COMPUTED or name in optional or not len(rows)
        for part, values in feature_blocks(bars, flagged or name, price):
            if values is None:
                raise _lacking(bars, name)
            with np.errstate(over="ignore"):
                block = values.astype(np.float32)
            finite = np.isfinite(block)
            rows[part, number] = ~finite if flagged else np.where(finite, block, np.nan)
            known = known or bool(finite.any())
        if not known:
            raise DataError(
                f"{bars.symbol}: column {name!r} has no finite value in {len(rows)} rows; "
                "fill it or leave it out of features"
            )
    return rows


def feature_blocks(bars: Bars, name: str, price: str) -> Iterator[tuple[slice, Series | None]]:
    """One input, a block of rows at a time: float64 [rows], or None where the columns do not allow it.

    A block looks back as far as any input does; a session may be longer than a block, and is given whole.
    """
    n = len(bars.ts_event)
    size = n if name in GROUPS["session"] else _BLOCK_ROWS
    for start in range(0, n, max(size, 1)):
        stop, low = min(start + size, n), max(start - _LOOK_BACK, 0)
        values = _feature(bars.part(low, stop), name, price)
        yield slice(start, stop), None if values is None else values[start - low :]


def says_nothing(bars: Bars, name: str) -> bool:
    """Whether an input of the calendar or the session means nothing for bars like these.

    The hour of a daily bar is always the same; and a market without regular gaps has no sessions.
    """
    steps = np.diff(bars.ts_event)
    if name in GROUPS["session"]:
        gaps = np.flatnonzero(steps > 1.5 * most_common(steps)[0])
        if len(gaps) < _FEWEST_GAPS:
            return True
        stretches = np.diff(gaps, prepend=-1, append=len(steps))
        return bool(stretches.max() > _REGULAR * np.median(stretches))
    period = {"hour_sin": _DAY, "hour_cos": _DAY, "weekday_sin": 7 * _DAY, "weekday_cos": 7 * _DAY}.get(name)
    return period is not None and len(steps) > 0 and bool(np.median(steps) >= period)


def log_returns(price: Series, lag: int = 1) -> Series:
    """log price[t] - log price[t - lag] (float64 [n]); NaN where a price is missing."""
    out = np.full(len(price), np.nan)
    out[lag:] = np.log(price[lag:]) - np.log(price[:-lag])
    return out


def _lacking(bars: Bars, name: str) -> DataError:
    lacks = "its columns do not give" if name in COMPUTED else "has no column"
    return DataError(
        f"{bars.symbol}: {lacks} {name!r}, which the model needs; columns: "
        f"{', '.join(sorted(bars.columns))}; bring data with the columns that it was trained on"
    )


def _feature(bars: Bars, name: str, price: str) -> Series | None:
    """A computed input; or a column of the files, of the same name if others do not give it."""
    values: Series | None = None
    if name in COMPUTED:
        kind, _, span = name.rpartition("_")
        if kind in ("return", "volatility"):
            values = _of_price(bars, price, kind, int(span))
        else:
            values = _TRANSFORMS[name](bars)
    return bars.columns.get(name) if values is None else values


def _of_price(bars: Bars, price: str, kind: str, span: int) -> Series | None:
    try:
        prices, _ = price_series(bars, price)
    except DataError:  # a table of columns without a price can still be forecast
        return None
    return log_returns(prices, span) if kind == "return" else _log_volatility(log_returns(prices), span)


def _log_volatility(returns: Series, span: int) -> Series:
    """0.5 log of the mean square of the last ``span`` one-step returns."""
    return _rolling_mean(returns**2, span, lambda mean: 0.5 * np.log(mean + 1e-12))


def _rolling_mean(values: Series, span: int, transform: Callable[[Series], Series]) -> Series:
    out = np.full(len(values), np.nan)
    if len(values) >= span:
        out[span - 1 :] = transform(sliding_window_view(values, span).mean(axis=-1))
    return out


def _log_ratio(bars: Bars, above: str, below: str) -> Series | None:
    top, bottom = ohlc(bars, above), ohlc(bars, below)
    return None if top is None or bottom is None else np.log(top) - np.log(bottom)


def _spread(bars: Bars) -> Series | None:
    """log ask - log bid, of closes or of quotes."""
    sides = quote(bars)
    if sides is None:
        return None
    bid, ask = (np.where(side > 0, side, np.nan) for side in sides)
    return np.log(ask) - np.log(bid)


def _relative_volume(bars: Bars) -> Series | None:
    """log(1 + volume) less its mean over the last 24 rows."""
    volume = bars.columns.get("volume")
    if volume is None:
        return None
    log_volume = np.log1p(np.where(volume >= 0, volume, np.nan))
    return log_volume - _rolling_mean(log_volume, 24, lambda mean: mean)


def _phase(bars: Bars, period: int, offset: int, wave: Callable[[Series], Series]) -> Series:
    return wave(2 * np.pi * ((bars.ts_event + offset) % period) / period)


def _session(bars: Bars, *, length: bool) -> Series:
    """Bars since the last gap, or the length of that gap in usual steps: log(1 + x), NaN before the first.

    A gap is a step longer than 1.5 usual ones; the usual step is the most common one up to that row.
    """
    steps = np.diff(bars.ts_event)
    if not len(steps):
        return np.full(len(bars.ts_event), np.nan)
    usual, row = _usual_so_far(steps), np.arange(len(bars.ts_event))
    last = np.maximum.accumulate(np.where(np.concatenate([[False], steps > 1.5 * usual]), row, 0))
    value = np.concatenate([[0], steps / np.maximum(usual, 1)])[last] if length else row - last
    return np.where(last > 0, np.log1p(value), np.nan)


def _usual_so_far(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most common of the steps up to each one; of equally common ones that which was so first."""
    _, kind, counts = np.unique(steps, return_inverse=True, return_counts=True)
    order, at = np.argsort(kind, kind="stable"), np.arange(len(steps))
    times = np.empty(len(steps), np.int64)  # how often the same step came before
    times[order] = at - np.repeat(np.cumsum(counts) - counts, counts)
    most = np.maximum.accumulate(times)
    leads = times > np.concatenate([[-1], most[:-1]])
    return steps[np.maximum.accumulate(np.where(leads, at, 0))]


_THURSDAY = 3 * _DAY  # 1970-01-01, instant 0, was a Thursday; weeks here start on Monday
_TRANSFORMS: dict[str, Callable[[Bars], Series | None]] = {
    "high_low": lambda b: _log_ratio(b, "high", "low"),
    "close_open": lambda b: _log_ratio(b, "close", "open"),
    "spread": _spread,
    "volume_24": _relative_volume,
    "hour_sin": lambda b: _phase(b, _DAY, 0, np.sin),
    "hour_cos": lambda b: _phase(b, _DAY, 0, np.cos),
    "weekday_sin": lambda b: _phase(b, 7 * _DAY, _THURSDAY, np.sin),
    "weekday_cos": lambda b: _phase(b, 7 * _DAY, _THURSDAY, np.cos),
    "session_bars": lambda b: _session(b, length=False),
    "session_gap": lambda b: _session(b, length=True),
}
COMPUTED = frozenset(name for group in GROUPS.values() for name in group)

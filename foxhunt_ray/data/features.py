"""Bars to model inputs: named causal transforms of prices, and columns of the files as they are.

Row t of every feature depends on rows <= t of its own symbol only (a test perturbs the future). Rolling
features look back over gaps: that is past data, and a window is cut at gaps by the plan, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.prices import ohlc, price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

Series = NDArray[np.float64]
_HOUR, _DAY = 3600 * 10**9, 86400 * 10**9
_LAGS = (1, 4, 24)
_SPANS = (6, 24, 96)
GROUPS: dict[str, tuple[str, ...]] = {
    "returns": tuple(f"return_{k}" for k in _LAGS),
    "range": ("high_low", "close_open", "spread"),
    "volatility": tuple(f"volatility_{k}" for k in _SPANS),
    "volume": ("volume_24",),
    "calendar": ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos"),
}


def choose_features(bars: Sequence[Bars], config: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the inputs for these bars, and a note for each computed one that the columns do not allow.

    Args:
        bars: every symbol; an input must exist in all of them.
        config: ``features.groups``, ``features.columns`` and ``target.price``.

    Raises:
        DataError: a column or a group asked for by name is not there, or nothing is left.
    """
    wanted = [g for g in GROUPS if g in config.features.groups or "all" in config.features.groups]
    names: list[str] = []
    notes: list[str] = []
    for group in wanted:
        fits = [n for n in GROUPS[group] if _is_useful(n, bars, config)]
        if not fits and group in config.features.groups:
            raise DataError(
                f"features.groups has {group!r}, but the columns of {bars[0].symbol} do not allow it: "
                f"{', '.join(sorted(bars[0].columns))}; remove the group or add its columns"
            )
        if missing := [n for n in GROUPS[group] if n not in fits]:
            notes.append(f"features: no {', '.join(missing)} (columns absent or constant)")
        names += fits
    names += [c for c in _matching(bars, config.features.columns) if c not in names]
    if not names:
        raise DataError("no input feature is left: set features.groups or features.columns")
    return tuple(names), tuple(notes)


def feature_rows(bars: Bars, names: Sequence[str], price: str) -> NDArray[np.float32]:
    """Inputs of one symbol: float32 [n, F], C-contiguous, NaN where a value is missing or not finite.

    Args:
        bars: the symbol's n rows.
        names: the F inputs, in order.
        price: ``target.price``, from which returns and volatility are computed.

    Raises:
        DataError: a column is absent, or has no finite value in any row.
    """
    rows = np.empty((len(bars.ts_event), len(names)), np.float32)
    for number, name in enumerate(names):
        values = _compute(name, bars, price)
        if values is None:
            lacks = "its columns do not give" if name in _COMPUTED else "has no column"
            raise DataError(
                f"{bars.symbol}: {lacks} {name!r}, which the model needs; columns: "
                f"{', '.join(sorted(bars.columns))}; bring data with the columns that it was trained on"
            )
        with np.errstate(over="ignore"):
            rows[:, number] = values
        if name not in _COMPUTED and len(values) and not np.isfinite(rows[:, number]).any():
            raise DataError(
                f"{bars.symbol}: column {name!r} has no finite value in {len(values)} rows; "
                "fill it or leave it out of features"
            )
    rows[~np.isfinite(rows)] = np.nan
    return rows


def log_returns(price: Series, lag: int = 1) -> Series:
    """log price[t] - log price[t - lag] (float64 [n]); NaN where a price is missing."""
    out = np.full(len(price), np.nan)
    out[lag:] = np.log(price[lag:]) - np.log(price[:-lag])
    return out


def _is_useful(name: str, bars: Sequence[Bars], config: Config) -> bool:
    """Whether every symbol's columns allow it and it varies in one at least (another may be too short)."""
    series = [_compute(name, one, config.target.price) for one in bars]
    finite = [values[np.isfinite(values)] for values in series if values is not None]
    return len(finite) == len(series) and any(len(v) and np.ptp(v) > 0 for v in finite)


def _matching(bars: Sequence[Bars], patterns: Sequence[str]) -> list[str]:
    shared = [c for c in bars[0].columns if all(c in one.columns for one in bars)]
    found: list[str] = []
    for pattern in patterns:
        hits = [c for c in shared if fnmatchcase(c, pattern) or c == pattern]
        if not hits:
            raise DataError(
                f"features.columns has {pattern!r}, but no numeric column of every symbol is called so; "
                f"columns: {', '.join(shared)}"
            )
        found += [h for h in hits if h not in found]
    return found


def _compute(name: str, bars: Bars, price: str) -> Series | None:
    """The values of one input, or None where the columns do not allow it."""
    kind, _, span = name.rpartition("_")
    if name in bars.columns and name not in _COMPUTED:
        return bars.columns[name]
    if kind in ("return", "volatility"):
        return _of_price(bars, price, kind, int(span))
    transform = _TRANSFORMS.get(name)
    return transform(bars) if transform else None


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
    ask, bid = bars.columns.get("ask_close"), bars.columns.get("bid_close")
    if ask is None or bid is None:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.log(ask) - np.log(bid)


def _relative_volume(bars: Bars) -> Series | None:
    """log(1 + volume) less its mean over the last 24 rows."""
    volume = bars.columns.get("volume")
    if volume is None:
        return None
    log_volume = np.log1p(np.where(volume >= 0, volume, np.nan))
    return log_volume - _rolling_mean(log_volume, 24, lambda mean: mean)


def _phase(bars: Bars, period: int, offset: int, wave: Callable[[Series], Series]) -> Series | None:
    steps = np.diff(bars.ts_event)
    if len(steps) and np.median(steps) >= period:  # the hour of a daily bar says nothing
        return None
    return wave(2 * np.pi * ((bars.ts_event + offset) % period) / period)


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
}
_COMPUTED = frozenset(name for group in GROUPS.values() for name in group)


def train_statistics(
    rows: Sequence[NDArray[np.float32]], inside: Sequence[NDArray[np.bool_]]
) -> tuple[Series, Series]:
    """Mean and standard deviation (ddof 0) of each input over the finite training rows of all symbols.

    Float64, merged pairwise over symbols in their order (Chan, Golub and LeVeque 1979), so that the result is
    exact for levels far from zero and bitwise reproducible.

    Args:
        rows: float32 [n, F] of each symbol.
        inside: bool [n] of each symbol, True in the training span.

    Returns:
        float64 [F] each; the deviation of a constant input is 1, so that scaling leaves it at 0.
    """
    width = rows[0].shape[1]
    count, mean, square = np.zeros(width), np.zeros(width), np.zeros(width)
    for values, mask in zip(rows, inside, strict=True):
        part = values[mask].astype(np.float64)
        n = np.isfinite(part).sum(axis=0)
        average = np.nansum(part, axis=0) / np.maximum(n, 1)
        spread = np.nansum((part - average) ** 2, axis=0)
        total = np.maximum(count + n, 1)
        shift = average - mean
        square += spread + shift**2 * count * n / total
        mean = mean + shift * n / total
        count += n
    deviation = np.sqrt(square / np.maximum(count, 1))
    return mean, np.where(deviation > 0, deviation, 1.0)

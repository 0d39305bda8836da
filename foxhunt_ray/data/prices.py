"""Which column, or mid of two, is the price; values that are not above 0 count as missing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

_QUOTES = (("bid_close", "ask_close"), ("bid", "ask"), ("bid_price", "ask_price"), ("bid_px_00", "ask_px_00"))


def price_series(bars: Bars, price: str) -> tuple[NDArray[np.float64], str]:
    """The price of every row (float64 [n], NaN where missing or <= 0) and a phrase that says which it is.

    Args:
        bars: the symbol's rows.
        price: "auto" (close, else the mid of bid and ask), "close", "mid", or a column's name.

    Raises:
        DataError: the columns that this needs are not there.
    """
    columns = bars.columns
    names = _quote_names(bars)
    if price == "mid" or (price == "auto" and "close" not in columns):
        if names is None:
            wanted = "bid and ask columns" if price == "mid" else "a close column, or bid and ask"
            raise DataError(
                f"{bars.symbol}: no price: expected {wanted}, found {', '.join(sorted(columns)) or 'none'}; "
                "set target.price to the column that holds it"
            )
        return _mid(columns[names[0]], columns[names[1]]), f"mid of {names[0]} and {names[1]}"
    name = "close" if price == "auto" else price
    if name not in columns:
        raise DataError(
            f"{bars.symbol}: target.price is {name!r}, but its columns are {', '.join(sorted(columns))}; "
            "name one of them"
        )
    return _positive(columns[name]), name


def ohlc(bars: Bars, which: str) -> NDArray[np.float64] | None:
    """Open, high, low or close of every row (float64 [n]), the mid of bid and ask if quoted so, else None."""
    if which in bars.columns:
        return _positive(bars.columns[which])
    bid, ask = bars.columns.get(f"bid_{which}"), bars.columns.get(f"ask_{which}")
    return None if bid is None or ask is None else _mid(bid, ask)


def quote(bars: Bars) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Bid and ask of every row (float64 [n] each), of closes or of quotes, else None."""
    names = _quote_names(bars)
    return None if names is None else (bars.columns[names[0]], bars.columns[names[1]])


def _quote_names(bars: Bars) -> tuple[str, str] | None:
    return next((q for q in _QUOTES if q[0] in bars.columns and q[1] in bars.columns), None)


def _mid(bid: NDArray[np.float64], ask: NDArray[np.float64]) -> NDArray[np.float64]:
    return (_positive(bid) + _positive(ask)) / 2  # a side that is missing leaves no mid


def _positive(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(values > 0, values, np.nan)

"""Events (trades, quotes, book events) or bars made into longer bars, by whole intervals of UTC time.

The bar with stamp t holds what is stamped from t up to, not including, t + its length, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.source.columns import plain
from foxhunt_ray.data.source.intervals import most_common
from foxhunt_ray.errors import ConfigError, DataError

_DAY = 86_400 * 10**9
_BLOCK_ROWS = 2**20  # what is held beside the rows themselves is bounded by these
_QUOTES = (("bid_close", "ask_close"), ("bid_px_00", "ask_px_00"), ("bid_price", "ask_price"), ("bid", "ask"))
_PRICES = ("price", "close", "last")
_SIZES = ("size", "qty", "quantity", "amount", "volume")
_OHLC = ("open", "high", "low", "close")
_SIDES = ("", "bid_", "ask_")
_SUMS = {
    *("volume", "trades", "events", "turnover", "amount", "quote_volume", "quote_asset_volume"),
    *("trade_count", "number_of_trades", "num_trades", "transactions", "bid_volume", "ask_volume"),
    *("taker_buy_base_asset_volume", "taker_buy_quote_asset_volume"),
}

_Values = NDArray[np.float64]
_Rule = Callable[[_Values, NDArray[np.intp]], _Values]
_Output = tuple[str, _Rule, tuple[str, ...], bool]


@dataclass(frozen=True)
class _Plan:
    """What is made of which columns: (name in the result, rule, columns, whether these are prices)."""

    source: str
    outputs: tuple[_Output, ...]
    is_bars: bool = False
    count: str = ""  # column that counts the rows; empty = none
    is_book: bool = False

    @property
    def used(self) -> set[str]:
        return {name for _, _, names, _ in self.outputs for name in names}


def aggregate_bars(bars: Bars, every: int) -> Bars:
    """Bars of one length out of one symbol's events or shorter bars; an interval without rows has no bar.

    Events give open, high, low, close, volume (if a size is there) and trades or events, their count; quotes
    give bid_close and ask_close too. Their price is the mid of bid and ask where both are there, since the
    price of a book event is that of the order which changed; else price, close or last. Values that are not
    above 0 are no price. Bars give what they have: open first, high, low, close last, volumes and counts
    summed.

    Args:
        bars: ts_event int64 [n] not decreasing; rows of one stamp count in their order.
        every: length of the new bars [ns].

    Returns:
        ts_event int64 [m], the start of each bar; columns float64 [m], NaN where no row has a value.

    Raises:
        ConfigError: the length neither divides a day nor is whole days, or is no multiple of the bars given.
        DataError: no column is a price.
    """
    _require_length(every)
    plan = _plan(bars)
    if plan.is_bars:
        _require_fit(bars, every)
    blocks = [_block(bars, rows, plan, every) for rows in _blocks(bars.ts_event, every)]
    names = [name for name, *_ in plan.outputs] + ([plan.count] if plan.count else [])
    stamps = [np.zeros(0, np.int64), *(block.ts_event for block in blocks)]
    columns = {name: np.concatenate([np.zeros(0), *(b.columns[name] for b in blocks)]) for name in names}
    return Bars(bars.symbol, np.concatenate(stamps), columns)


def market_bars(market: Market, every: int) -> Market:
    """Every symbol's rows made into bars, and what was done; files, dropped rows and origins stay.

    Args:
        market: events or bars.
        every: length of the new bars [ns].

    Raises:
        ConfigError, DataError: as ``aggregate_bars``.
    """
    made = tuple(aggregate_bars(bars, every) for bars in market.bars)
    return replace(market, bars=made, findings=(*market.findings, *_findings(market.bars, made, every)))


def _require_length(every: int) -> None:
    if every <= 0 or (_DAY % every and every % _DAY):
        raise ConfigError(
            f"bars of {_span(every)}: expected a length that divides a day, such as 1s, 1m, 15m or 1h, or "
            "whole days; choose another --bars"
        )


def _require_fit(bars: Bars, every: int) -> None:
    """A bar that lies in two new ones would show the first what comes after it."""
    step, count = most_common(np.diff(bars.ts_event))
    if not count:
        return
    over = np.flatnonzero(bars.ts_event % every + step > every)
    if len(over):
        first = np.datetime64(int(bars.ts_event[over[0]]), "ns").astype("datetime64[s]")
        raise ConfigError(
            f"{bars.symbol}: {len(over):,} of {len(bars.ts_event):,} bars of {_span(step)}, the first at "
            f"{first} UTC, do not lie within one bar of {_span(every)}; choose a --bars of which each holds "
            "them whole"
        )


def _plan(bars: Bars) -> _Plan:
    columns = bars.columns
    sides = [side for side in _SIDES if all(side + part in columns for part in _OHLC)]
    if sides:
        carried: list[_Output] = [(n, r, (n,), _is_price(n)) for n in columns if (r := _rule_of(n))]
        return _Plan("bars", tuple(carried), is_bars=True)
    named = {plain(name): name for name in columns}
    quote = next(([named[b], named[a]] for b, a in _QUOTES if b in named and a in named), [])
    price = quote or [named[name] for name in _PRICES if name in named][:1]
    if not price:
        raise DataError(
            f"{bars.symbol}: no price to make bars of: expected price, close or last, or bid and ask, found "
            f"{listed(sorted(columns))}; rename the column that holds it"
        )
    rows = tuple(price)
    rules = {"open": _first, "high": _highest, "low": _lowest, "close": _last}
    outputs = tuple((name, rule, rows, True) for name, rule in rules.items())
    if quote:
        closes = tuple((f"{s}_close", _last, (n,), True) for s, n in zip(("bid", "ask"), quote, strict=True))
        return _Plan(
            f"the mid of {' and '.join(quote)}", outputs + closes, count="events", is_book="size" in named
        )
    size = tuple(named[name] for name in _SIZES if name in named)[:1]
    volume = (("volume", _total, size, False),) if size else ()
    return _Plan(price[0], outputs + volume, count="trades" if plain(price[0]) == "price" else "events")


def _rule_of(name: str) -> _Rule | None:
    """How a column of bars is made into one of longer bars; None = it is not."""
    part = name.removeprefix("bid_").removeprefix("ask_")
    rules = {"open": _first, "high": _highest, "low": _lowest, "close": _last}
    return rules.get(part) or (_total if plain(name) in _SUMS else None)


def _is_price(name: str) -> bool:
    return name.removeprefix("bid_").removeprefix("ask_") in _OHLC


def _blocks(ts_event: NDArray[np.int64], every: int) -> Iterator[slice]:
    """Slices of about a million rows, of which each holds whole bars."""
    low, total = 0, len(ts_event)
    while low < total:
        high = min(low + _BLOCK_ROWS, total)
        end = int(ts_event[high - 1]) // every * every + every
        high = high + int(np.searchsorted(ts_event[high:], end)) if high < total else total
        yield slice(low, high)
        low = high


def _block(bars: Bars, rows: slice, plan: _Plan, every: int) -> Bars:
    begun = bars.ts_event[rows] // every * every
    starts = np.flatnonzero(np.diff(begun, prepend=begun[0] - 1))
    columns = {}
    for name, rule, sources, is_price in plan.outputs:
        parts = [_priced(bars.columns[s][rows]) if is_price else bars.columns[s][rows] for s in sources]
        columns[name] = rule(parts[0] if len(parts) == 1 else (parts[0] + parts[1]) / 2, starts)
    if plan.count:
        columns[plan.count] = np.diff(starts, append=len(begun)).astype(np.float64)
    return Bars(bars.symbol, begun[starts], columns)


def _priced(values: _Values) -> _Values:
    return np.where(values > 0, values, np.nan)


def _first(values: _Values, starts: NDArray[np.intp]) -> _Values:
    rows = np.where(np.isnan(values), len(values), np.arange(len(values)))
    return np.append(values, np.nan)[np.minimum.reduceat(rows, starts)]


def _last(values: _Values, starts: NDArray[np.intp]) -> _Values:
    rows = np.where(np.isnan(values), -1, np.arange(len(values)))
    return np.append(values, np.nan)[np.maximum.reduceat(rows, starts)]


def _highest(values: _Values, starts: NDArray[np.intp]) -> _Values:
    found: _Values = np.fmax.reduceat(values, starts)  # passes over NaN
    return found


def _lowest(values: _Values, starts: NDArray[np.intp]) -> _Values:
    found: _Values = np.fmin.reduceat(values, starts)
    return found


def _total(values: _Values, starts: NDArray[np.intp]) -> _Values:
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(np.logical_or.reduceat(known, starts), sums, np.nan)


def _findings(before: Collection[Bars], after: Collection[Bars], every: int) -> Iterator[Finding]:
    if not before:
        return
    plans = {bars.symbol: _plan(bars) for bars in before}
    rows, made = (sum(len(b.ts_event) for b in of) for of in (before, after))
    sources = listed(list(dict.fromkeys(plan.source for plan in plans.values())))
    what = "bars" if all(plan.is_bars for plan in plans.values()) else "events"
    of = f" ({sources})" if what == "events" else ""
    yield note(f"{rows:,} {what} -> {made:,} bars of {_span(every)}{of}", count=made)
    yield note("the first and the last bar of a symbol may be incomplete")
    if any(plan.is_book for plan in plans.values()):
        yield note("volume is left out: which book events are trades stands in text, which is not read")
    left = dict.fromkeys(n for b in before for n in b.columns if n not in plans[b.symbol].used)
    if left:
        yield note(f"columns not carried into the bars: {listed(list(left))}", count=len(left))
    if odd := sum(_not_positive(bars, plans[bars.symbol]) for bars in before):
        yield warning("prices that are not above 0 count as missing", count=odd)
    if empty := sum(_without_price(bars.columns) for bars in after):
        yield warning(f"{empty:,} bars hold no price, only rows without one", count=empty)


def _not_positive(bars: Bars, plan: _Plan) -> int:
    names = {name for _, _, of, is_price in plan.outputs if is_price for name in of}
    return sum(int(np.count_nonzero(bars.columns[name] <= 0)) for name in names)


def _without_price(columns: Mapping[str, Any]) -> int:
    closes = [columns[side + "close"] for side in _SIDES if side + "close" in columns]
    return int(np.isnan(closes).all(axis=0).sum())


def _span(nanoseconds: int) -> str:
    units = (
        ("d", _DAY),
        ("h", 3600 * 10**9),
        ("min", 60 * 10**9),
        ("s", 10**9),
        ("ms", 10**6),
        ("us", 10**3),
    )
    unit, size = next(((u, s) for u, s in units if nanoseconds and nanoseconds % s == 0), ("ns", 1))
    return f"{nanoseconds // size:,} {unit}"

"""Prices that jump or stand still, and volumes that are zero or change their unit: told, never mended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import DataError

Series = NDArray[np.float64]
Rows = NDArray[np.int64]
_SYMBOLS = 10  # symbols told of one by one
_LISTED = 8  # places in one sentence
_LARGE, _LARGE_DEVIATIONS = 0.4, 12  # what a split or a wrong price is
_ODD, _ODD_DEVIATIONS = 0.1, 50  # smaller, but out of proportion
_SPLITS = {"2": 2.0, "3": 3.0, "4": 4.0, "5": 5.0, "7": 7.0, "8": 8.0, "10": 10.0, "20": 20.0, "3:2": 1.5}
_STILL, _STILL_RATIO = 20, 10  # bars without a change, and as a multiple of the usual run
_UNIT = np.log(100.0)  # smallest change of level that is taken for a change of unit
_NEAR = np.log(10.0)  # two stretches of one unit differ by less
_APART = 3.0  # distance in log between the bars on the two sides of a break
_EDGE, _PERSISTS = 4, 3  # bars on each side of a break, of which so many must lie apart
_SPAN = 100  # bars that tell the level of a stretch
_SHORT = 20  # a stretch of fewer bars is believed only if another one has its level
_RHYTHM = 50  # breaks of one series; more are how its day goes
_VOLUME = re.compile(r"volume|volume [a-z]+|[a-z_]+_volume", re.IGNORECASE)


@dataclass(frozen=True)
class _Jumps:
    """The jumps of one symbol: what to say, how many, and their part of the squared returns."""

    symbol: str
    text: str
    count: int
    share: float


def jump_findings(bars: Sequence[Bars], price: str) -> list[Finding]:
    """What looks wrong in the prices and volumes of all symbols; nothing is changed.

    Args:
        bars: every symbol; its log returns and levels do not depend on the scale of prices.
        price: ``target.price``, the price whose changes are looked at; a symbol without it is passed over.
    """
    jumps, still = [], []
    for one in bars:
        try:
            values, _ = price_series(one, price)
        except DataError:  # a table of columns without a price can still be forecast
            continue
        rows = np.flatnonzero(np.isfinite(values))
        stamps, logs = one.ts_event[rows], np.log(values[rows])
        jumps += _jumps(one.symbol, stamps, np.diff(logs))
        still += _still(one.symbol, stamps, logs)
    return [*_told_jumps(jumps), *_told_still(still), *_zero_volume(bars), *_unit_breaks(bars)]


def _jumps(symbol: str, stamps: Rows, returns: Series) -> list[_Jumps]:
    size = np.abs(returns)
    moved = size[size > 0]
    if not len(moved):
        return []
    usual = 1.4826 * float(np.median(moved))  # about 0: a median of signed ticks can hit one tick
    large = (size > _LARGE) & (size > _LARGE_DEVIATIONS * usual)
    rows = np.flatnonzero(large | ((size > _ODD) & (size > _ODD_DEVIATIONS * usual)))
    if not len(rows):
        return []
    share = float((size[rows] ** 2).sum() / (size**2).sum())
    shown = np.sort(rows[np.argsort(-size[rows], kind="stable")[:_LISTED]])
    places = [f"{_day(stamps[r + 1])} {returns[r]:+.2f}{_split(returns[r])}" for r in shown]
    more = f" and {len(rows) - _LISTED} smaller" if len(rows) > _LISTED else ""
    text = f"{', '.join(places)}{more}, {share:.0%} of the sum of squared returns"
    return [_Jumps(symbol, text, len(rows), share)]


def _split(log_return: float) -> str:
    """The split that the jump could be; a real crash can look the same."""
    ratio = np.exp(abs(log_return))
    name, near = min(_SPLITS.items(), key=lambda item: abs(np.log(ratio / item[1])))
    if abs(ratio / near - 1) > 0.05:
        return ""
    new, _, old = name.partition(":")
    first, second = (new, old or "1") if log_return < 0 else (old or "1", new)
    return f" (about {first}:{second})"


def _told_jumps(jumps: list[_Jumps]) -> list[Finding]:
    jumps = sorted(jumps, key=lambda j: -j.share)
    action = "adjust the prices for splits or correct them; a real crash can look the same"
    found = [
        warning(f"{j.symbol}: jumps of the log price: {j.text}", count=j.count, action=action)
        for j in jumps[:_SYMBOLS]
    ]
    if rest := jumps[_SYMBOLS:]:
        text = f"jumps of the log price in {len(rest)} more symbols: {listed([j.symbol for j in rest])}"
        found.append(warning(text, count=sum(j.count for j in rest), action=action))
    return found


def _still(symbol: str, stamps: Rows, logs: Series) -> list[tuple[int, str, int]]:
    """Length [bars], symbol and first stamp of each long run of one price."""
    lengths, starts = _runs(logs)
    if len(lengths) < 2:  # a price that never changes is told of as a constant column
        return []
    rows = np.flatnonzero(lengths >= max(_STILL, _STILL_RATIO * float(lengths.mean())))
    return [(int(lengths[r]), symbol, int(stamps[starts[r]])) for r in rows]


def _told_still(still: list[tuple[int, str, int]]) -> list[Finding]:
    if not still:
        return []
    still = sorted(still, key=lambda run: (-run[0], run[1:]))
    places = [f"{symbol} {length} bars from {_minute(start)}" for length, symbol, start in still]
    text = f"the price stands still for unusually long: {listed(places)}"
    count = sum(length for length, _, _ in still)
    return [warning(text, count=count, action="see whether the feed had stopped; a forecast there is empty")]


def _runs(values: Series) -> tuple[Rows, Rows]:
    """Lengths and first rows of the maximal runs of one value."""
    starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)  # NaN differs from everything
    return np.diff(np.append(starts, len(values))), starts


def _zero_volume(bars: Sequence[Bars]) -> list[Finding]:
    places, count, longest = [], 0, 0
    for one in bars:
        volume = one.columns.get("volume")
        zero = np.zeros(0, bool) if volume is None else volume == 0
        if volume is None or not zero.any() or not (volume > 0).any():  # all 0: told of as a constant column
            continue
        lengths, starts = _runs(zero.astype(np.float64))
        lengths, starts = lengths[zero[starts]], starts[zero[starts]]
        row, total = int(lengths.argmax()), int(zero.sum())
        length, start = int(lengths[row]), _minute(one.ts_event[starts[row]])
        bars_of = "1 bar" if length == 1 else f"{length} bars"
        text = (
            f"{one.symbol} {total:,} of {len(zero):,} ({total / len(zero):.2%}), the longest {bars_of} from"
        )
        places.append((total, f"{text} {start}"))
        count, longest = count + total, max(longest, length)
    if not places:
        return []
    say = warning if longest >= _STILL else note
    text = f"bars without volume: {listed([text for _, text in sorted(places, reverse=True)])}"
    return [say(text, column="volume", count=count)]


def _unit_breaks(bars: Sequence[Bars]) -> list[Finding]:
    found = []
    for name in dict.fromkeys(c for one in bars for c in one.columns if _VOLUME.fullmatch(c)):
        places = [place for one in bars for place in _changes(one, name)]
        if not places:
            continue
        text = "the level changes 100-fold or more and stays there, as if the unit changed, right after (UTC)"
        names = "volume*" if name == "volume" else name  # and what is computed from it
        action = f'bring it to one unit, or leave it out with features.exclude=["{names}"]'
        found.append(warning(f"{text} {listed(places)}", column=name, count=len(places), action=action))
    return found


def _changes(bars: Bars, name: str) -> list[str]:
    """The last bar of each unit, and beside these, of stretches of zeros: one state of several."""
    values = bars.columns.get(name)
    if values is None or (values < 0).any():
        return []
    rows = np.flatnonzero(np.isfinite(values) & (values > 0))
    breaks, jumps = _breaks(np.log(values[rows]))
    if not 0 < len(breaks) <= _RHYTHM:
        return []
    places = [
        (int(rows[b] - 1), f"{'up' if j > 0 else 'down'} {np.exp(abs(j)):,.0f} times")
        for b, j in zip(breaks, jumps, strict=True)
    ]
    lengths, starts = _runs(np.where(values == 0, 0.0, 1.0))
    for row in np.flatnonzero((lengths >= _PERSISTS) & (values[starts] == 0)):
        ends = ((starts[row] - 1, "to 0"), (starts[row] + lengths[row] - 1, "from 0"))
        places += [(int(end), text) for end, text in ends if 0 <= end < len(values) - 1]
    return [f"{bars.symbol} {_minute(bars.ts_event[row])} ({text})" for row, text in sorted(places)]


def _breaks(logs: Series) -> tuple[Rows, Series]:
    """First positions of a new level, and the change of the median there."""
    breaks = _candidates(logs)
    while len(breaks):
        before, after = _levels(logs, breaks)
        good = np.abs(after - before) > _UNIT
        if good.all():
            good = _believed(logs, breaks)
            if good.all():
                return breaks, after - before
        breaks = breaks[good]
    return breaks, np.zeros(0)


def _candidates(logs: Series) -> Rows:
    """Rows at which three of the four bars before lie apart from three of the four from there on."""
    if len(logs) < 2 * _EDGE:
        return np.zeros(0, np.int64)
    window = sliding_window_view(logs, _EDGE)
    ordered = np.sort(window, axis=1)
    low, high = ordered[:, _EDGE - _PERSISTS], ordered[:, _PERSISTS - 1]  # one outlier is passed over
    up = low[_EDGE:] - high[:-_EDGE]
    down = low[:-_EDGE] - high[_EDGE:]
    apart = np.flatnonzero(np.maximum(up, down) > _APART) + _EDGE
    steps = np.abs(logs[apart] - logs[apart - 1])
    # Rows next to each other are one break: the one with the largest step.
    group = np.cumsum(np.diff(apart, prepend=-9) > 1)
    order = np.lexsort((-steps, group))
    return apart[order][np.diff(group[order], prepend=0) > 0]


def _levels(logs: Series, breaks: Rows) -> tuple[Series, Series]:
    """Median of up to 100 bars before and after each break, as far as the next break."""
    first = np.maximum(np.concatenate([[0], breaks[:-1]]), breaks - _SPAN)
    last = np.minimum(np.concatenate([breaks[1:], [len(logs)]]), breaks + _SPAN)
    before = [np.median(logs[a:b]) for a, b in zip(first, breaks, strict=True)]
    after = [np.median(logs[b:a]) for b, a in zip(breaks, last, strict=True)]
    return np.array(before, np.float64), np.array(after, np.float64)


def _believed(logs: Series, breaks: Rows) -> NDArray[np.bool_]:
    """Which breaks bound no short stretch at a level that no long one has: an outage, not a unit."""
    edges = np.concatenate([[0], breaks, [len(logs)]])
    lengths = np.diff(edges)
    levels = np.array([np.median(logs[a:b]) for a, b in pairwise(edges)])
    known = levels[lengths >= _SHORT]
    odd = [s for s in np.flatnonzero(lengths < _SHORT) if not (np.abs(known - levels[s]) < _NEAR).any()]
    good = np.ones(len(breaks) + 2, bool)  # with the two ends of the data
    good[odd] = good[np.array(odd, int) + 1] = False
    return good[1:-1]


def _day(stamp: int) -> str:
    return iso(int(stamp))[:10]


def _minute(stamp: int) -> str:
    return iso(int(stamp))[:16].replace("T", " ")

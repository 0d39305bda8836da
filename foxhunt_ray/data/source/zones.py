"""Local time: stamps without a zone read in one, and the signs that stamps without a zone are not UTC."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, refusal
from foxhunt_ray.errors import ConfigError, DataError

Ints = NDArray[np.int64]
_HOUR, _DAY = 3600 * 10**9, 86_400 * 10**9
_NIGHT = 4 * _HOUR  # clocks change before this hour
_ZONES = ("America/New_York", "Europe/London", "Europe/Berlin", "Australia/Sydney")
# Minutes of the day at which the first and last bars of a session may be stamped, by exchange.
_SESSIONS = (
    ("New York", 9 * 60 + 30, 16 * 60),
    ("New York, before and after the session too", 4 * 60, 20 * 60),
    ("London", 8 * 60, 16 * 60 + 30),
    ("Frankfurt or Paris", 9 * 60, 17 * 60 + 30),
    ("Tokyo", 9 * 60, 15 * 60),
    ("Tokyo", 9 * 60, 15 * 60 + 30),
    ("Shanghai", 9 * 60 + 30, 15 * 60),
    ("Hong Kong", 9 * 60 + 30, 16 * 60),
    ("Mumbai", 9 * 60 + 15, 15 * 60 + 30),
)
# Local hours at which exchanges open. Those without daylight saving open before, in UTC, or after: Sao Paulo.
_OPENS = (7 * 60 + 30, 10 * 60 + 30)
_ROWS = 1_000_000  # of a symbol that are looked at
_BLOCK = 1 << 22  # rows converted at once
_SYMBOLS = 8
_ACTION = "set data.timezone, such as America/New_York, or UTC if the stamps are UTC"


def to_utc(naive: Ints, timezone: str, *, where: str, groups: Ints | None = None) -> Ints:
    """UTC nanoseconds of wall-clock stamps.

    A time that comes twice, at the end of daylight saving, is told apart by the order of rows: what stands
    before the clock goes back is the first pass.

    Args:
        naive: int64 [n], wall-clock nanoseconds, in the order of the file.
        timezone: IANA name.
        where: file and column, for messages.
        groups: int64 [n], number of the symbol of each row, from 0; None = one symbol.

    Raises:
        ConfigError: the zone is unknown.
        DataError: a time that does not exist there, or that comes twice but stands only once.
    """
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise ConfigError(
            f"data.timezone: {timezone!r} is no time zone; give an IANA name such as America/New_York"
        ) from err
    utc = np.empty(len(naive), np.int64)
    twice, holes = [np.empty((2, 0), np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(naive), _BLOCK):
        block = naive[start : start + _BLOCK]
        utc[start : start + _BLOCK], late, exists = _both(block, timezone)
        unclear = np.flatnonzero(utc[start : start + _BLOCK] != late)
        twice.append(np.stack([unclear + start, late[unclear]])[:, exists[unclear]])
        holes.append(unclear[~exists[unclear]] + start)
    if len(rows := np.concatenate(holes)):
        _refuse(naive, rows, f"does not exist in {timezone}", where)
    rows, later = np.concatenate(twice, axis=1)
    order, second, left = _passes(naive, rows, groups)
    if left.any():
        _refuse(naive, np.sort(rows[order][left]), f"comes twice in {timezone} and only once here", where)
    utc[rows[order][second]] = later[order][second]
    return utc


def local_time_findings(stamps: Mapping[str, Ints], *, where: str) -> list[Finding]:
    """A refusal if stamps without a zone show local time, which only the user can name.

    Args:
        stamps: int64 [n] wall-clock nanoseconds of each symbol, in the order of the file.
        where: the file, for the message.
    """
    largest = sorted(stamps, key=lambda s: -len(stamps[s]))[:_SYMBOLS]
    for symbol in largest:
        ts = stamps[symbol][-_ROWS:]
        ts = ts[::-1] if len(ts) and ts[0] > ts[-1] else ts
        sign = _repeats(ts) or _holes(ts) or _session(ts)
        if sign:
            return [
                refusal(f"stamps without a zone look like local time: {sign}", file=where, action=_ACTION)
            ]
    return []


def _refuse(naive: Ints, rows: Ints, what: str, where: str) -> None:
    stamp = str(np.datetime64(int(naive[rows[0]]), "ns").astype("datetime64[s]")).replace("T", " ")
    raise DataError(
        f"{where}: {stamp} in row {rows[0]} {what} (daylight saving), {len(rows)} rows so; check "
        "data.timezone, or write the stamps in UTC"
    )


def _both(naive: Ints, timezone: str) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """The earlier and the later UTC stamp that wall-clock stamps may mean, and whether they exist at all."""
    column = pa.array(naive, pa.timestamp("ns"))
    early = pc.assume_timezone(column, timezone, ambiguous="earliest", nonexistent="earliest")
    late = pc.assume_timezone(column, timezone, ambiguous="latest", nonexistent="latest").cast(pa.int64())
    wall = pc.local_timestamp(early).cast(pa.int64()).to_numpy()
    return early.cast(pa.int64()).to_numpy(), late.to_numpy(), wall == naive


def _passes(naive: Ints, rows: Ints, groups: Ints | None) -> tuple[Ints, NDArray[Any], NDArray[Any]]:
    """Which of the rows whose time comes twice belong to the second pass, and which could be either.

    Returns:
        Order of the rows, by symbol and time; and in it, bool [rows] each: second pass, undecided.
    """
    if not len(rows):
        return rows, np.zeros(0, bool), np.zeros(0, bool)
    codes = np.zeros(len(rows), np.int64) if groups is None else groups[rows]
    order = np.lexsort((rows * _direction(naive, groups)[codes], codes))
    times, codes = naive[rows][order], codes[order]
    steps = np.diff(times, prepend=times[0])
    new = (np.diff(codes, prepend=-1) != 0) | (np.abs(steps) > _DAY // 2)
    run = np.cumsum(new) - 1
    back = (steps <= 0) & ~new
    decided = np.bincount(run, back)[run] == 1
    seen = np.cumsum(back)
    return order, decided & (seen > seen[new][run]), ~decided


def _direction(naive: Ints, groups: Ints | None) -> Ints:
    """1 for a symbol whose rows ascend, -1 for one whose rows descend, by number of the symbol."""
    if groups is None:
        return np.array([1 if naive[0] <= naive[-1] else -1])
    first, last = (np.zeros(int(groups.max()) + 1, np.int64) for _ in range(2))
    last[groups] = naive  # of repeated places the last is kept
    first[groups[::-1]] = naive[::-1]
    return np.where(first <= last, 1, -1)


@lru_cache(maxsize=256)
def _changes(zone: str, year: int) -> tuple[tuple[int, bool], ...]:
    """Days since 1970 on which a zone's clock changes in a year, and whether it goes back."""
    info, found = ZoneInfo(zone), []
    day = dt.datetime(year, 1, 1)
    before = day.replace(tzinfo=info).utcoffset()
    for number in range(366):
        offset = (day + dt.timedelta(days=number + 1)).replace(tzinfo=info).utcoffset()
        if offset is not None and before is not None and offset != before:
            date = day + dt.timedelta(days=number)
            found.append(((date - dt.datetime(1970, 1, 1)).days, offset < before))
        before = offset
    return tuple(found)


def _change_days(ts: Ints, zone: str, *, back: bool) -> Ints:
    years = range(*(int(str(np.datetime64(int(t), "ns"))[:4]) + i for t, i in ((ts.min(), 0), (ts.max(), 1))))
    return np.array([d for y in years for d, goes_back in _changes(zone, y) if goes_back == back], np.int64)


def _repeats(ts: Ints) -> str:
    """Hours that come twice, on the days on which clocks go back and hardly on any other."""
    if len(ts) < 3:
        return ""
    jumps = np.diff(ts)
    back = np.flatnonzero((jumps <= 0) & (jumps > -_HOUR)) + 1
    if not len(back) or len(back) > 0.01 * len(ts) + 120:
        return ""
    days = np.unique(ts[back] // _DAY)
    by_night = np.unique(ts[back[ts[back] % _DAY < _NIGHT]] // _DAY)
    for zone in _ZONES:
        on = np.isin(days, np.intersect1d(by_night, _change_days(ts, zone, back=True)))
        if on.mean() >= 0.8:
            date = np.datetime64(int(days[on][0]), "D")
            return f"an hour comes twice on {date}, when clocks go back in {zone}"
    return ""


def _holes(ts: Ints) -> str:
    """An hour that is missing on the days on which clocks go forward, and not on the days around."""
    if len(ts) < 48 or (len(np.unique(ts // _HOUR % 24)) < 24):
        return ""
    there = np.unique(ts // _HOUR)
    for zone in _ZONES:
        changes = _change_days(ts, zone, back=False)
        hours = np.arange(4) + changes[:, None] * 24
        around = np.isin(hours - 24, there).all(axis=1) & np.isin(hours + 24, there).all(axis=1)
        missing = (~np.isin(hours, there)).sum(axis=1) == 1
        if around.sum() >= 2 and (missing & around).sum() >= 0.9 * around.sum():
            date = np.datetime64(int(changes[missing & around][0]), "D")
            return f"an hour is missing on {date} and every year when clocks go forward in {zone}"
    return ""


def _session(ts: Ints) -> str:
    """A session that keeps its hours in summer and winter, or those of an exchange."""
    steps = np.diff(ts)
    if len(ts) < 20 or np.median(steps) >= _DAY // 2:
        return ""
    step = int(np.median(steps[steps > 0]) // (60 * 10**9)) if (steps > 0).any() else 0
    opening, closing = _first_and_last(ts)
    if closing - opening >= 20 * 60 or step == 0:
        return ""
    month = (ts.astype("datetime64[ns]").astype("datetime64[M]").astype(np.int64) % 12) + 1
    winter, summer = ts[(month == 1) | (month == 12)], ts[(month == 6) | (month == 7)]
    hours = f"{opening // 60:02}:{opening % 60:02} to {closing // 60:02}:{closing % 60:02}"
    if len(winter) > 20 and len(summer) > 20:
        if _first_and_last(winter) != _first_and_last(summer):
            return ""
        opens = _OPENS[0] <= opening <= _OPENS[1] or _exchange(opening, closing, step)
        return f"bars from {hours} in summer and winter alike" if opens else ""
    exchange = _exchange(opening, closing, step)
    return f"bars from {hours}, the hours of {exchange}" if exchange else ""


def _exchange(opening: int, closing: int, step: int) -> str:
    """The exchange whose local session has these first and last minutes, stamped at start or end of bars."""
    for exchange, begin, end in _SESSIONS:
        if step <= 60 and begin - step < opening <= begin + step and end - step <= closing <= end:
            return exchange
    return ""


def _first_and_last(ts: Ints) -> tuple[int, int]:
    """The usual first and last minute of a day that has bars."""
    day, minute = ts // _DAY, ts % _DAY // (60 * 10**9)
    starts = np.flatnonzero(np.diff(day, prepend=day[0] - 1))
    return tuple(  # type: ignore[return-value]
        int(np.bincount(f.reduceat(minute, starts)).argmax()) for f in (np.minimum, np.maximum)
    )

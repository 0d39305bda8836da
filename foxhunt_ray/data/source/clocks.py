"""What the name of a time column says, and whether the time columns of a file agree."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.source.columns import plain
from foxhunt_ray.data.split import iso

Ints = NDArray[np.int64]
_SECOND, _MINUTE, _HOUR, _DAY = 10**9, 60 * 10**9, 3600 * 10**9, 86_400 * 10**9
# Best first, without underscores. The start of a bar stands before its end, the market's clock before the
# recorder's, and what has a time of day before dates.
_NAMES = (
    *("tsevent", "timestamp", "ts", "datetime", "time", "opentime", "windowstart", "starttime", "barstart"),
    *("barstarttime", "bartime", "candletime", "candlebegintime", "periodstart", "klineopentime"),
    *("eventtime", "exchangetime", "exchangetimestamp", "tradetime", "transacttime", "quotetime"),
    *(
        "unix",
        "unixtime",
        "unixtimestamp",
        "epoch",
        "epochtime",
        "gmttime",
        "utctime",
        "utc",
        "date",
        "dates",
    ),
    *("tradedate", "tradingdate", "tradingday", "sessiondate", "observationdate", "pricedate", "mapdate"),
    *("caldt", "localtime", "index", "indexlevel0", "t", "closetime", "endtime", "windowend", "barend"),
    *("periodend", "klineclosetime", "tsrecv", "tsinit", "localtimestamp"),
)
_UNITS = re.compile(r"_?\((utc|gmt|s|ms|us|ns)\)$|_(utc|gmt|s|sec|ms|millis|us|ns)$")
_ENDS = re.compile(r"((bar|candle|kline|window|period|interval)_?)?(close|end)(_?(time|ts|at|date))?")
# Clocks of recorders and book-keepers, and dates of contracts: they are not the market's clock.
_RECORDERS = re.compile(
    r"(ts_)?(recv|init|received?|collect(ed|ion)|created?|creation|(last_)?(updated?|modified)|insert(ed)?|fetch(ed)?"
    r"|download(ed)?|ingest(ed|ion)?|captured?|scraped?|process(ed)?|local|parsed?|load(ed)?"
    r"|(\w+_)?expir(y|ation|es)|maturity|delivery|settlement|listing|last_trad(e|ing))"
    r"(_?(time|timestamp|ts|at|on|date|day))?"
)


def name_rank(name: str) -> int:
    """Place of a time column's name among the usual ones, the best is 0; their count for any other name."""
    word = _UNITS.sub("", plain(name)).replace("_", "")
    return _NAMES.index(word) if word in _NAMES else len(_NAMES)


def usual_name(name: str) -> bool:
    """Whether a time column's name is a usual one for the stamps of bars or events."""
    return name_rank(name) < len(_NAMES)


def is_recorder(name: str) -> bool:
    """Whether a time column is by its name no market clock: that of a recorder, or a date of the contract."""
    return _RECORDERS.fullmatch(_UNITS.sub("", plain(name))) is not None


def stamp_side(name: str, option: str) -> str:
    """Which side of its bar a stamp marks, "start" or "end": by ``data.stamp``, else by the column's name."""
    if option != "auto":
        return option
    return "end" if _ENDS.fullmatch(_UNITS.sub("", plain(name))) else "start"


def to_bar_start(ns: Ints, step: int) -> Ints:
    """Stamps at the end of bars moved to their start.

    Ends such as 23:59:59.999 count as the second after, and 23:59:59 of bars of a minute or more as the
    minute after.

    Args:
        ns: int64 [n], UTC nanoseconds.
        step: length of the bars [ns].
    """
    if step < _SECOND:
        return ns - step
    end = -(-ns // _SECOND) * _SECOND
    if step >= _MINUTE:
        end += np.where(end % _MINUTE == _MINUTE - _SECOND, _SECOND, 0)
    return end - step


def clock_findings(
    first: Ints, other: Ints, *, names: tuple[str, str], step: int, file: str
) -> list[Finding]:
    """Whether another time column of a file agrees with the one that is used.

    Only two columns that both have usual names, neither that of an end of bars nor of a recorder, can ask.

    Args:
        first: int64 [n], the stamps that are used, UTC nanoseconds.
        other: int64 [n], those of the other column.
        names: of the two columns.
        step: usual step of the bars [ns].
        file: for the message.
    """
    used, name = names
    said = _explained(first, other, names, step)
    if said:
        return [note(said, file=file, column=name)]
    text = _disagreement(first, other, used)
    if usual_name(used) and usual_name(name) and "end" not in (stamp_side(n, "auto") for n in names):
        return [refusal(text, file=file, column=name, action="name the right one in data.time_column")]
    return [note(f"{text}; {used} is used", file=file, column=name)]


def _explained(first: Ints, other: Ints, names: tuple[str, str], step: int) -> str:
    """What the other column is, if that can be told; empty if the two disagree."""
    used, name = names
    apart = other - first
    if not apart.any():
        return f"agrees with {used} in every row"
    if (first // _SECOND == other // _SECOND).all():
        return f"agrees with {used} to the second"
    values = np.unique(other)
    if _are_days(values, apart, step):
        return f"holds only the day of each stamp; {used} is used"
    if len(values) <= max(1, len(other) // 50):
        return f"the same for many rows, so no stamp of bars{_other_zone(first, other, values[:20], step)}"
    if is_recorder(name):
        return f"is a recorder's clock or bookkeeping by its name; {used} is used"
    shifted = apart[0] % _HOUR == 0 and (apart == apart[0]).all() and usual_name(used) and usual_name(name)
    ends = [stamp_side(n, "auto") == "end" for n in names]
    if (apart >= 0).all() and (apart <= step).all() and (ends[1] or not shifted):
        return f"is the end of each bar; {used} is used"
    if (apart <= 0).all() and (apart >= -step).all() and ends[0]:
        return f"is the start of each bar, {used} its end; {used} is used"
    return ""


def _are_days(values: Ints, apart: Ints, step: int) -> bool:
    """Whether distinct stamps are one a day, in any zone, and those of bars within the day lie near them."""
    near = (apart > -2 * _DAY).all() and (apart < _DAY).all()
    hours = (values % (_HOUR // 4) == 0).all() and (np.diff(values) >= 23 * _HOUR).all()
    return bool(step < _DAY // 2 and near and hours)


def _other_zone(first: Ints, other: Ints, values: Ints, step: int) -> str:
    """What a time of collection shows about its clock: nobody collects a bar before it begins."""
    late = np.array([value - first[other == value].max() for value in values])
    if (late < 0).all() and (late > -_DAY).all():
        return f"; {-late.max() / _HOUR:.1f} h before the last bar begins: a clock of another zone"
    hours = np.rint(late / _HOUR).astype(np.int64)
    exact = (np.abs(late - hours * _HOUR) <= 2 * step + _MINUTE).all() and step <= _HOUR // 4
    if exact and (hours == hours[0]).all() and 1 <= hours[0] <= 14:
        return f"; it looks {hours[0]} h ahead: a clock of another zone"
    return ""


def _disagreement(first: Ints, other: Ints, used: str) -> str:
    apart = other - first
    shifts = np.unique(apart)
    if len(shifts) <= 2 and shifts.all() and (shifts % (_HOUR // 4) == 0).all() and abs(shifts).max() < _DAY:
        return f"lies {' or '.join(f'{s / _HOUR:g}' for s in shifts)} h from {used} in every row: two clocks"
    differing = np.flatnonzero(apart)
    row = int(differing[0])
    return (
        f"differs from {used} in {len(differing):,} of {len(first):,} rows, first in row {row}: "
        f"{iso(int(other[row]))} against {iso(int(first[row]))}"
    )

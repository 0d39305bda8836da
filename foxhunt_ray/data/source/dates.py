"""Dates and times written as text, in any of the usual orders, and as numbers like 20191105.

ISO text is arrow's own. For the rest the first value chooses a form that all others must have too; whether a
date like 5/11/2019 begins with the day is decided by the values where they prove it, else asked.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.errors import DataError

Ints = NDArray[np.int64]
_DAY = 86_400 * 10**9
_WEEK = 7
_ROWS = 1 << 20  # that are taken apart at once; a block's distinct texts are parsed, not its rows
_NONE = np.iinfo(np.int64).min
_ZONE = r"(?:\s*(?P<zone>Z|(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?|UTC|GMT))?"
_TIME = (
    r"(?:[ T,]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])[Mm])?" + _ZONE + ")?$"
)
_FORMS = {
    "year first": r"^(?P<year>\d{4})[/.-](?P<month>\d{1,2})[/.-](?P<day>\d{1,2})" + _TIME,
    "two orders": r"^(?P<one>\d{1,2})[/.-](?P<two>\d{1,2})[/.-](?P<year>\d{4})" + _TIME,
    "compact": r"^(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)"
    r"(?:[ T,]*(?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:\.?(?P<part>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])[Mm])?" + _ZONE + ")?$",
}
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")


def parse_dates(column: Any, *, order: str, where: str) -> tuple[Ints, bool, str, tuple[Finding, ...]]:
    """Stamps of text: int64 [n] nanoseconds, whether it names a zone, a phrase, and findings.

    Args:
        column: chunked array of text, dictionary-encoded or not.
        order: ``data.dates``.
        where: file and column, for messages.

    Raises:
        DataError: a value that is missing, has not the form of the first, or is no date.
    """
    first = str(column[0].as_py()).strip()
    if iso := _ISO.fullmatch(first):
        ns = _iso(column, "UTC" if iso[4] else None)
        if ns is not None:
            return ns, iso[4] is not None, f"ISO text{' with zone' if iso[4] else ''}", ()
    form = next((f for f, pattern in _FORMS.items() if re.match(pattern, first)), "")
    if not form:
        _refuse(column, 0, where)
    dates, of_day, zoned = _taken_apart(column, _FORMS[form], where)
    intraday = bool((of_day != of_day[0]).any())
    two_orders = form == "two orders"
    day_first, found = _day_first(dates, order, where, intraday=intraday) if two_orders else (False, ())
    if day_first:  # the middle number is the month
        dates = _swapped(dates)
    days = _days(dates)
    if len(bad := np.flatnonzero(days == _NONE)):
        _refuse(column, int(bad[0]), where)
    return days * _DAY + of_day, zoned, "dates in text", found


def compact_numbers(numbers: NDArray[Any]) -> Ints | None:
    """Stamps of numbers like 20191105, 201911050930 or 20191105093000, None if they are none.

    Args:
        numbers: integer or whole floats [n].

    Returns:
        int64 [n] nanoseconds, the smallest int64 where there is no such date.
    """
    low, high = numbers.min(), numbers.max()
    more = next((m for m in (0, 4, 6, 9) if low >= 19800101 * 10**m and high < 21010101 * 10**m), None)
    if more is None or (numbers.dtype.kind == "f" and (more == 9 or (numbers % 1).any())):
        return None
    whole = numbers.astype(np.int64)
    days = _days(whole // 10**more)
    rest = whole % 10**more * 10 ** (9 - more)  # HHMMSS and milliseconds
    hour, minute, second = rest // 10**7, rest // 10**5 % 100, rest // 1000 % 100
    days[(hour > 23) | (minute > 59) | (second > 59)] = _NONE
    of_day = (hour * 3600 + minute * 60 + second) * 10**9 + rest % 1000 * 10**6
    return np.where(days == _NONE, _NONE, days * _DAY + of_day)


def _refuse(column: Any, row: int, where: str) -> NoReturn:
    value = column[row].as_py()
    if not (value or "").strip():
        blank = sum(
            pc.sum(pc.equal(pc.fill_null(pc.utf8_trim_whitespace(block), ""), "")).as_py()
            for _, block in _blocks(column)
        )
        raise DataError(
            f"{where}: {blank} of {len(column)} stamps are missing, first in row {row}; fill or remove "
            "these rows"
        )
    if re.match(r"\d{1,2}[/.-]\d{1,2}[/.-]\d\d(\D|$)", value.strip()):
        raise DataError(
            f"{where}: {value!r} in row {row} has a year of two digits; write years with four digits"
        )
    raise DataError(
        f"{where}: {value!r} in row {row} is not a stamp like 2019-11-05 09:30:00 or 11/5/2019 9:30, in the "
        "form of the first row; write the column as timestamps"
    )


def _blocks(column: Any) -> Any:
    """(first row, texts) of a column, a block of rows at a time."""
    for start in range(0, len(column), _ROWS):
        block = column.slice(start, _ROWS)
        if pa.types.is_dictionary(block.type):
            block = block.cast(block.type.value_type)
        yield start, pc.cast(block, pa.large_string()).combine_chunks()


def _iso(column: Any, zone: str | None) -> Ints | None:
    """Stamps of ISO text, None if one value is none."""
    ns = np.empty(len(column), np.int64)
    try:
        for start, block in _blocks(column):
            parsed = block.cast(pa.timestamp("ns", zone))
            if parsed.null_count:
                return None
            ns[start : start + len(block)] = parsed.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return ns


def _taken_apart(column: Any, pattern: str, where: str) -> tuple[Ints, Ints, bool]:
    """Dates as numbers like 20191105 (one, two as they stand), nanoseconds of day in UTC, zone or not."""
    dates, of_day = np.empty(len(column), np.int64), np.empty(len(column), np.int64)
    zoned: bool | None = None
    for start, block in _blocks(column):
        coded = pc.utf8_trim_whitespace(block).dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        parts = pc.extract_regex(coded.dictionary, pattern)
        names = {"one", "two"} & {field.name for field in parts.type}
        month, day = ("one", "two") if names else ("month", "day")
        date = (_number(parts, "year") * 100 + _number(parts, month)) * 100 + _number(parts, day)
        moment, has_zone = _of_day(parts)
        if zoned is None:
            zoned = bool(has_zone[codes[0]])
        fits = ~parts.is_null().to_numpy(zero_copy_only=False) & (moment != _NONE) & (has_zone == zoned)
        bad = np.flatnonzero((codes < 0) | ~fits[codes])
        if len(bad):
            _refuse(column, start + int(bad[0]), where)
        dates[start : start + len(block)], of_day[start : start + len(block)] = date[codes], moment[codes]
    return dates, of_day, bool(zoned)


def _number(parts: Any, name: str) -> Ints:
    """A group of the form as numbers, 0 where it is not there."""
    text = pc.fill_null(parts.field(name), "")
    filled = pc.if_else(pc.equal(pc.utf8_length(text), 0), "0", text)
    numbers: Ints = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _days(dates: Ints) -> Ints:
    """Days since 1970 of numbers like 20191105, the smallest int64 where there is no such date."""
    year, month, day = dates // 10_000, dates // 100 % 100, dates % 100
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1678) & (year <= 2261)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    valid &= day <= following - first
    return np.where(valid, first + day - 1, _NONE)


def _of_day(parts: Any) -> tuple[Ints, NDArray[np.bool_]]:
    """Nanoseconds since midnight UTC, the smallest int64 where there is no such time; whether with a zone."""
    hour, minute, second = (_number(parts, name) for name in ("hour", "minute", "second"))
    half = pc.utf8_lower(pc.fill_null(parts.field("half"), "")).to_numpy(zero_copy_only=False)
    valid = (hour < 24) & (minute < 60) & (second < 60) & ((half == "") | ((hour >= 1) & (hour <= 12)))
    hour = np.where(half == "p", hour % 12 + 12, np.where(half == "a", hour % 12, hour))
    part = pc.utf8_rpad(pc.fill_null(parts.field("part"), ""), 9, "0").cast(pa.int64())
    zones = pc.fill_null(parts.field("zone"), "").dictionary_encode()
    names = zones.dictionary.to_pylist()
    at = zones.indices.to_numpy(zero_copy_only=False)
    ahead = np.array([_seconds(name) for name in names], np.int64)[at]
    seconds = (hour * 60 + minute) * 60 + second - ahead
    moment = seconds * 10**9 + part.to_numpy(zero_copy_only=False)
    return np.where(valid, moment, _NONE), np.array([name != "" for name in names])[at]


def _seconds(zone: str) -> int:
    """Seconds by which a zone written as text lies ahead of UTC."""
    digits = re.sub(r"\D", "", zone).ljust(4, "0")
    return (-1 if "-" in zone else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _day_first(dates: Ints, order: str, where: str, *, intraday: bool) -> tuple[bool, tuple[Finding, ...]]:
    """Whether the first number is the day, and what proves it or has to be asked.

    Args:
        dates: int64 [n], year, first and second number as in 20191105.
        order: ``data.dates``.
        where: file and column, for messages.
        intraday: the stamps have several times of day.
    """
    if order != "auto":
        return order == "day_first", ()
    one, two = dates // 100 % 100, dates % 100
    over = (np.flatnonzero(one > 12), np.flatnonzero(two > 12))
    if len(over[0]) and len(over[1]) and over[0][0] != over[1][0]:
        rows = [int(rows[0]) for rows in over]
        shown = [f"{one[row]}/{two[row]}/{dates[row] // 10_000} in row {row}" for row in rows]
        raise DataError(
            f"{where}: {shown[0]} can only be day first, {shown[1]} only month first; write timestamps"
        )
    if len(over[0]) or len(over[1]):  # in one row both: it is refused as no date
        day_first, proof = len(over[0]) > 0, "a number above 12 proves it"
    else:
        distinct = np.unique(dates)
        dense = [_is_dense(d, intraday=intraday) for d in (distinct, _swapped(distinct))]
        if dense[0] == dense[1]:
            return False, _asked(dates)
        day_first = dense[1]
        proof = f"{len(distinct)} distinct days prove it, which follow each other"
    return day_first, (note(f"dates read {'day' if day_first else 'month'} first: {proof}"),)


def _asked(dates: Ints) -> tuple[Finding, ...]:
    like = f"{dates[0] // 100 % 100}/{dates[0] % 100}/{dates[0] // 10_000}"
    text = f"dates like {like}: nothing shows whether the day or the month is first"
    return (refusal(text, action="set data.dates = day_first or month_first"),)


def _swapped(dates: Ints) -> Ints:
    """Numbers like 20191105 with the last two pairs of digits exchanged."""
    return dates // 10_000 * 10_000 + dates % 100 * 100 + dates // 100 % 100


def _is_dense(dates: Ints, *, intraday: bool) -> bool:
    """Whether three distinct days at least follow each other within a week each.

    Not if they are 1 January, 2 January and so on without a time of day: the first of each month looks so.
    """
    days = np.sort(_days(dates))
    if len(days) < 3 or days[0] == _NONE:
        return False
    monthly = (dates // 100 % 100 == 1).all() and (np.diff(days) == 1).all()
    return bool((np.diff(days) <= _WEEK).all() and (intraday or not monthly))

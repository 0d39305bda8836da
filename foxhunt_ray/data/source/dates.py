"""Dates and times written as text, in any of the usual orders, and as numbers like 20191105.

ISO text is arrow's own. For the rest the first value chooses a form that all others must have too; whether a
date like 5/11/2019 begins with the day is decided by the values where they prove it, else asked.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.errors import DataError

Ints = NDArray[np.int64]
_DAY = 86_400 * 10**9
_WEEK = 7
_ZONE = r"\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?$"
_TIME = (
    r"(?:[ T,]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?)?"
    r"\s*(?P<half>[AaPp][Mm])?)?" + _ZONE
)
_FORMS = {
    "year first": r"^(?P<year>\d{4})[/.](?P<month>\d{1,2})[/.](?P<day>\d{1,2})" + _TIME,
    "two orders": r"^(?P<one>\d{1,2})[/.-](?P<two>\d{1,2})[/.-](?P<year>\d{4})" + _TIME,
    "compact": r"^(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)"
    r"(?:[ T]?(?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?)?)?" + _ZONE,
}


def parse_dates(column: Any, *, order: str, where: str) -> tuple[Ints, bool, str, tuple[Finding, ...]]:
    """Stamps of text that is not ISO: int64 [n] nanoseconds, whether it names a zone, a phrase, and findings.

    Args:
        column: chunked array of text without missing values.
        order: ``data.dates``.
        where: file and column, for messages.

    Raises:
        DataError: a value that has not the form of the first, or is no date.
    """
    first = str(column[0].as_py()).strip()
    form = next((f for f, pattern in _FORMS.items() if re.match(pattern, first)), "")
    if not form:
        _refuse(column, 0, where)
    parts = pc.extract_regex(pc.utf8_trim_whitespace(column), _FORMS[form])
    if parts.null_count:
        _refuse(column, int(pc.index(pc.is_null(parts), True).as_py()), where)
    parts = parts.combine_chunks()
    found: tuple[Finding, ...] = ()
    if form == "two orders":
        one, two = _number(parts, "one"), _number(parts, "two")
        day_first, found = _day_first(one, two, _number(parts, "year"), order)
        day, month = (one, two) if day_first else (two, one)
    else:
        day, month = _number(parts, "day"), _number(parts, "month")
    days = _days(_number(parts, "year"), month, day)
    if len(bad := np.flatnonzero(days == np.iinfo(np.int64).min)):
        _refuse(column, int(bad[0]), where)
    zone, offset = _offset(parts, column, where)
    return days * _DAY + _of_day(parts) - offset, zone, "text dates", found


def compact_numbers(numbers: NDArray[Any]) -> Ints | None:
    """Stamps of numbers like 20191105 (int64 [n], nanoseconds), or None if one of them is no such date."""
    if numbers.dtype.kind not in "iu" or numbers.min() < 19800101 or numbers.max() > 21001231:
        return None
    whole = numbers.astype(np.int64)
    days = _days(whole // 10000, whole // 100 % 100, whole % 100)
    return None if (days == np.iinfo(np.int64).min).any() else days * _DAY


def _refuse(column: Any, row: int, where: str) -> None:
    raise DataError(
        f"{where}: {column[row].as_py()!r} in row {row} is not a stamp like 2019-11-05 09:30:00 or 11/5/2019 "
        "9:30, as the rows before it; write the column as timestamps"
    )


def _number(parts: Any, name: str) -> Ints:
    """A group of the form as numbers, 0 where it is not there."""
    text = parts.field(name)
    filled = pc.if_else(pc.equal(pc.utf8_length(text), 0), "0", text)
    numbers: Ints = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _days(year: Ints, month: Ints, day: Ints) -> Ints:
    """Days since 1970, the smallest int64 where there is no such date."""
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    months = (year - 1970) * 12 + np.where(valid, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    following = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    valid &= day <= following - first
    days: Ints = np.where(valid, first + day - 1, np.iinfo(np.int64).min)
    return days


def _of_day(parts: Any) -> Ints:
    hour = _number(parts, "hour")
    if "half" in [field.name for field in parts.type]:
        half = pc.utf8_lower(parts.field("half")).to_numpy(zero_copy_only=False)
        hour = np.where(half == "pm", hour % 12 + 12, np.where(half == "am", hour % 12, hour))
    part = parts.field("part")
    nanoseconds: Ints = pc.utf8_rpad(part, 9, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    seconds = (hour * 60 + _number(parts, "minute")) * 60 + _number(parts, "second")
    total: Ints = seconds * 10**9 + nanoseconds
    return total


def _offset(parts: Any, column: Any, where: str) -> tuple[bool, Ints]:
    """Whether the text names a zone, and the nanoseconds by which it lies ahead of UTC."""
    zone = parts.field("zone").dictionary_encode()
    names = zone.dictionary.to_pylist()
    if names == [""]:
        return False, np.zeros(len(parts), np.int64)
    if "" in names:
        bare = int(pc.index(parts.field("zone"), "").as_py())
        _refuse(column, bare, where)
    ahead = np.array([_seconds(name) for name in names], np.int64)
    return True, ahead[zone.indices.to_numpy(zero_copy_only=False)] * 10**9


def _seconds(zone: str) -> int:
    if zone in ("Z", "UTC", "GMT"):
        return 0
    digits = zone[1:].replace(":", "")
    return (1 if zone[0] == "+" else -1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


def _day_first(one: Ints, two: Ints, year: Ints, order: str) -> tuple[bool, tuple[Finding, ...]]:
    """Whether the first number is the day, and what proves it or has to be asked."""
    if order != "auto":
        return order == "day_first", ()
    over = (bool((one > 12).any()), bool((two > 12).any()))
    if over[0] != over[1]:
        proof = "a number above 12 proves it"
        return over[0], (note(f"dates are read {'day' if over[0] else 'month'} first: {proof}"),)
    dense = [_is_dense(year, month, day) for month, day in ((two, one), (one, two))]
    if dense[0] != dense[1]:
        count = len(np.unique(year * 10_000 + one * 100 + two))
        proof = f"so {count} distinct days follow each other; the other way months lie between them"
        return dense[0], (note(f"dates are read {'day' if dense[0] else 'month'} first: {proof}"),)
    question = f"dates like {one[0]}/{two[0]}/{year[0]}: nothing shows whether the day or the month is first"
    return False, (refusal(question, action="set data.dates = day_first or month_first"),)


def _is_dense(year: Ints, month: Ints, day: Ints) -> bool:
    """Whether three distinct days at least follow each other within a week each."""
    days = np.unique(_days(year, month, day))
    return len(days) > 2 and days[0] != np.iinfo(np.int64).min and bool((np.diff(days) <= _WEEK).all())

"""The time column of a file, and its stamps as int64 UTC nanoseconds.

Found by type first (timestamp, number, date, text), then by name. Stamps without a zone are read in
``data.timezone``, else as UTC; an epoch's unit follows from its magnitude, so that a vendor's change from ms
to us between two files is read right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding
from foxhunt_ray.data.parquet import brief
from foxhunt_ray.data.source.clocks import is_recorder, name_rank, usual_name
from foxhunt_ray.data.source.columns import ROW_NUMBERS, is_text, plain
from foxhunt_ray.data.source.dates import compact_numbers, parse_dates
from foxhunt_ray.data.source.zones import to_utc
from foxhunt_ray.errors import DataError

_KINDS = ("timestamp", "number", "date", "text", "other")  # the order of preference
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# Digits that may be an epoch between 1980 and 2100; those of other lengths are dates such as 20191105093000.
_EPOCH = re.compile(r"\d{9,10}|\d{12,13}|\d{15,16}|\d{18,19}|\d{9,16}\.\d+")
_YEAR_1980_S, _YEAR_2100_S = 315_532_800, 4_102_444_800


@dataclass(frozen=True, eq=False)
class Stamps:
    """Stamps of a column.

    Attributes:
        ns: int64 [n], UTC nanoseconds, in the order of the file.
        zone_assumed: neither the column nor the config names a zone.
        reading: how the column was read, a phrase.
        findings: what was decided about dates in text, or has to be asked.
    """

    ns: NDArray[np.int64]
    zone_assumed: bool
    reading: str
    findings: tuple[Finding, ...] = ()


def time_columns(schema: Any, wanted: str, *, path: str) -> list[str]:
    """Columns that could be the bar's stamp, the one to use first.

    Args:
        schema: arrow schema of the file.
        wanted: ``data.time_column``; empty = find it.
        path: the file, for messages.

    Raises:
        DataError: there is none, or nothing tells which of several it is.
    """
    ranked = sorted((*_rank(field), at, field.name) for at, field in enumerate(schema) if _may_be_time(field))
    names = [name for *_, name in ranked]
    if wanted:
        if wanted not in schema.names:
            raise DataError(
                f"{path}: no column {wanted!r} (data.time_column); its columns are {listed(schema.names)}"
            )
        return [wanted, *(n for n in names if n != wanted)]
    if not ranked:
        raise DataError(
            f"{path}: no time column; its columns are {listed(schema.names)}; expected timestamps, or "
            "epoch numbers or ISO text under a usual name: set data.time_column"
        )
    if len(ranked) > 1 and ranked[0][:3] == ranked[1][:3] and not usual_name(names[0]):
        raise DataError(
            f"{path}: time columns {' and '.join(names[:3])}: set data.time_column to one of them"
        )
    return names


def time_kind(dtype: Any) -> str:
    """How a column of this arrow type can hold time: timestamp, number, date, text or other."""
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if pa.types.is_timestamp(dtype):
        return "timestamp"
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return "number"
    if pa.types.is_date(dtype):
        return "date"
    return "text" if is_text(dtype) else "other"


def to_utc_ns(
    column: Any, *, timezone: str, where: str, dates: str = "auto", groups: NDArray[np.int64] | None = None
) -> Stamps:
    """Stamps of an arrow column as int64 UTC nanoseconds, and how they were read.

    Args:
        column: chunked array of timestamps, dates, epoch numbers or ISO text.
        timezone: IANA zone of stamps that carry none; empty = UTC.
        where: file and column, for messages.
        dates: ``data.dates``, the order of day and month in text.
        groups: int64 [n], number of the symbol of each row; None = one symbol.

    Raises:
        DataError: missing stamps, a value that is not a stamp, or a local time that is not unique.
        ConfigError: the zone is unknown.
    """
    if column.null_count:
        _refuse_missing(column.null_count, len(column), where)
    if is_text(column.type):
        ns, zoned, kind, findings = _text(column, dates, where)
    else:
        (ns, zoned, kind), findings = _typed(column, where), ()
    if zoned:
        return Stamps(ns, False, kind, findings)
    if not timezone:
        return Stamps(ns, True, f"{kind} without zone, read as UTC", findings)
    ns = to_utc(ns, timezone, where=where, groups=groups)
    return Stamps(ns, False, f"{kind} without zone, read as {timezone}", findings)


def _rank(field: Any) -> tuple[bool, int, int]:
    return is_recorder(field.name), _KINDS.index(time_kind(field.type)), name_rank(field.name)


def _may_be_time(field: Any) -> bool:
    kind, name = time_kind(field.type), plain(field.name)
    if kind == "number" and name in ROW_NUMBERS:
        return False
    return kind in ("timestamp", "date") or (kind != "other" and usual_name(name))


def _typed(column: Any, where: str) -> tuple[NDArray[np.int64], bool, str]:
    """Stamps of timestamps, dates and numbers; whether they have a zone; a phrase."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_date(column.type):
        return _nanoseconds(column.cast(pa.timestamp("ms")), where), False, "dates at midnight"
    if not pa.types.is_timestamp(column.type):
        return _number(column, where)
    zone = column.type.tz
    kind = f"timestamp[{column.type.unit}]" + (f" with zone {zone}" if zone is not None else "")
    return _nanoseconds(column, where), zone is not None, kind


def _text(column: Any, dates: str, where: str) -> tuple[NDArray[np.int64], bool, str, tuple[Finding, ...]]:
    """Stamps of text: epoch numbers, or dates."""
    first = str(column[0].as_py()).strip()
    if not _EPOCH.fullmatch(first):
        return parse_dates(column, order=dates, where=where)
    number = pa.float64() if "." in first else pa.int64()
    try:
        ns, zoned, kind = _number(pc.utf8_trim_whitespace(column.cast(pa.large_string())).cast(number), where)
    except pa.ArrowInvalid as err:
        raise DataError(f"{where}: {brief(err)}; write the column as timestamps") from err
    return ns, zoned, f"text of {kind}", ()


def _nanoseconds(column: Any, where: str) -> NDArray[np.int64]:
    factor = _UNIT_NS[column.type.unit]
    ticks: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    limit = np.iinfo(np.int64).max // factor
    outside = np.flatnonzero((ticks > limit) | (ticks < -limit))
    if len(outside):
        row = int(outside[0])
        raise DataError(
            f"{where}: {column[row]} in row {row} lies outside the years 1678 to 2261; correct or remove it"
        )
    return ticks if factor == 1 else ticks * factor


def _number(column: Any, where: str) -> tuple[NDArray[np.int64], bool, str]:
    """Numbers since 1970, in the unit in which all lie between 1980 and 2100, or dates like 20191105."""
    whole, rest, grain = _split(column, where)
    low, high = whole.min(), whole.max()
    for unit, factor in _UNIT_NS.items():
        if low >= _YEAR_1980_S * (10**9 // factor) and high < _YEAR_2100_S * (10**9 // factor):
            ns: NDArray[np.int64] = whole.astype(np.int64) * factor
            if rest is not None:
                ns += np.rint(rest * (factor / grain)).astype(np.int64) * grain
            return ns, True, f"{unit} since 1970 UTC"
    days = None if rest is not None and rest.any() else compact_numbers(whole)
    if days is None:
        _refuse_numbers(column, whole, where)
    if len(bad := np.flatnonzero(days == np.iinfo(np.int64).min)):
        raise DataError(
            f"{where}: {column[bad[0]]} in row {bad[0]} is no date like 20191105, as the numbers around it; "
            "correct it, or name another column in data.time_column"
        )
    return days, False, "dates like 20191105"


def _split(column: Any, where: str) -> tuple[NDArray[Any], NDArray[np.float64] | None, int]:
    """Whole part of numbers, what lies behind the point (None = nothing), and its smallest step [ns]."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.to_numpy(), None, 1
    if pa.types.is_decimal(kind):
        try:
            exact = column.cast(pa.decimal256(60, kind.scale))
            whole = pc.cast(pc.round(exact, round_mode="down"), pa.int64())
        except pa.ArrowInvalid as err:
            raise DataError(f"{where}: {brief(err)}; write the column as timestamps") from err
        behind = pc.subtract(exact, whole.cast(exact.type)) if kind.scale > 0 else None
        return whole.to_numpy(), behind and behind.cast(pa.float64()).to_numpy(), 1
    if not pa.types.is_floating(kind):
        raise DataError(f"{where}: {kind} is not a time; name a column of stamps in data.time_column")
    numbers = column.cast(pa.float64()).to_numpy()
    if missing := int(np.isnan(numbers).sum()):
        _refuse_missing(missing, len(numbers), where)
    if len(infinite := np.flatnonzero(np.isinf(numbers))):
        raise DataError(
            f"{where}: {numbers[infinite[0]]} in row {infinite[0]} is no stamp; correct or remove it"
        )
    floor = np.floor(numbers)
    # A double holds seconds of today to a quarter of a microsecond: what lies below is noise.
    return floor, numbers - floor, 1000


def _refuse_missing(missing: int, n: int, where: str) -> NoReturn:
    raise DataError(f"{where}: {missing} of {n} stamps are missing; fill or remove these rows")


def _refuse_numbers(column: Any, whole: NDArray[Any], where: str) -> NoReturn:
    """Name the first number that has not the unit of most of them, or all if no unit fits any."""
    fits = {
        unit: (whole >= _YEAR_1980_S * (10**9 // factor)) & (whole < _YEAR_2100_S * (10**9 // factor))
        for unit, factor in _UNIT_NS.items()
    }
    unit = max(fits, key=lambda u: int(fits[u].sum()))
    if fits[unit].any():
        row = int(np.flatnonzero(~fits[unit])[0])
        raise DataError(
            f"{where}: {column[row]} in row {row} is no {unit} since 1970 between 1980 and 2100, as "
            f"{int(fits[unit].sum()):,} of {len(whole):,} rows are; correct it or write timestamps"
        )
    raise DataError(
        f"{where}: numbers from {whole.min()} to {whole.max()} are no epoch in s, ms, us or ns between 1980 "
        "and 2100; name another column in data.time_column or write timestamps"
    )

"""The time column of a file, and its stamps as int64 UTC nanoseconds.

Found by type first (timestamp, number, date, text), then by name. Stamps without a zone are read in
``data.timezone``, else as UTC; an epoch's unit follows from its magnitude, so that a vendor's change from ms
to us between two files is read right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding
from foxhunt_ray.data.parquet import brief
from foxhunt_ray.data.source.clocks import is_recorder
from foxhunt_ray.data.source.columns import ROW_NUMBERS, is_text, plain
from foxhunt_ray.data.source.dates import compact_numbers, parse_dates
from foxhunt_ray.data.source.zones import to_utc
from foxhunt_ray.errors import DataError

# Best first. The start of a bar stands before its end, the market's clock before the recorder's.
_NAMES = (
    *("ts_event", "timestamp", "ts", "datetime", "date_time", "time", "open_time", "window_start"),
    *(
        "start_time",
        "bar_time",
        "candle_time",
        "period_start",
        "unix",
        "unix_time",
        "unix_timestamp",
        "epoch",
    ),
    *("epoch_ms", "timestamp_ms", "timestamp_ns", "gmt_time", "date", "trade_date", "trading_date"),
    *("observation_date", "mapdate", "local_time", "index", "__index_level_0__", "t"),
    *("close_time", "end_time", "window_end", "bar_end", "ts_recv", "ts_init", "local_timestamp"),
)
_KINDS = ("timestamp", "number", "date", "text", "other")  # the order of preference
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
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
    if len(ranked) > 1 and ranked[0][0] == ranked[1][0] and ranked[0][1] == len(_NAMES):
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
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
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
        raise DataError(
            f"{where}: {column.null_count} of {len(column)} stamps are missing; fill or remove these rows"
        )
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type):
        ns, zoned, kind, findings = _text(column, dates, where)
    elif pa.types.is_date(column.type):
        ns, zoned, kind, findings = (
            _nanoseconds(column.cast(pa.timestamp("ms")), where),
            False,
            "dates at midnight",
            (),
        )
    elif pa.types.is_timestamp(column.type):
        ns, kind, findings = _nanoseconds(column, where), f"timestamp[{column.type.unit}]", ()
        zoned = column.type.tz is not None
        kind += f" with zone {column.type.tz}" if zoned else ""
    else:
        ns, zoned, kind = _number(column, where)
        findings = ()
    if zoned:
        return Stamps(ns, False, kind, findings)
    if not timezone:
        return Stamps(ns, True, f"{kind} without zone, read as UTC", findings)
    ns = to_utc(ns, timezone, where=where, groups=groups)
    return Stamps(ns, False, f"{kind} without zone, read as {timezone}", findings)


def _rank(field: Any) -> tuple[int, int]:
    name = plain(field.name)
    place = _NAMES.index(name) if name in _NAMES else len(_NAMES) + is_recorder(name)
    return _KINDS.index(time_kind(field.type)), place


def _may_be_time(field: Any) -> bool:
    kind, name = time_kind(field.type), plain(field.name)
    if kind == "number" and name in ROW_NUMBERS:
        return False
    return kind == "timestamp" or (kind != "other" and name in _NAMES)


def _text(column: Any, dates: str, where: str) -> tuple[NDArray[np.int64], bool, str, tuple[Finding, ...]]:
    """Stamps of text: epoch numbers, ISO 8601, or another usual form."""
    first = str(column[0].as_py()).strip()
    if re.fullmatch(r"\d{9,13}|\d{16}|\d{19}", first):
        try:
            ns, zoned, kind = _number(column.cast(pa.int64()), where)
            return ns, zoned, f"text of {kind}", ()
        except pa.ArrowInvalid as err:
            raise DataError(f"{where}: {brief(err)}; write the column as timestamps") from err
    if not re.match(r"\d{4}-\d\d-\d\d", first):
        return parse_dates(column, order=dates, where=where)
    zone = "UTC" if re.search(r"(Z|[+-]\d\d:?\d\d)$", first) else None
    try:
        parsed = column.cast(pa.timestamp("ns", zone))
    except pa.ArrowInvalid as err:
        found = re.search(r"'(.*)' as a scalar", str(err))
        value = found[1] if found else first
        row = pc.index(column, pa.scalar(value, column.type)).as_py()
        expected = "2019-11-05 09:30:00" + ("Z as in the first row" if zone else "")
        raise DataError(
            f"{where}: {value!r} in row {row} is not a stamp like {expected}; write the column as timestamps"
        ) from err
    return _nanoseconds(parsed, where), zone is not None, "ISO text" + (" with zone" if zone else ""), ()


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
    return ticks * factor


def _number(column: Any, where: str) -> tuple[NDArray[np.int64], bool, str]:
    """Numbers since 1970, in the unit in which all lie between 1980 and 2100, or dates like 20191105."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"{where}: {column.type} is not a time; name a column of stamps in data.time_column")
    numbers = column.to_numpy()
    low, high = numbers.min(), numbers.max()  # NaN in either fails all the comparisons below
    for unit, factor in _UNIT_NS.items():
        ticks = 10**9 // factor
        if low >= _YEAR_1980_S * ticks and high < _YEAR_2100_S * ticks:
            return _scaled(numbers, factor), True, f"{unit} since 1970 UTC"
    days = compact_numbers(numbers)
    if days is not None:
        return days, False, "dates like 20191105"
    raise DataError(
        f"{where}: numbers from {low} to {high} are no epoch in s, ms, us or ns between 1980 and 2100; "
        "name another column in data.time_column or write timestamps"
    )


def _scaled(numbers: NDArray[Any], factor: int) -> NDArray[np.int64]:
    whole = numbers.astype(np.int64)
    ns: NDArray[np.int64] = whole * factor
    if numbers.dtype.kind == "f":
        # A double holds seconds of today to a quarter of a microsecond: what lies below is noise.
        ns += np.rint((numbers - whole) * (factor / 1000)).astype(np.int64) * 1000
    return ns

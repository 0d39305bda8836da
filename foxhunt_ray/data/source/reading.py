"""One file decoded: its rows by symbol in the canonical types, and what was seen on the way.

Columns are decoded one at a time, so that a wide file costs no second copy of itself; their lengths, which
pyarrow compares only when it reads them together, are compared here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from foxhunt_ray.data.discover import brief
from foxhunt_ray.data.source.columns import to_float64
from foxhunt_ray.data.source.layout import Layout
from foxhunt_ray.data.source.merge import Piece, order_of
from foxhunt_ray.data.source.symbols import rows_by_symbol
from foxhunt_ray.data.source.timestamps import to_utc_ns
from foxhunt_ray.errors import DataError


@dataclass(frozen=True, eq=False)
class Reading:
    """What one file held.

    Attributes:
        layout: the meaning of its columns.
        symbols: every symbol in it.
        pieces: rows of the wanted symbols.
        clock: how the stamps were read, a phrase.
        zone_assumed: neither the stamps nor the config name a zone.
        order: "ascending", "newest first" or "unordered", of each symbol's rows.
        infinite: number of infinite values by column.
    """

    layout: Layout
    symbols: frozenset[str]
    pieces: dict[str, Piece]
    clock: str
    zone_assumed: bool
    order: str
    infinite: dict[str, int]


def read_file(layout: Layout, *, timezone: str, wanted: Collection[str]) -> Reading:
    """The rows of one file in canonical types, in the file's order.

    Args:
        layout: what its columns mean.
        timezone: IANA zone of stamps that carry none; empty = UTC.
        wanted: symbols to keep; empty = all.

    Raises:
        DataError: the file is damaged, or holds a value that cannot be used.
        ConfigError: the zone is unknown.
    """
    path = layout.path
    try:
        # INT96 stamps wrap around silently in nanoseconds; a page that fails its checksum reads fine unasked.
        with pq.ParquetFile(
            path, coerce_int96_timestamp_unit="us", page_checksum_verification=True
        ) as parquet:
            return _decode(parquet, layout, timezone=timezone, wanted=wanted)
    except (pa.ArrowException, OSError) as err:
        raise DataError(
            f"{path}: its data cannot be decoded ({brief(err)}); write or download it again"
        ) from err


def require_one_clock(readings: Sequence[Reading]) -> None:
    """Refuse files of which some carry a time zone and some do not, unless the config names one.

    Raises:
        DataError: one file of each kind.
    """
    naive = next((r.layout for r in readings if r.zone_assumed), None)
    aware = next((r.layout for r in readings if not r.zone_assumed), None)
    if naive and aware:
        raise DataError(
            f"stamps have no time zone in {naive.path} ({naive.times[0]}) but one in {aware.path} "
            f"({aware.times[0]}); set data.timezone to the zone of the first, UTC if it is that"
        )


def _decode(parquet: Any, layout: Layout, *, timezone: str, wanted: Collection[str]) -> Reading:
    path = layout.path
    stamps = to_utc_ns(
        _column(parquet, layout, layout.times[0]), timezone=timezone, where=f"{path}: {layout.times[0]}"
    )
    rows: dict[str, NDArray[np.int64] | slice] = {layout.symbol: slice(None)}
    if layout.symbol_column:
        column = _column(parquet, layout, layout.symbol_column)
        rows = dict(rows_by_symbol(column, where=f"{path}: {layout.symbol_column}"))
    kept = {symbol: at for symbol, at in rows.items() if not wanted or symbol in wanted}
    pieces = {symbol: Piece(path, stamps.ns[at], {}) for symbol, at in kept.items()}
    infinite: dict[str, int] = {}
    for name, raw in layout.roles.values.items():
        values, count = to_float64(_column(parquet, layout, raw))
        if count:
            infinite[name] = count
        for symbol, at in kept.items():
            pieces[symbol].columns[name] = values[at]
    orders = {order_of(piece.ts_event) for piece in pieces.values()} or {"ascending"}
    return Reading(
        layout,
        symbols=frozenset(rows),
        pieces=pieces,
        clock=stamps.reading,
        zone_assumed=stamps.zone_assumed,
        order=orders.pop() if len(orders) == 1 else "unordered",
        infinite=infinite,
    )


def _column(parquet: Any, layout: Layout, name: str) -> Any:
    column = parquet.read(columns=[name]).column(name)
    if len(column) != layout.rows:
        raise DataError(
            f"{layout.path}: damaged: column {name!r} holds {len(column)} of {layout.rows} rows; "
            "write or download it again"
        )
    return column

"""One file decoded: its rows by symbol in the canonical types, and what was seen on the way.

The stamp and the symbol of every row are read first, whole; the values follow one row group at a time, and a
large row group a few columns at a time, so that memory is bounded by what a row group's columns take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.parquet import opened
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source.layout import Layout
from foxhunt_ray.data.source.merge import Piece, order_of
from foxhunt_ray.data.source.numbers import to_values
from foxhunt_ray.data.source.symbols import rows_by_symbol
from foxhunt_ray.data.source.timestamps import Stamps, to_utc_ns
from foxhunt_ray.errors import DamagedFileError, DataError

_READ_BYTES = 64_000_000  # of decoded columns at once
_RELEASE_BYTES = 32_000_000  # decoded since memory was last handed back
_THREADS_FROM_BYTES = 8_000_000  # below, starting threads costs more than it saves

_Rows = NDArray[np.int64]
OnRows = Callable[[int], None]


@dataclass(frozen=True)
class Wanted:
    """What to read of every file.

    Attributes:
        symbols: those to keep; empty = all.
        columns: canonical names to read.
        price_scale: divisor of integer prices.
    """

    symbols: frozenset[str]
    columns: frozenset[str]
    price_scale: float


@dataclass(frozen=True, eq=False)
class Reading:
    """What one file held.

    Attributes:
        layout: the meaning of its columns.
        symbols: every symbol in it.
        pieces: rows of the wanted symbols.
        stamps: how its stamps were read.
        order: "ascending", "newest first" or "unordered", of each symbol's rows.
        counts: values read as missing, by column and reason.
    """

    layout: Layout
    symbols: frozenset[str]
    pieces: dict[str, Piece]
    stamps: Stamps
    order: str
    counts: dict[str, dict[str, int]]


def read_file(
    layout: Layout, config: Config, wanted: Wanted, scratch: Scratch, *, on_rows: OnRows = lambda rows: None
) -> Reading:
    """The rows of one file in canonical types, in the file's order.

    Args:
        layout: what its columns mean.
        config: its ``data`` section says how stamps and repeated rows are read.
        wanted: symbols, columns and price scale.
        scratch: memory of the values.
        on_rows: called with the rows of the file that are done, after each row group.

    Raises:
        DamagedFileError: the file cannot be decoded.
        DataError: it holds a value that cannot be used.
        ConfigError: the zone is unknown.
    """
    with opened(layout.path, codes=[layout.symbol_column] if layout.symbol_column else []) as parquet:
        return _decode(parquet, layout, config, wanted, scratch, on_rows)


def _decode(
    parquet: Any, layout: Layout, config: Config, wanted: Wanted, scratch: Scratch, on_rows: OnRows
) -> Reading:
    rows = _rows_of_symbols(parquet, layout)
    kept = {s: at for s, at in rows.items() if not wanted.symbols or s in wanted.symbols}
    stamps = to_utc_ns(
        _whole(parquet, layout, layout.times[0]),
        timezone=config.data.timezone,
        dates=config.data.dates,
        where=f"{layout.path}: {layout.times[0]}",
        groups=_codes(rows, layout) if config.data.timezone else None,
    )
    places = {s: _places(layout, s, wanted.columns) for s in kept}
    arrays = {
        s: {name: scratch.empty(_count(kept[s], layout), np.float64) for name in of}
        for s, of in places.items()
    }
    counts = _fill(parquet, layout, places, kept, arrays, wanted.price_scale, scratch, on_rows)
    rank = _rank(parquet, layout, config.data.duplicates)
    pieces = {
        s: Piece(
            layout.path,
            scratch.keep(stamps.ns[at]),
            arrays[s],
            rows=None if isinstance(at, slice) else at,
            rank=None if rank is None else rank[at],
        )
        for s, at in kept.items()
    }
    orders = {order_of(piece.ts_event) for piece in pieces.values()} or {"ascending"}
    order = orders.pop() if len(orders) == 1 else "unordered"
    told = replace(stamps, ns=np.empty(0, np.int64))  # the pieces hold the stamps
    return Reading(layout, frozenset(rows), pieces, told, order, counts)


def _rows_of_symbols(parquet: Any, layout: Layout) -> dict[str, _Rows | slice]:
    if layout.symbol_column:
        column = _whole(parquet, layout, layout.symbol_column)
        return dict(rows_by_symbol(column, where=f"{layout.path}: {layout.symbol_column}"))
    return dict.fromkeys(layout.melt or [layout.symbol], slice(None))


def _codes(rows: Mapping[str, _Rows | slice], layout: Layout) -> _Rows | None:
    """The number of the symbol of each row; None = there is one symbol, or each row is one of all symbols."""
    if len(rows) < 2 or layout.melt:
        return None
    codes = np.empty(layout.rows, np.int64)
    for code, at in enumerate(rows.values()):
        codes[at] = code
    return codes


def _count(at: _Rows | slice, layout: Layout) -> int:
    return layout.rows if isinstance(at, slice) else len(at)


def _places(layout: Layout, symbol: str, wanted: Collection[str]) -> dict[str, str]:
    """Canonical name to column of the file, of everything to read for a symbol."""
    columns = layout.melt[symbol] if layout.melt else layout.roles.values
    return {name: raw for name, raw in columns.items() if name in wanted}


def _fill(
    parquet: Any,
    layout: Layout,
    places: Mapping[str, Mapping[str, str]],
    kept: Mapping[str, _Rows | slice],
    arrays: Mapping[str, Mapping[str, NDArray[np.float64]]],
    price_scale: float,
    scratch: Scratch,
    on_rows: OnRows,
) -> dict[str, dict[str, int]]:
    """Decode the columns of all places into their arrays; returns what was read as missing, and why."""
    counts: dict[str, dict[str, int]] = {}
    by_raw: dict[str, list[tuple[str, str]]] = {}
    for symbol, of_symbol in places.items():
        for name, raw in of_symbol.items():
            by_raw.setdefault(raw, []).append((symbol, name))
    filled = 0
    for first, table in _tables(parquet, list(by_raw)):
        for raw in table.column_names:
            name = by_raw[raw][0][1]
            kind = layout.roles.kinds.get(name, "number")
            values, missing = to_values(table.column(raw), kind=kind, where=f"{layout.path}: {raw}")
            if price_scale != 1 and name in layout.roles.integer_prices:
                values = values / price_scale
            for reason, count in missing.items():
                of = counts.setdefault(raw, {})
                of[reason] = of.get(reason, 0) + count
            for symbol, name in by_raw[raw]:
                _put(arrays[symbol][name], values, kept[symbol], first)
        on_rows(first + table.num_rows)
        filled += table.nbytes
        if filled > _RELEASE_BYTES:
            scratch.release()
            pa.default_memory_pool().release_unused()
            filled = 0
    return counts


def _put(array: NDArray[np.float64], values: NDArray[np.float64], at: _Rows | slice, first: int) -> None:
    """Write the values of the file's rows from ``first`` on to where the symbol's rows lie."""
    if isinstance(at, slice):
        array[first : first + len(values)] = values
        return
    low, high = np.searchsorted(at, [first, first + len(values)])
    array[low:high] = values[at[low:high] - first]


def _tables(parquet: Any, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """(first row, table) of every row group, its columns in portions of at most about 64 MB."""
    metadata = parquet.metadata
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        size = 8 * group.num_rows  # what a column will take, whatever its encoding
        count = max(1, _READ_BYTES // max(size, 1))
        for portion in (names[at : at + count] for at in range(0, len(names), count)):
            table = parquet.read_row_group(
                number, columns=portion, use_threads=size * len(portion) > _THREADS_FROM_BYTES
            )
            if table.num_rows != group.num_rows:
                raise pa.ArrowInvalid(f"row group {number} holds {table.num_rows} of {group.num_rows} rows")
            yield first, table
        first += group.num_rows


def _rank(parquet: Any, layout: Layout, duplicates: str) -> NDArray[Any] | None:
    """What orders repeated rows, from the column that ``latest_by:COLUMN`` names."""
    rule, _, name = duplicates.partition(":")
    if rule != "latest_by":
        return None
    if name not in parquet.schema_arrow.names:
        raise DataError(
            f"{layout.path}: no column {name!r} (data.duplicates); its columns are "
            f"{listed(parquet.schema_arrow.names)}"
        )
    column = _whole(parquet, layout, name)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return to_values(column, kind="number", where=f"{layout.path}: {name}")[0]
    return to_utc_ns(column, timezone="", where=f"{layout.path}: {name}").ns


def _whole(parquet: Any, layout: Layout, name: str) -> Any:
    column = parquet.read(columns=[name]).column(name)
    if len(column) != layout.rows:
        raise DamagedFileError(
            f"{layout.path}: damaged: column {name!r} holds {len(column)} of {layout.rows} rows; "
            "write or download it again"
        )
    return column

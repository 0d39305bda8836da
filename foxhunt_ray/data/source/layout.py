"""What the columns of one file mean, known from its footer alone, and whether all files agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import FileEntry, listed
from foxhunt_ray.data.source.columns import Roles, column_roles
from foxhunt_ray.data.source.symbols import file_symbol, symbol_column
from foxhunt_ray.data.source.timestamps import time_columns, time_kind
from foxhunt_ray.errors import DataError


@dataclass(frozen=True)
class Layout:
    """The meaning of one file's columns.

    Attributes:
        path: the file.
        rows: rows by its footer.
        times: columns that could hold the stamp; the first one does.
        time_kind: timestamp, number, date or text.
        symbol_column: column with the symbol of each row; empty = one symbol for the whole file.
        symbol: the symbol of the whole file; empty = by column.
        symbol_source: where it comes from, a phrase.
        roles: the other columns.
    """

    path: str
    rows: int
    times: tuple[str, ...]
    time_kind: str
    symbol_column: str
    symbol: str
    symbol_source: str
    roles: Roles


def read_layout(entry: FileEntry, config: Config) -> Layout:
    """What the columns of a file mean; reads its footer only.

    Raises:
        DataError: the file cannot be understood; names it and says what to do.
    """
    path, data = entry.path, config.data
    schema = pq.read_schema(path)
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path}: column {twice[0]!r} stands there {schema.names.count(twice[0])} times; rename one"
        )
    times = time_columns(schema, data.time_column, path=path)
    column = symbol_column(schema, data.symbol_column, path=path)
    if column:
        symbol, source = "", f"column {column}"
    elif entry.symbol:
        symbol, source = entry.symbol, "folder names"
    else:
        symbol, source = file_symbol(path), "file names"
    return Layout(
        path=path,
        rows=entry.rows,
        times=tuple(times),
        time_kind=time_kind(schema.field(times[0]).type),
        symbol_column=column,
        symbol=symbol,
        symbol_source=source,
        roles=column_roles(schema, taken={*times, column}, path=path),
    )


def require_alike(layouts: Sequence[Layout]) -> None:
    """Refuse files that differ in columns, in the kind of their stamps, or in where the symbol stands.

    Raises:
        DataError: the first file that differs from the first of all, and in what.
    """
    for other in layouts[1:]:
        _require_same(layouts[0], other)


def _require_same(first: Layout, second: Layout) -> None:
    here, there = set(first.roles.values), set(second.roles.values)
    parts = [f"only the first has {listed(sorted(here - there))}"] if here - there else []
    parts += [f"only the second has {listed(sorted(there - here))}"] if there - here else []
    if parts:
        raise DataError(
            f"{first.path} and {second.path} have different columns: {'; '.join(parts)}. "
            "Read them apart, or write the same numeric columns into both"
        )
    if first.time_kind != second.time_kind:
        raise DataError(
            f"the stamp is a {first.time_kind} in {first.path} ({first.times[0]}) but a {second.time_kind} "
            f"in {second.path} ({second.times[0]}); write one kind, or read them apart"
        )
    if bool(first.symbol_column) != bool(second.symbol_column):
        has, lacks = (first, second) if first.symbol_column else (second, first)
        raise DataError(
            f"{has.path} has the symbol in column {has.symbol_column!r}, {lacks.path} has no such column; "
            "add it there, or read them apart"
        )

"""What the columns of each file mean, and whose rows they are, known from its footer and its first rows.

What depends on the schema alone is worked out once for all files that share it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import FileEntry, listed
from foxhunt_ray.data.findings import Finding
from foxhunt_ray.data.parquet import opened
from foxhunt_ray.data.source.columns import Roles, column_roles
from foxhunt_ray.data.source.scale import binary_prices
from foxhunt_ray.data.source.symbols import (
    index_levels,
    mixed_intervals,
    named_symbols,
    stated_symbol,
    symbol_column,
)
from foxhunt_ray.data.source.timestamps import time_columns, time_kind
from foxhunt_ray.data.source.wide import find_wide, flat_names, melted_roles
from foxhunt_ray.errors import DataError

_HEAD_ROWS = 1000
PREPARED = b"foxhunt"
"""Key in the metadata of files that ``prepare`` wrote, which are taken as they stand."""


@dataclass(frozen=True)
class Layout:
    """The meaning of one file's columns.

    Attributes:
        path: the file.
        rows: rows by its footer.
        times: columns that could hold the stamp; the first one does.
        time_kind: timestamp, number, date or text.
        symbol_column: column with the symbol of each row; empty = one symbol for the whole file, or ``melt``.
        symbol: the symbol of the whole file; empty = by column or ``melt``.
        symbol_source: where it comes from, a phrase.
        roles: the other columns; of a wide file those of its first symbol.
        melt: symbol to name used inside to column of a wide file; else empty.
        types: every column and its arrow type as text.
        prepared: ``prepare`` wrote it: its stamps mark the start of bars.
        findings: what the footer shows, said once on the first file that shows it.
    """

    path: str
    rows: int
    times: tuple[str, ...]
    time_kind: str
    symbol_column: str
    symbol: str
    symbol_source: str
    roles: Roles
    melt: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    types: tuple[tuple[str, str], ...] = ()
    prepared: bool = False
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, eq=False)
class _Form:
    """What files of one schema share."""

    times: tuple[str, ...]
    time_kind: str
    symbol_column: str
    roles: Roles
    melt: Mapping[str, Mapping[str, str]]
    types: tuple[tuple[str, str], ...]
    prepared: bool = False


def read_layouts(
    entries: Sequence[FileEntry], config: Config
) -> tuple[list[Layout], list[tuple[FileEntry, DataError]]]:
    """What the columns of many files mean, and the files that cannot be understood with the reason.

    Reads every footer once, and a few rows of the first file of each schema. Files that nothing but their
    paths name are named together, since one name alone does not show which part of it varies.

    Args:
        entries: the files, all of status "read".
        config: ``data.path``, ``time_column``, ``symbol_column`` and ``wide`` are used.
    """
    forms: dict[object, _Form] = {}
    layouts: list[Layout] = []
    refused: list[tuple[FileEntry, DataError]] = []
    for entry in entries:
        try:
            layouts.append(_layout(entry, config, forms))
        except DataError as err:
            refused.append((entry, err))
    return _named(layouts, config), refused


def read_layout(entry: FileEntry, config: Config) -> Layout:
    """What the columns of one file mean.

    Raises:
        DataError: the file cannot be understood; names it and says what to do.
    """
    layouts, refused = read_layouts([entry], config)
    if refused:
        raise refused[0][1]
    return layouts[0]


def _layout(entry: FileEntry, config: Config, forms: dict[object, _Form]) -> Layout:
    path, wanted = entry.path, config.data.symbol_column
    with opened(path) as parquet:
        schema = parquet.schema_arrow
    key = _key(schema)
    findings: tuple[Finding, ...] = ()
    if key not in forms:
        forms[key], findings = _form(schema, config, path)
    form = forms[key]
    if form.prepared:
        symbol, source = schema.metadata[b"symbol"].decode(), "prepared files"
    elif form.symbol_column:
        symbol, source = "", f"column {form.symbol_column}"
    elif form.melt:
        symbol, source = "", "wide column names"
    else:
        symbol, source = stated_symbol(path, schema.metadata, key=wanted)
        if wanted and not symbol:
            raise DataError(
                f"{path}: no column {wanted!r} (data.symbol_column); its columns are {listed(schema.names)}"
            )
    return Layout(path, entry.rows, symbol=symbol, symbol_source=source, findings=findings, **vars(form))


def _key(schema: Any) -> object:
    """What tells apart schemas that mean different things; a file's own metadata is no part of it."""
    metadata = schema.metadata or {}
    marks = tuple(
        (name, metadata[name]) for name in (b"price_precision", b"size_precision") if name in metadata
    )
    fixed = b"instrument_id" in metadata or b"bar_type" in metadata, PREPARED in metadata
    shape = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return shape, index_levels(metadata), marks, fixed


def _form(schema: Any, config: Config, path: str) -> tuple[_Form, tuple[Finding, ...]]:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path}: column {twice[0]!r} stands there {schema.names.count(twice[0])} times; rename one"
        )

    def head(names: Sequence[str]) -> Any:
        return _head(path, names)

    types = tuple((one.name, str(one.type)) for one in schema)
    if PREPARED in (schema.metadata or {}):
        values = {name: name for name in schema.names if name != "ts_event"}
        return _Form(("ts_event",), "timestamp", "", Roles(values, (), ()), {}, types, prepared=True), ()
    data = config.data
    times = _times(schema, data.time_column, path)
    column = symbol_column(schema, data.symbol_column, path=path, times=times, head=head)
    times = [name for name in times if name != column]
    wide = None if column else find_wide(schema, taken=times, choice=data.wide)
    melt: Mapping[str, Mapping[str, str]] = {}
    if wide and wide.melt:
        melt, roles = melted_roles(schema, wide, taken=times, path=path, head=head)
    else:
        roles = column_roles(schema, taken={*times, column}, path=path, head=head)
    kind = time_kind(schema.field(times[0]).type)
    found = [replace(wide.finding, file=path)] if wide else []
    if binary := binary_prices(roles, schema, path=path):
        found.append(binary)
    return _Form(tuple(times), kind, column, roles, melt, types), tuple(found)


def _times(schema: Any, wanted: str, path: str) -> list[str]:
    """The time columns, where a two-level name such as ``('Date', '')`` counts as Date."""
    flat = flat_names(schema)
    if not flat:
        return time_columns(schema, wanted, path=path)
    raw = {flat.get(name, name): name for name in schema.names}
    shown = pa.schema([one.with_name(flat.get(one.name, one.name)) for one in schema], schema.metadata)
    return [raw[name] for name in time_columns(shown, flat.get(wanted, wanted), path=path)]


def _head(path: str, names: Sequence[str]) -> Any:
    """The first rows of some columns as an arrow table."""
    with opened(path) as parquet:
        batches = parquet.iter_batches(batch_size=_HEAD_ROWS, row_groups=[0], columns=list(names))
        return pa.Table.from_batches([batch for batch, _ in zip(batches, range(1), strict=False)])


def _named(layouts: Sequence[Layout], config: Config) -> list[Layout]:
    """The layouts with the symbols that their paths give, and with what those names show."""
    nameless = [x.path for x in layouts if not (x.symbol or x.symbol_column or x.melt)]
    names, findings = named_symbols(nameless, _roots(config.data.paths))
    named = [
        replace(x, symbol=names[x.path][0], symbol_source=names[x.path][1]) if x.path in names else x
        for x in layouts
    ]
    findings = findings + mixed_intervals((x.path, x.symbol) for x in named)
    for finding in findings:
        at = next(
            i for i, x in enumerate(named) if x.path == finding.file or (not finding.file and x.path in names)
        )
        named[at] = replace(named[at], findings=(*named[at].findings, finding))
    return named


def _roots(paths: Collection[str]) -> list[str]:
    """The folder of each data path: itself, that of the file, or what stands before the first wildcard."""
    roots = []
    for path in map(os.path.expanduser, paths):
        fixed = re.split(r"[*?\[]", path)[0]
        roots.append(path if os.path.isdir(path) else os.path.dirname(fixed))
    return roots

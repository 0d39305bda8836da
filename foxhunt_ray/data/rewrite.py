"""Bars written once in the canonical form: a parquet file a symbol, a manifest, and where each row came from.

A call that was cut short is gone on with by the same call: the files that are complete stay as they are.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_ray import __version__
from foxhunt_ray.data.discover import FileEntry
from foxhunt_ray.data.output import MANIFEST, finished, journal, replaced, require_out, storage
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import DataError

PROVENANCE = "_provenance.parquet"
_FORMAT = 1
_ROW_GROUP = 65_536
_ORIGINS = pa.schema(
    [("symbol", pa.string()), ("row", pa.int64()), ("source", pa.string())]
    + [(name, pa.int64()) for name in ("source_row", "step", "rows")]
)
_Entry = dict[str, Any]


class Run(Protocol):
    """So many ``rows`` that follow each other in a file, from ``source_row`` on, by ``step`` (1 or -1)."""

    @property
    def path(self) -> str: ...
    @property
    def source_row(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def rows(self) -> int: ...


def write_canonical(
    market: Market,
    out: Path,
    *,
    runs: Mapping[str, Sequence[Run]],
    config_summary: Mapping[str, Any],
    paths: Sequence[str] = (),
    rows_in: int | None = None,
    on_symbol: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write every symbol to a file of its own and return the manifest; goes on with what is unfinished there.

    A file holds ts_event (timestamp[ns, UTC]) and the columns as float64, bit by bit as they are, NaN =
    missing; the metadata ``symbol`` of its schema is the exact name. It takes the memory of one row group.

    Args:
        market: what is written; the arrays may be mapped from a file.
        out: the folder; empty, not there, or left by the same call.
        runs: where the rows of each symbol came from, in their order.
        config_summary: settings, JSON only; with the files they say whether a call is the same. If its
            ``bars`` is set, rows were joined to bars, and ``runs`` are those of the rows before.
        paths: what was read, in which ``out`` may not lie.
        rows_in: rows of all files that were read, where a row of a wide table counts once for each of its
            symbols; None = as their footers say.
        on_symbol: called after each symbol.

    Raises:
        ConfigError: ``out`` cannot be used: in what is read, of other files or settings, or in use.
        DataError: rows are missing: those read are not those kept and those dropped.
        CheckpointError: the storage is full, gone or read-only.
    """
    require_out(out, paths)
    head = _head(market, runs, config_summary, rows_in)
    if already := finished(out, head["fingerprint"]):
        return already
    with storage(out):
        out.mkdir(parents=True, exist_ok=True)
        with journal(out, head["fingerprint"]) as (done, record):
            symbols = _write_symbols(market.bars, out, done, record, on_symbol)
            _write_table(out / PROVENANCE, _ORIGINS, _origin_tables(market.bars, runs))
            created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
            text = json.dumps(head | {"created": created, "symbols": symbols}, indent=1, allow_nan=False)
            with replaced(out / MANIFEST) as draft:
                draft.write_text(text + "\n", encoding="utf-8")
    manifest: dict[str, Any] = json.loads(text)
    return manifest


def _head(
    market: Market, runs: Mapping[str, Sequence[Run]], summary: Mapping[str, Any], rows_in: int | None
) -> _Entry:
    """All of the manifest that is known before anything is written."""
    sources = [_source(entry) for entry in market.files]
    read = [[s["path"], s["size"], s["mtime_ns"]] for s in sources if s["status"] == "read"]
    identity = json.dumps([_FORMAT, __version__, dict(summary), read], sort_keys=True)
    return {
        "version": _FORMAT,
        "program": __version__,
        "fingerprint": hashlib.blake2b(identity.encode(), digest_size=16).hexdigest(),
        "config": dict(summary),
        "sources": sources,
        "dropped": dict(market.dropped),
        "findings": [str(finding) for finding in market.findings],
        "totals": _totals(market, runs, joined=bool(summary.get("bars")), rows_in=rows_in),
    }


def _source(entry: FileEntry) -> _Entry:
    size = mtime = None
    try:
        found = os.stat(entry.path)
        size, mtime = found.st_size, found.st_mtime_ns
    except OSError as err:
        if entry.status == "read":
            raise DataError(
                f"{entry.path}: was read but is gone now ({err.strerror}); read it again"
            ) from err
    named = {"path": entry.path, "status": entry.status, "reason": entry.reason, "rows": entry.rows}
    return named | {"size": size, "mtime_ns": mtime}


def _totals(
    market: Market, runs: Mapping[str, Sequence[Run]], *, joined: bool, rows_in: int | None
) -> dict[str, int]:
    """Numbers of rows, none missing: read = kept + dropped, and written = kept, unless joined to bars."""
    written = {bars.symbol: len(bars.ts_event) for bars in market.bars}
    kept = {symbol: sum(run.rows for run in runs.get(symbol, ())) for symbol in written}
    dropped = sum(market.dropped.values())
    if rows_in is None:
        rows_in = sum(entry.rows for entry in market.files if entry.status == "read")
    odd = next((s for s in written if written[s] != kept[s] and not joined), "")
    if odd:
        raise DataError(
            f"{odd}: {written[odd]:,} rows, but the files account for {kept[odd]:,}; nothing is written, "
            "because rows are missing: please report this"
        )
    stay = sum(kept.values())
    if rows_in != stay + dropped:
        raise DataError(
            f"{rows_in:,} rows were read, but {stay:,} are kept and {dropped:,} dropped; nothing is written, "
            "because rows are missing: please report this"
        )
    totals = {"rows_in": rows_in, "rows_dropped": dropped, "rows_kept": stay}
    return totals | {"rows_out": sum(written.values()), "symbols": len(written)}


def _write_symbols(
    market_bars: Sequence[Bars],
    out: Path,
    done: Mapping[str, _Entry],
    record: Callable[[_Entry], None],
    on_symbol: Callable[[str], None] | None,
) -> list[_Entry]:
    entries = []
    for bars, name in zip(market_bars, _file_names(b.symbol for b in market_bars), strict=True):
        entry = done.get(name, {})
        if not entry or not _is_whole(out / name, entry):
            schema, tables = _symbol_tables(bars)
            _write_table(
                out / name,
                schema,
                tables,
                use_dictionary=False,
                column_encoding={"ts_event": "DELTA_BINARY_PACKED"},
                write_statistics=["ts_event"],
                sorting_columns=[pq.SortingColumn(0)],
            )
            entry = _entry(bars, out / name)
            record(entry)
        entries.append(entry)
        if on_symbol:
            on_symbol(bars.symbol)
    return entries


def _file_names(symbols: Iterable[str]) -> Iterator[str]:
    taken: set[str] = set()
    for symbol in symbols:
        stem = quote(symbol, safe="")
        if stem.startswith((".", "_")):  # readers pass over such names
            stem = f"%{ord(stem[0]):02X}{stem[1:]}"
        if stem.casefold() in taken:  # some disks take brk and BRK for one name
            stem = "".join(f"%{byte:02X}" for byte in symbol.encode())
        taken.add(stem.casefold())
        yield f"{stem}.parquet"


def _symbol_tables(bars: Bars) -> tuple[Any, Iterator[Any]]:
    stamp = pa.field("ts_event", pa.timestamp("ns", tz="UTC"), nullable=False)
    fields = [stamp, *(pa.field(name, pa.float64(), nullable=False) for name in bars.columns)]
    schema = pa.schema(fields, {"symbol": bars.symbol, "foxhunt": str(_FORMAT)})

    def tables() -> Iterator[Any]:
        for low in range(0, len(bars.ts_event), _ROW_GROUP):
            parts = [v[low : low + _ROW_GROUP] for v in (bars.ts_event, *bars.columns.values())]
            arrays = [pa.array(part, one.type) for part, one in zip(parts, fields, strict=True)]
            yield pa.Table.from_arrays(arrays, schema=schema)

    return schema, tables()


def _entry(bars: Bars, path: Path) -> _Entry:
    ends = [iso(int(bars.ts_event[at])) for at in (0, -1)] if len(bars.ts_event) else [None, None]
    return {
        "symbol": bars.symbol,
        "file": path.name,
        "rows": len(bars.ts_event),
        "start": ends[0],
        "end": ends[1],
        "columns": list(bars.columns),
        "size": path.stat().st_size,
        "blake2b": _digest(path),
    }


def _is_whole(path: Path, entry: _Entry) -> bool:
    return path.is_file() and path.stat().st_size == entry["size"] and _digest(path) == entry["blake2b"]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _origin_tables(market_bars: Sequence[Bars], runs: Mapping[str, Sequence[Run]]) -> Iterator[Any]:
    lines = (line for bars in market_bars for line in _origin_lines(bars.symbol, runs.get(bars.symbol, ())))
    while part := list(islice(lines, _ROW_GROUP)):
        arrays = [
            pa.array(of, kind) for of, kind in zip(zip(*part, strict=True), _ORIGINS.types, strict=True)
        ]
        yield pa.Table.from_arrays(arrays, schema=_ORIGINS)


def _origin_lines(symbol: str, runs: Sequence[Run]) -> Iterator[tuple[str, int, str, int, int, int]]:
    row = 0
    for run in runs:
        yield symbol, row, run.path, run.source_row, run.step, run.rows
        row += run.rows


def _write_table(path: Path, schema: Any, tables: Iterable[Any], **options: Any) -> None:
    with (
        replaced(path) as draft,
        pq.ParquetWriter(
            draft, schema, compression="zstd", compression_level=3, write_page_checksum=True, **options
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table, row_group_size=_ROW_GROUP)

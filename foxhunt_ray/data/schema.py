"""One canonical form for market data: symbol, ts_event (int64 UTC ns), float64 columns.

``read_market`` brings any layout that it understands into that form and refuses every other one in a sentence
that names the file. The steps stand in ``read_market``; each has a module of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import FileEntry, discover, listed
from foxhunt_ray.data.findings import Finding, note
from foxhunt_ray.data.source.layout import read_layout, require_alike
from foxhunt_ray.data.source.merge import merge
from foxhunt_ray.data.source.notes import reading_notes, value_notes
from foxhunt_ray.data.source.reading import read_file, require_one_clock
from foxhunt_ray.data.source.symbols import require_symbol_names
from foxhunt_ray.errors import DataError

_SHOWN = 3  # refusals in one message


@dataclass(frozen=True, eq=False)
class Bars:
    """All bars of one symbol.

    Attributes:
        symbol: its name.
        ts_event: int64 [n], strictly increasing, UTC nanoseconds.
        columns: float64 [n] each; NaN where the file has no value or one that is not finite.
            Price columns are called open, high, low, close, volume, bid_close, ask_close and so on
            (lower case) whatever their spelling in the file; all other names are kept.
    """

    symbol: str
    ts_event: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Market:
    """Everything that was read.

    Attributes:
        bars: one entry a symbol, sorted by symbol.
        files: an account of every file that was found.
        findings: what was detected, assumed, or cannot be decided without the user.
        dropped: rows left out, by reason.
    """

    bars: tuple[Bars, ...]
    files: tuple[FileEntry, ...] = ()
    findings: tuple[Finding, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings that do not stop a run, a sentence each."""
        return tuple(str(f) for f in self.findings if f.level != "refusal")


def read_market(config: Config) -> Market:
    """All bars under ``data.path`` in the canonical form, with an account of files, rows and assumptions.

    Args:
        config: ``data.path``, ``symbols``, ``time_column``, ``symbol_column`` and ``timezone`` are used.

    Raises:
        DataError: a file, column or value that cannot be used; names the file.
        ConfigError: ``data.timezone`` is not a zone.
    """
    files = discover(config.data.paths)
    _require_readable(files)
    layouts = [read_layout(entry, config) for entry in files if entry.status == "read"]
    require_symbol_names([x.path for x in layouts if x.symbol_source == "file names"])
    wanted = frozenset(config.data.symbols)
    by_file = {x.symbol for x in layouts if x.symbol}
    layouts = [x for x in layouts if not x.symbol or not wanted or x.symbol in wanted]
    require_alike(layouts)
    readings = [read_file(x, timezone=config.data.timezone, wanted=wanted) for x in layouts]
    require_one_clock(readings)
    there = by_file.union(*(r.symbols for r in readings))
    _require_known(wanted, there, config.data.where)
    merged = {s: merge(s, [r.pieces[s] for r in readings if s in r.pieces]) for s in sorted(wanted or there)}
    bars = tuple(Bars(s, piece.ts_event, piece.columns) for s, (piece, _) in merged.items())
    notes = reading_notes(readings, list(merged), config) + value_notes({b.symbol: b.columns for b in bars})
    repeats = sum(count for _, count in merged.values())
    if repeats:
        notes.append(f"rows that repeat another one exactly are dropped: {repeats}")
    return Market(
        bars, tuple(files), tuple(map(note, notes)), {"exact duplicate": repeats} if repeats else {}
    )


def _require_readable(files: Sequence[FileEntry]) -> None:
    refused = [f"{f.path}: {f.reason}" for f in files if f.status == "refused"]
    if not refused:
        return
    more = len(refused) - _SHOWN
    if more > 0:
        refused[_SHOWN - 1 :] = [f"{refused[_SHOWN - 1]} (and {more} more files: see `foxhunt check`)"]
    raise DataError("\n".join(refused))


def _require_known(wanted: frozenset[str], there: set[str], path: str) -> None:
    unknown = sorted(wanted - there)
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(there), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {listed(sorted(there))}"
        raise DataError(f"{path}: no symbol {unknown[0]!r} (data.symbols); {hint}")

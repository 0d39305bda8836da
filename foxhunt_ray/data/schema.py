"""One canonical form for market data: symbol, ts_event (int64 UTC ns), float64 columns.

``scan_market`` brings any layout that it understands into that form, and says of everything else what was
found and which option answers it; ``read_market`` does the same and raises what keeps a run from starting.
The steps stand in ``scan_market``; each has a module of its own under ``source``.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import FileEntry, discover, listed
from foxhunt_ray.data.findings import Finding, refusal, require_none_refused
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source.drift import DriftPlan, drift
from foxhunt_ray.data.source.events import telling_column
from foxhunt_ray.data.source.intervals import interval_findings, split_by_interval
from foxhunt_ray.data.source.layout import Layout, read_layouts
from foxhunt_ray.data.source.merge import Merged, Origin, merge_symbol
from foxhunt_ray.data.source.notes import reading_findings, resolved, value_findings
from foxhunt_ray.data.source.plan import Account, columns_to_read, page_damage, price_samples
from foxhunt_ray.data.source.reading import Reading, Wanted, read_file
from foxhunt_ray.data.source.scale import mixed_prices, price_scale
from foxhunt_ray.data.source.stamps import at_bar_start, no_bars, stamp_findings
from foxhunt_ray.errors import DataError

Progress = Callable[[int, int], None]


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

    def part(self, start: int, stop: int) -> Bars:
        """The bars of rows ``start`` to ``stop`` (exclusive), as views of these arrays."""
        columns = {name: values[start:stop] for name, values in self.columns.items()}
        return Bars(self.symbol, self.ts_event[start:stop], columns)


@dataclass(frozen=True, eq=False)
class Market:
    """Everything that was read.

    Attributes:
        bars: one entry a symbol, sorted by symbol.
        files: an account of every file that was found.
        findings: what was detected, assumed, or cannot be decided without the user.
        dropped: rows left out, by reason.
        origins: where each row of a symbol came from.
        reading: how the files were understood, as JSON holds it.
        rows_read: rows of the files that were read; one of a wide table counts for each of its symbols.
    """

    bars: tuple[Bars, ...]
    files: tuple[FileEntry, ...] = ()
    findings: tuple[Finding, ...] = ()
    dropped: dict[str, int] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    rows_read: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings that do not stop a run, a sentence each."""
        return tuple(str(f) for f in self.findings if f.level != "refusal")

    @property
    def refused_files(self) -> tuple[Finding, ...]:
        """A refusal for each file that cannot be used."""
        return tuple(refusal(f.reason, file=f.path) for f in self.files if f.status == "refused")

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """What keeps a run from starting, files first."""
        return (*self.refused_files, *(f for f in self.findings if f.level == "refusal"))


def read_market(config: Config, *, on_progress: Progress | None = None) -> Market:
    """All bars under ``data.path`` in the canonical form.

    Args:
        config: its ``data`` section says what is read and how; with the other sections it says which columns
            large data are read for.
        on_progress: called with the rows done and in all.

    Raises:
        DataError: a file, column or value that cannot be used, or a question that only the user can answer;
            names the file.
        ConfigError: ``data.timezone`` is not a zone.
    """
    market = scan_market(config, on_progress=on_progress)
    require_none_refused(market.refusals)
    return market


def scan_market(
    config: Config, *, events: bool = False, whole: bool = False, on_progress: Progress | None = None
) -> Market:
    """As ``read_market``, but what keeps a run from starting is found in ``refusals`` and not raised.

    Where a question is open the bars are read one way all the same, so that the rest can be told.

    Args:
        config: as for ``read_market``.
        events: rows are trades, quotes or book events: several may have one stamp.
        whole: read every column, however large the data are.
        on_progress: called with the rows done and in all.

    Raises:
        DataError: the path holds no file to read, or lacks a symbol that the config names.
        ConfigError: ``data.timezone`` is not a zone.
    """
    account = Account(discover(config.data.paths), skip_bad=config.data.skip_bad)
    layouts, findings = _layouts(account, config)
    plan, differing = drift(layouts, config)
    scratch = Scratch()
    readings, more = _readings(account, layouts, plan, config, scratch, whole=whole, on_progress=on_progress)
    merged, joined = _merged(readings, config, scratch, events=events)
    findings += [*differing, *more, *joined]
    if not merged:
        if not any(e.status == "refused" for e in account.entries):
            findings.append(refusal("no file is left to read", file=config.data.where, action="give others"))
        return Market((), account.entries, tuple(findings))
    bars = tuple(Bars(s, m.piece.ts_event, m.piece.columns) for s, m in merged.items())
    rows_read, dropped = _accounted(account, readings, merged)
    findings = [
        *reading_findings(readings, list(merged), config),
        *value_findings({b.symbol: b.columns for b in bars}, scratch),
        *findings,
    ]
    return Market(
        bars,
        account.entries,
        tuple(sorted(findings, key=lambda f: f.level == "refusal")),
        dropped=dropped,
        origins={s: m.origin for s, m in merged.items()},
        reading=resolved(readings) | {"drift": list(plan.table)},
        rows_read=rows_read,
    )


def _accounted(
    account: Account, readings: Sequence[Reading], merged: Mapping[str, Merged]
) -> tuple[int, dict[str, int]]:
    """Rows of all files that were read, and those of them that are left out, by reason."""
    widths = {r.layout.path: len(r.layout.melt) or 1 for r in readings}
    rows_read = sum(e.rows * widths.get(e.path, 1) for e in account.readable())
    used = sum(len(piece.ts_event) for r in readings for piece in r.pieces.values())
    dropped = Counter({"symbol not asked for": rows_read - used} if rows_read > used else {})
    for one in merged.values():
        dropped.update(one.dropped)
    return rows_read, dict(dropped)


def _layouts(account: Account, config: Config) -> tuple[list[Layout], list[Finding]]:
    """The meaning of every file that may hold a wanted symbol, and how the files differ."""
    layouts, faults = read_layouts(account.readable(), config)
    for entry, fault in faults:
        account.refuse(entry.path, page_damage(entry.path) or fault)
    wanted = frozenset(config.data.symbols)
    mine = [x for x in layouts if not x.symbol or not wanted or x.symbol in wanted]
    there = {x.symbol for x in layouts if x.symbol}
    if not mine and there:
        _require_known(wanted, there, config.data.where)
    return mine, [f for x in mine for f in x.findings]


def _readings(
    account: Account,
    layouts: Sequence[Layout],
    plan: DriftPlan,
    config: Config,
    scratch: Scratch,
    *,
    whole: bool,
    on_progress: Progress | None,
) -> tuple[list[Reading], list[Finding]]:
    """Every file decoded; one that cannot be is refused in the account."""
    names, more = columns_to_read(layouts, plan.columns, config, every=whole)
    scale, stated = price_scale(price_samples(layouts), option=config.data.price_scale)
    whole_prices = next((x.path for x in layouts if x.roles.integer_prices), "")
    stated = [replace(f, file=whole_prices) for f in stated]
    stated += mixed_prices(
        {x.path: x.roles.kinds for x in layouts}, scale=scale, option=config.data.price_scale
    )
    wanted = Wanted(frozenset(config.data.symbols), names, scale)
    readings = []
    total, before = sum(x.rows for x in layouts), 0
    for layout in layouts:

        def report(rows: int, before: int = before) -> None:
            if on_progress:
                on_progress(before + rows, total)

        try:
            readings.append(read_file(layout, config, wanted, scratch, on_rows=report))
        except DataError as err:
            account.refuse(layout.path, err)
        before += layout.rows
    return readings, [*more, *stated]


def _merged(
    readings: Sequence[Reading], config: Config, scratch: Scratch, *, events: bool
) -> tuple[dict[str, Merged], list[Finding]]:
    """The pieces of each symbol joined to one series, and what the stamps of all of them show."""
    there = frozenset[str]().union(*(r.symbols for r in readings))
    if readings:
        _require_known(frozenset(config.data.symbols), there, config.data.where)
    pieces = {s: [r.pieces[s] for r in readings if s in r.pieces] for s in sorted(there)}
    pieces = {s: of for s, of in pieces.items() if of}
    pieces, findings = at_bar_start(readings, pieces, config)
    mixed = interval_findings(pieces)
    findings += [*stamp_findings(readings, config), *mixed]
    refused, symbols = ([], set(pieces)) if events else no_bars(readings)
    merged = {}
    for symbol, of in pieces.items():
        # Where intervals are mixed, which is refused, one is gone on with; repeated rows are told of all.
        for group in reversed(split_by_interval(of)) if mixed else [of]:
            merged[symbol] = merge_symbol(
                symbol,
                group,
                rule=config.data.duplicates,
                scratch=scratch,
                keep_ties=symbol in symbols,
                label=partial(telling_column, group[0]),
            )
            findings += merged[symbol].findings
    return merged, [*findings, *refused]


def _require_known(wanted: frozenset[str], there: Collection[str], where: str) -> None:
    unknown = sorted(wanted - set(there))
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(there), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {listed(sorted(there))}"
        raise DataError(f"{where}: no symbol {unknown[0]!r} (data.symbols); {hint}")

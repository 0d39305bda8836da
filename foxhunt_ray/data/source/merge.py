"""Rows of one symbol from several files to one series: sorted, repeats dropped, conflicts by a rule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.split import iso

_SHOWN = 6  # conflicting stamps in one message
_MANY = 0.03  # share of conflicting rows above which it is no accident of collection
_DAY = 86_400 * 10**9
_LOCAL = "set data.timezone if the stamps are local time, else "
_RULES = "set data.duplicates = first, last or latest_by:COLUMN"
_Rows = NDArray[np.int64]
_Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one symbol from one file, in the file's order.

    Attributes:
        path: the file.
        ts_event: int64 [n], UTC nanoseconds.
        columns: float64 [n] each.
        rows: int64 [n], numbers of the rows in the file; None = 0 to n - 1.
        rank: [n], what orders rows of one stamp under ``latest_by``; None = nothing does.
    """

    path: str
    ts_event: _Rows
    columns: dict[str, _Values]
    rows: _Rows | None = None
    rank: NDArray[Any] | None = None


@dataclass(frozen=True)
class Run:
    """So many ``rows`` of a series that follow each other in a file, by ``step`` (1 or -1)."""

    path: str
    source_row: int
    step: int
    rows: int


@dataclass(frozen=True, eq=False)
class Origin:
    """Where the rows of a series came from.

    Attributes:
        sources: path, number of rows, and their numbers in the file (None = all) of each piece.
        order: int64 [m], position of each kept row in the joined pieces; None = as they are.
    """

    sources: tuple[tuple[str, int, _Rows | None], ...]
    order: _Rows | None

    def runs(self) -> list[Run]:
        """The longest runs of consecutive source rows, in the order of the series."""
        ends = np.cumsum([n for _, n, _ in self.sources])
        at = np.arange(ends[-1]) if self.order is None else self.order
        piece = np.searchsorted(ends, at, side="right")
        source_row = at - (ends - [n for _, n, _ in self.sources])[piece]
        for number, (_, _, rows) in enumerate(self.sources):
            if rows is not None:
                mine = piece == number
                source_row[mine] = rows[source_row[mine]]
        step = np.where(np.diff(piece) == 0, np.diff(source_row), 0)
        step[np.abs(step) != 1] = 0
        starts = np.flatnonzero(np.append(0, step) == 0)[: len(at)]  # no row comes twice: none turns back
        counts = np.diff(np.append(starts, len(at)))
        return [
            Run(self.sources[piece[s]][0], int(source_row[s]), int(step[s]) if n > 1 else 1, int(n))
            for s, n in zip(starts.tolist(), counts.tolist(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Merged:
    """The series of one symbol.

    Attributes:
        piece: its rows, stamps strictly increasing (not decreasing if ties were kept).
        origin: where they came from.
        dropped: rows left out, by reason.
        findings: what was repeated, and the question if rows of one stamp differ.
    """

    piece: Piece
    origin: Origin
    dropped: dict[str, int]
    findings: tuple[Finding, ...]


def order_of(ts_event: _Rows) -> str:
    """How stamps (int64 [n]) follow each other: "ascending", "newest first" or "unordered"."""
    if (ts_event[1:] >= ts_event[:-1]).all():
        return "ascending"
    return "newest first" if (ts_event[1:] <= ts_event[:-1]).all() else "unordered"


def merge_symbol(
    symbol: str,
    pieces: Sequence[Piece],
    *,
    rule: str,
    scratch: Scratch,
    keep_ties: bool = False,
    label: Callable[[], str] = str,
) -> Merged:
    """One series of a symbol's pieces; while rows that differ are refused it goes on with the last of them.

    Args:
        symbol: for messages.
        pieces: at least one, in the order of their paths; a column that one lacks is missing in its rows.
        rule: ``data.duplicates``.
        scratch: memory of the result.
        keep_ties: rows are events, of which several may have one stamp.
        label: names a column that tells apart rows of one stamp, if it is called and there is one.
    """
    ts_event, order = _sorted(pieces, ranked=not keep_ties)
    names = tuple(dict.fromkeys(name for p in pieces for name in p.columns))
    shared = None if keep_ties else _shared(pieces, ts_event, order)
    if shared is None:
        return _merged(pieces, names, ts_event, order, scratch)
    same = _compare(pieces, names, ts_event, shared)
    best = _best(pieces, shared, same, first=rule == "first")
    kept = np.delete(np.arange(len(ts_event)), np.delete(shared.rows, best))
    found = _merged(pieces, names, ts_event[kept], kept if order is None else order[kept], scratch)
    agreed = best[~same.clashing]
    at = np.searchsorted(kept, shared.rows[agreed])
    for name in (n for n in names if any(n not in p.columns for p in pieces)):
        found.piece.columns[name][at] = _values(pieces, name, shared)[agreed]
    exact = len(ts_event) - len(kept) - same.differing
    counts = {"exact duplicate": exact, "conflicting duplicate": same.differing}
    told = _told(symbol, [pieces[n] for n in np.unique(shared.source)], same, exact, rule, label)
    return replace(found, dropped={reason: n for reason, n in counts.items() if n}, findings=(told,))


def _merged(
    pieces: Sequence[Piece], names: Sequence[str], ts_event: _Rows, at: _Rows | None, scratch: Scratch
) -> Merged:
    """The rows ``at`` these positions of the joined pieces; None = as they are."""
    columns = {}
    for name in names:
        values = columns[name] = _joined(pieces, name)
        if at is not None:
            columns[name] = np.take(values, at, out=scratch.empty(len(at), np.float64), mode="clip")
        elif len(pieces) > 1:
            columns[name] = scratch.keep(values)
    kept = ts_event if ts_event is pieces[0].ts_event else scratch.keep(ts_event)
    sources = tuple((p.path, len(p.ts_event), p.rows) for p in pieces)
    order = None if at is None else scratch.keep(at)
    return Merged(Piece(pieces[0].path, kept, columns), Origin(sources, order), {}, ())


def _sorted(pieces: Sequence[Piece], *, ranked: bool) -> tuple[_Rows, _Rows | None]:
    """Stamps in order, and the position of each in the joined pieces (None = they were in order)."""
    joined = np.concatenate([p.ts_event for p in pieces]) if len(pieces) > 1 else pieces[0].ts_event
    ranks = [p.rank for p in pieces if p.rank is not None and ranked]
    if order_of(joined) == "ascending" and (not ranks or (joined[1:] > joined[:-1]).all()):
        return joined, None
    if ranks:
        rank = np.concatenate(ranks)
        order = np.lexsort((rank, ~np.isnan(rank), joined))  # a row without a rank is the earliest
    else:
        order = np.argsort(joined, kind="stable")
    return joined[order], order


def _joined(pieces: Sequence[Piece], name: str) -> _Values:
    """One column of all pieces, in their order; missing where a piece lacks it."""
    parts = [p.columns[name] if name in p.columns else np.full(len(p.ts_event), np.nan) for p in pieces]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, eq=False)
class _Shared:
    """Rows that share their stamp with another, in the order of the series; int64 [k] each."""

    rows: _Rows  # positions in the series
    at: _Rows  # positions in the joined pieces
    group: _Rows  # numbers of the stamps, from 0
    source: _Rows  # numbers of the pieces


def _shared(pieces: Sequence[Piece], ts_event: _Rows, order: _Rows | None) -> _Shared | None:
    if not len(repeats := np.flatnonzero(ts_event[1:] == ts_event[:-1]) + 1):
        return None
    rows = np.union1d(repeats, repeats - 1)
    at = rows if order is None else order[rows]
    source = np.searchsorted(np.cumsum([len(p.ts_event) for p in pieces]), at, side="right")
    return _Shared(rows, at, np.cumsum(np.diff(ts_event[rows], prepend=ts_event[rows[0]]) != 0), source)


def _values(pieces: Sequence[Piece], name: str, shared: _Shared) -> _Values:
    """One column at shared rows; where the file lacks it, what another row of the stamp says."""
    values = _joined(pieces, name)[shared.at]
    lacks = np.array([name not in p.columns for p in pieces])[shared.source]
    if lacks.any():
        known = np.full(shared.group[-1] + 1, np.nan)
        known[shared.group[~lacks]] = values[~lacks]
        values[lacks] = known[shared.group[lacks]]
    return values


@dataclass(frozen=True, eq=False)
class _Comparison:
    """How shared rows differ."""

    differing: int  # rows that repeat a stamp with other values
    clashing: NDArray[np.bool_]  # [groups], stamps whose rows differ
    conflicts: _Rows  # those stamps
    example: str  # what the first two rows that differ say


def _compare(pieces: Sequence[Piece], names: Sequence[str], ts_event: _Rows, shared: _Shared) -> _Comparison:
    group, source = shared.group, shared.source
    adjacent = np.diff(group) == 0
    unequal = np.zeros(len(adjacent), bool)
    for name in names:
        values = _values(pieces, name, shared)
        unequal |= adjacent & (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    clashing = np.zeros(group[-1] + 1, bool)
    clashing[group[1:][unequal]] = True
    if not clashing.any():
        return _Comparison(0, clashing, np.empty(0, np.int64), "")
    inside = np.flatnonzero(clashing[group])
    two = np.searchsorted(inside, np.flatnonzero(unequal)[0]) + np.arange(2)
    code, pair = group[inside], []
    for name in names:
        values = _values(pieces, name, shared)[inside]
        code = code * len(code) + np.unique(values, return_inverse=True)[1]
        code = np.unique(code, return_inverse=True)[1]  # number of what the row says so far
        pair.append(values[two])
    stamps = np.unique(ts_event[shared.rows[inside]])
    example = _difference(names, [pieces[n].path for n in source[inside[two]]], *np.array(pair).T)
    return _Comparison(int(code.max()) + 1 - len(stamps), clashing, stamps, example)


def _best(pieces: Sequence[Piece], shared: _Shared, same: _Comparison, *, first: bool) -> _Rows:
    """The row kept of each stamp: of those that agree, one whose file has the most columns."""
    absent = -np.array([len(p.columns) for p in pieces])[shared.source]
    absent[same.clashing[shared.group]] = 0
    turn = np.arange(len(absent)) * (1 if first else -1)
    return np.lexsort((turn, absent, shared.group))[np.flatnonzero(np.diff(shared.group, prepend=-1))]


def _difference(names: Sequence[str], paths: Sequence[str], one: _Values, other: _Values) -> str:
    at = int(np.flatnonzero((one != other) & ~(np.isnan(one) & np.isnan(other)))[0])
    if paths[0] == paths[1]:
        return f"{names[at]} is both {one[at]:.10g} and {other[at]:.10g} in {paths[0]}"
    return f"{names[at]} is {one[at]:.10g} in {paths[0]} but {other[at]:.10g} in {paths[1]}"


def _told(
    symbol: str, sharing: Sequence[Piece], same: _Comparison, exact: int, rule: str, label: Callable[[], str]
) -> Finding:
    """The rows that share a stamp, within or between the pieces given, in one sentence."""
    rows = sum(len(p.ts_event) for p in sharing)
    file, files = ("", f" in {len(sharing)} files") if len(sharing) > 1 else (sharing[0].path, "")
    repeats = f"; rows that repeat another exactly, dropped: {exact:,}" if exact else ""
    text = f"{symbol}: {rows:,} rows{files} give {rows - exact - same.differing:,} distinct stamps{repeats}"
    if not (count := len(same.conflicts)):
        return note(text, file=file, count=exact)
    stamps = [iso(ts) for ts in same.conflicts[:_SHOWN].tolist()]
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    text += f"; stamps whose rows differ: {count:,} ({', '.join(stamps)}{more}): {same.example}"
    if twice := _clocks_go_back(same.conflicts):
        text += "; all in the night in which clocks go back"
    if rule != "refuse":
        return note(f"{text}; kept: {rule} (data.duplicates)", file=file, count=count)
    interleaved = same.differing > _MANY * rows and not twice
    action = _LOCAL * twice + (_advice(label) if interleaved else _RULES)
    return refusal(text, file=file, count=count, action=action)


def _clocks_go_back(ts_event: _Rows) -> bool:
    """Whether all stamps lie in nights in which clocks go back in America or Europe, were they local."""
    days = [dt.date(1970, 1, 1) + dt.timedelta(n) for n in np.unique(ts_event // _DAY).tolist()]
    autumn = all(d.weekday() == 6 and (10, 25) <= (d.month, d.day) <= (11, 7) for d in days)
    return autumn and bool((ts_event % _DAY < _DAY // 6).all())


def _advice(label: Callable[[], str]) -> str:
    if column := label():
        return f"column {column!r} tells them apart: set data.symbol_column = {column}"
    return (
        "if contracts or sides are interleaved here, name the column that tells them apart in "
        f"data.symbol_column; trades and quotes need `foxhunt prepare PATH OUT --bars 1m`; else {_RULES}"
    )

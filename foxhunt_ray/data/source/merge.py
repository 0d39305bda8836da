"""Rows of one symbol from several files to one series: sorted, repeats dropped, conflicts by a rule."""

from __future__ import annotations

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
        turned = np.append(False, (step[1:] != step[:-1]) & (step[:-1] != 0))[: len(step)]
        turns = np.flatnonzero((step == 0) | turned) + 1
        starts = np.concatenate([[0], turns])
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
    ts_event, order = _sorted(pieces)
    names = tuple(dict.fromkeys(name for p in pieces for name in p.columns))
    repeats = np.flatnonzero(ts_event[1:] == ts_event[:-1]) + 1
    if keep_ties or not len(repeats):
        columns = {name: _series(pieces, name, order, scratch) for name in names}
        return _merged(pieces, ts_event, columns, order, scratch)
    same = _compare(pieces, names, ts_event, order, repeats)
    kept = np.delete(np.arange(len(ts_event)), repeats if rule == "first" else repeats - 1)
    columns = {}
    for name in names:
        values = _series(pieces, name, order, None)
        if name in same.patches:
            values = values.copy()
            values[same.rows] = same.patches[name]
        columns[name] = scratch.keep(values[kept])
    found = _merged(pieces, ts_event[kept], columns, kept if order is None else order[kept], scratch)
    exact = len(repeats) - same.differing
    counts = {"exact duplicate": exact, "conflicting duplicate": same.differing}
    told = _told(symbol, pieces, same, rule, label)
    return replace(found, dropped={reason: n for reason, n in counts.items() if n}, findings=(told,))


def _merged(
    pieces: Sequence[Piece],
    ts_event: _Rows,
    columns: dict[str, _Values],
    order: _Rows | None,
    scratch: Scratch,
) -> Merged:
    kept = ts_event if ts_event is pieces[0].ts_event else scratch.keep(ts_event)
    sources = tuple((p.path, len(p.ts_event), p.rows) for p in pieces)
    origin = Origin(sources, None if order is None else scratch.keep(order))
    return Merged(Piece(pieces[0].path, kept, columns), origin, {}, ())


def _sorted(pieces: Sequence[Piece]) -> tuple[_Rows, _Rows | None]:
    """Stamps in order, and the position of each in the joined pieces (None = they were in order)."""
    joined = np.concatenate([p.ts_event for p in pieces]) if len(pieces) > 1 else pieces[0].ts_event
    ranks = [p.rank for p in pieces if p.rank is not None]
    if len(ranks) == len(pieces):
        order = np.lexsort((np.concatenate(ranks), joined))
    elif order_of(joined) == "ascending":
        return joined, None
    else:
        order = np.argsort(joined, kind="stable")
    return joined[order], order


def _joined(pieces: Sequence[Piece], name: str) -> _Values:
    """One column of all pieces, in their order; missing where a piece lacks it."""
    parts = [p.columns[name] if name in p.columns else np.full(len(p.ts_event), np.nan) for p in pieces]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _series(pieces: Sequence[Piece], name: str, order: _Rows | None, scratch: Scratch | None) -> _Values:
    """One column in order, in ``scratch`` if it is given and is not a piece's own array."""
    values = _joined(pieces, name)
    if order is not None:
        values = values[order]
    return values if scratch is None or values is pieces[0].columns.get(name) else scratch.keep(values)


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Rows that share a stamp, compared.

    Attributes:
        ts_event: int64 [n], stamps of all rows.
        rows: int64 [k], positions of all rows that share their stamp with another.
        count: rows of the files that share stamps, within or between them.
        stamps: number of distinct stamps of those rows.
        files: how many files these are.
        differing: rows that repeat a stamp with other values.
        conflicts: positions of the first row of each stamp whose rows differ.
        example: what the first two of them that differ say.
        patches: for columns that some files lack, their values at ``rows``, taken from rows that have them.
    """

    ts_event: _Rows
    rows: _Rows
    count: int
    stamps: int
    files: int
    differing: int
    conflicts: tuple[int, ...]
    example: str
    patches: dict[str, _Values]


def _compare(
    pieces: Sequence[Piece], names: Sequence[str], ts_event: _Rows, order: _Rows | None, repeats: _Rows
) -> _Comparison:
    rows = np.union1d(repeats, repeats - 1)
    group = np.cumsum(np.diff(ts_event[rows], prepend=ts_event[rows[0]]) != 0)
    at = rows if order is None else order[rows]
    source = np.searchsorted(np.cumsum([len(p.ts_event) for p in pieces]), at, side="right")
    values: dict[str, _Values] = {}
    patches: dict[str, _Values] = {}
    adjacent = np.diff(group) == 0
    unequal = np.zeros(len(adjacent), bool)
    for name in names:
        values[name] = _joined(pieces, name)[at]
        lacks = np.array([name not in p.columns for p in pieces])[source]
        if lacks.any():
            known = np.full(group[-1] + 1, np.nan)
            known[group[~lacks]] = values[name][~lacks]
            values[name][lacks] = known[group[lacks]]
            patches[name] = values[name]
        left, right = values[name][:-1], values[name][1:]
        unequal |= adjacent & (left != right) & ~(np.isnan(left) & np.isnan(right))
    clashing = np.unique(group[1:][unequal])
    sharing = {pieces[n].path: len(pieces[n].ts_event) for n in np.unique(source)}
    count = sum(sharing.values())
    extent = (count, count - len(repeats), len(sharing))
    if not len(clashing):
        return _Comparison(ts_event, rows, *extent, 0, (), "", patches)
    inside = np.isin(group, clashing)
    table = np.column_stack([group[inside], *(values[name][inside] + 0.0 for name in names)])
    table[np.isnan(table)] = np.nan  # one bit pattern
    distinct = len(np.unique(table.view(np.dtype((np.void, table.strides[0])))))
    first = int(np.flatnonzero(unequal)[0])
    pair = [(pieces[source[i]].path, {n: float(values[n][i]) for n in names}) for i in (first, first + 1)]
    firsts = tuple(rows[np.searchsorted(group, clashing)].tolist())
    return _Comparison(ts_event, rows, *extent, distinct - len(clashing), firsts, _difference(*pair), patches)


def _difference(one: tuple[str, dict[str, float]], other: tuple[str, dict[str, float]]) -> str:
    name = next(
        n for n, v in one[1].items() if v != other[1][n] and not (v != v and other[1][n] != other[1][n])
    )
    a, b = one[1][name], other[1][name]
    if one[0] == other[0]:
        return f"{name} is both {a:.10g} and {b:.10g} in {one[0]}"
    return f"{name} is {a:.10g} in {one[0]} but {b:.10g} in {other[0]}"


def _told(
    symbol: str, pieces: Sequence[Piece], same: _Comparison, rule: str, label: Callable[[], str]
) -> Finding:
    """The rows that share a stamp, in one sentence."""
    files = f" in {same.files} files" if same.files > 1 else ""
    exact = same.count - same.stamps - same.differing
    text = f"{symbol}: {same.count:,} rows{files} give {same.stamps:,} distinct stamps"
    if exact:
        text += f"; rows that repeat another exactly, dropped: {exact:,}"
    if not same.conflicts:
        return note(text, file=_only(pieces), count=exact)
    count = len(same.conflicts)
    stamps = [iso(int(same.ts_event[i])) for i in same.conflicts[:_SHOWN]]
    more = f" and {count - _SHOWN:,} more" if count > _SHOWN else ""
    text += f"; stamps whose rows differ: {count:,} ({', '.join(stamps)}{more}): {same.example}"
    if rule != "refuse":
        return note(f"{text}; kept: {rule} (data.duplicates)", file=_only(pieces), count=count)
    return refusal(
        text, file=_only(pieces), count=count, action=_advice(same.differing > _MANY * same.count, label)
    )


def _only(pieces: Sequence[Piece]) -> str:
    return pieces[0].path if len(pieces) == 1 else ""


def _advice(interleaved: bool, label: Callable[[], str]) -> str:
    if not interleaved:
        return "set data.duplicates = first, last or latest_by:COLUMN"
    if column := label():
        return f"column {column!r} tells them apart: set data.symbol_column = {column}"
    return (
        "if contracts or sides are interleaved here, name the column that tells them apart in "
        "data.symbol_column; trades and quotes need `foxhunt prepare PATH OUT --bars 1m`"
    )

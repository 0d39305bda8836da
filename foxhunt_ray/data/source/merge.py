"""Rows of one symbol from several files to one series: sorted, repeated rows dropped, conflicts refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import DataError

_T = TypeVar("_T", np.int64, np.float64)
_MANY = 0.03  # share of conflicting rows above which it is no accident of collection


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one symbol from one file, in the file's order.

    Attributes:
        path: the file.
        ts_event: int64 [n], UTC nanoseconds.
        columns: float64 [n] each.
    """

    path: str
    ts_event: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]


def order_of(ts_event: NDArray[np.int64]) -> str:
    """How stamps (int64 [n]) follow each other: "ascending", "newest first" or "unordered"."""
    steps = np.diff(ts_event)
    if (steps >= 0).all():
        return "ascending"
    return "newest first" if (steps <= 0).all() else "unordered"


def merge(symbol: str, pieces: Sequence[Piece]) -> tuple[Piece, int]:
    """One piece with strictly increasing stamps, and how many exact duplicates were dropped.

    Args:
        symbol: for messages.
        pieces: at least one, all with the same columns.

    Raises:
        DataError: rows with one stamp and different values.
    """
    ts_event = _joined([p.ts_event for p in pieces])
    columns = {name: _joined([p.columns[name] for p in pieces]) for name in pieces[0].columns}
    order = np.arange(len(ts_event))
    if order_of(ts_event) != "ascending":
        order = np.argsort(ts_event, kind="stable")
        ts_event = ts_event[order]
        columns = {name: values[order] for name, values in columns.items()}
    repeats = np.flatnonzero(np.diff(ts_event) == 0) + 1
    differs = {name: _unequal(values[repeats - 1], values[repeats]) for name, values in columns.items()}
    conflicts = repeats[np.any([np.zeros(len(repeats), dtype=bool), *differs.values()], axis=0)]
    if len(conflicts):
        row = int(conflicts[0])
        name = next(name for name in columns if differs[name][np.searchsorted(repeats, row)])
        sources = [_source(pieces, int(order[at])) for at in (row - 1, row)]
        found = _difference(name, columns[name][row - 1 : row + 1], sources)
        raise DataError(f"{symbol} at {iso(int(ts_event[row]))}: {found}; {_advice(ts_event, conflicts)}")
    if len(repeats):
        kept = np.delete(np.arange(len(ts_event)), repeats)
        ts_event, columns = ts_event[kept], {name: values[kept] for name, values in columns.items()}
    return Piece(pieces[0].path, ts_event, columns), len(repeats)


def _joined(parts: Sequence[NDArray[_T]]) -> NDArray[_T]:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _unequal(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.bool_]:
    differ: NDArray[np.bool_] = (left != right) & ~(np.isnan(left) & np.isnan(right))
    return differ


def _source(pieces: Sequence[Piece], row: int) -> str:
    ends = np.cumsum([len(p.ts_event) for p in pieces])
    return pieces[int(np.searchsorted(ends, row, side="right"))].path


def _difference(name: str, values: NDArray[np.float64], sources: Sequence[str]) -> str:
    if sources[0] == sources[1]:
        return f"{name} is both {values[0]:.10g} and {values[1]:.10g} in {sources[0]}"
    return f"{name} is {values[0]:.10g} in {sources[0]} but {values[1]:.10g} in {sources[1]}"


def _advice(ts_event: NDArray[np.int64], rows: NDArray[np.int64]) -> str:
    stamps = len(np.unique(ts_event[rows]))
    message = f"{stamps} stamp{'s' * (stamps > 1)} with rows that differ"
    if len(rows) > _MANY * len(ts_event):
        return (
            f"{message}: if trades, contracts or sides are interleaved here, name the column that tells them "
            "apart in data.symbol_column, or aggregate them to bars first"
        )
    return f"{message}; keep one row a stamp"

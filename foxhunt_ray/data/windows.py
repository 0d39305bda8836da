"""Which rows end a valid window of one symbol.

A window is L consecutive rows of one symbol inside one segment (a maximal run of steps <= max_gap), named by
the row of its last input bar, its *end*. Nothing here looks at chunks or files, so a window never depends on
how the data were stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.split import Span

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SymbolIndex:
    """What the plan must know of a symbol's n rows.

    Attributes:
        ts_event: int64 [n], increasing, UTC ns.
        segment_first: int64 [k], first row of each segment; the first is 0.
        bad_rows: int64 [m], rows where an input is missing.
        target_missing: int64 [q], rows whose target is not known (missing price, gap or end of data).
    """

    ts_event: Rows
    segment_first: Rows
    bad_rows: Rows
    target_missing: Rows


@dataclass(frozen=True, eq=False)
class Times:
    """When the rows of all symbols are; one object in the store, whose arrays processes share.

    Attributes:
        stamps: int64 [n], UTC nanoseconds, one symbol after another.
        begin: int64 [S], the first row of each symbol.
        marks: of each symbol what ``SymbolIndex`` holds beside the stamps.
    """

    stamps: Rows
    begin: Rows
    marks: tuple[tuple[Rows, Rows, Rows], ...]

    @property
    def index(self) -> tuple[SymbolIndex, ...]:
        """What the window plan must know of each symbol."""
        parts = zip(np.split(self.stamps, self.begin[1:]), self.marks, strict=True)
        return tuple(SymbolIndex(stamps, *marks) for stamps, marks in parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in (self.stamps, self.begin, *(m for three in self.marks for m in three)))


def window_ends(
    index: SymbolIndex,
    span: Span | None,
    *,
    context_length: int,
    stride: int,
    horizon: int,
    known_target: bool = True,
) -> Rows:
    """End rows (int64, increasing) of the valid windows of one symbol.

    Args:
        index: the symbol's rows.
        span: the split that the last input bar must lie in and the target must precede; None = all rows.
        context_length: L, rows of input.
        stride: distance between window starts, counted from the segment's first row.
        horizon: rows from the last input row to the target row.
        known_target: leave out windows whose target is not known.
    """
    n = len(index.ts_event)
    ends = _complete(index, n, context_length, stride)
    if known_target:
        hidden = np.zeros(n, bool)
        hidden[index.target_missing] = True
        ends = ends[~hidden[ends]]
    if span is not None:
        first, stop = np.searchsorted(index.ts_event, [span.start, span.end])
        target = np.minimum(ends + horizon, n - 1)
        ends = ends[(ends >= first) & (target < stop)]
    return ends


def longest_run(index: SymbolIndex, span: Span | None) -> int:
    """Most rows in a row without a gap or a missing input, up to the end of the span; look-back counts."""
    stop = len(index.ts_event) if span is None else int(np.searchsorted(index.ts_event, span.end))
    start, end = _runs(index, stop)
    return int((end - start).max(initial=0))


def _complete(index: SymbolIndex, n: int, length: int, stride: int) -> Rows:
    """Last rows of the windows that lie inside a segment and hold no bad row."""
    start, end = _runs(index, n)
    anchor = index.segment_first[np.searchsorted(index.segment_first, start, side="right") - 1]
    first = anchor - (anchor - start) // stride * stride  # the first start on the segment's grid in the run
    count = np.maximum((end - length - first) // stride + 1, 0)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    ends: Rows = np.repeat(first + length - 1, count) + stride * nth
    return ends


def _runs(index: SymbolIndex, n: int) -> tuple[Rows, Rows]:
    """First row, and the row after the last, of each run of rows below ``n`` without a gap or a bad row."""
    edges = np.unique(np.concatenate([index.segment_first, index.bad_rows, index.bad_rows + 1, [n]]))
    edges = edges[edges <= n]
    start, end = edges[:-1], edges[1:]
    good = ~np.isin(start, index.bad_rows)
    return start[good], end[good]

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
    row = np.arange(n, dtype=np.int64)
    start = row - context_length + 1
    segment = _latest(index.segment_first, n)
    last_bad = _latest(index.bad_rows, n)
    valid = (start >= segment) & (start > last_bad) & ((start - segment) % stride == 0)
    if known_target:
        valid[index.target_missing] = False
    if span is not None:
        target_row = np.minimum(row + horizon, max(n - 1, 0))
        inside = (index.ts_event >= span.start) & (index.ts_event[target_row] < span.end)
        valid &= inside
    return np.flatnonzero(valid)


def _latest(rows: Rows, n: int) -> Rows:
    """For each of n rows, the largest entry of ``rows`` that is not after it; -1 where there is none."""
    mark = np.full(n, -1, np.int64)
    mark[rows] = rows
    return np.maximum.accumulate(mark)

"""The interval of bars, and files whose intervals differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, refusal
from foxhunt_ray.data.source.merge import Piece

_REGULAR = ((20, 0.5), (10, 0.8))  # from so many rows on so large a share of usual steps shows an interval
_ROWS = 100_000  # of a piece that are looked at
_SHORT = 0.05  # share of steps that may be shorter than an interval's short ones: single rows out of step
_Interval = tuple[int, int]  # usual step, short step [ns]


def usual_step_of(ts_event: NDArray[np.int64]) -> int:
    """The most common step between neighbouring stamps that differ [ns]; 0 = there is none."""
    return most_common(_steps(ts_event))[0]


def most_common(values: NDArray[np.int64]) -> tuple[int, int]:
    """The most common of some numbers, and how often it is there; zeros of none.

    Of equally common ones it is the smallest.

    Args:
        values: int64 [n], in any order.
    """
    if not len(values):
        return 0, 0
    found, counts = np.unique(values, return_counts=True)
    at = counts.argmax()
    return int(found[at]), int(counts[at])


def interval_findings(pieces: Mapping[str, Sequence[Piece]]) -> list[Finding]:
    """A refusal that names two files, if bars of different intervals lie side by side.

    Args:
        pieces: the pieces of each symbol.
    """
    by_file: dict[str, _Interval] = {}
    for piece in (p for of in pieces.values() for p in of):
        interval = _interval(piece.ts_event)
        if interval[0]:  # symbols of one file share its interval; a rarely traded one lacks rows
            by_file[piece.path] = min(by_file.get(piece.path, interval), interval)
    if not by_file:
        return []
    finest, fine_path = min((interval, path) for path, interval in by_file.items())
    coarse = [(interval, path) for path, interval in by_file.items() if not _alike(finest, interval)]
    if not coarse:
        return []
    interval, path = coarse[0]
    files = len(coarse)
    text = (
        f"bars of {span(finest[0])} in {fine_path}, but of {span(interval[0])} in {path}"
        f"{f' and {files - 1} more files' if files > 1 else ''}"
    )
    return [
        refusal(text, count=files, action="give the files of one interval only, such as --data 'FOLDER/*1m*'")
    ]


def split_by_interval(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces of one symbol in groups of one interval, the group with the most rows first.

    Pieces that show no interval, such as those of a few rows, are in the first group; none is in no group.
    """
    intervals = [_interval(p.ts_event) for p in pieces]
    finest: list[_Interval] = []
    for interval in sorted(i for i in intervals if i[0]):
        if not any(_alike(interval, f) for f in finest):
            finest.append(interval)
    groups = [next((f for f in finest if i[0] and _alike(i, f)), None) for i in intervals]
    rows = Counter[_Interval | None]()
    for piece, group in zip(pieces, groups, strict=True):
        rows[group] += len(piece.ts_event)
    order: list[_Interval | None] = [*sorted(finest, key=lambda f: -rows[f])] or [None]
    return [[p for p, g in zip(pieces, groups, strict=True) if (g or order[0]) == f] for f in order]


def span(nanoseconds: int) -> str:
    """A length of time in the largest unit that divides it: 1 h, 90 min."""
    for unit, size in (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("min", 60 * 10**9), ("s", 10**9)):
        if nanoseconds >= size and nanoseconds % size == 0:
            return f"{nanoseconds // size:,} {unit}"
    return f"{nanoseconds / 10**9:.9g} s"


def _interval(ts_event: NDArray[np.int64]) -> _Interval:
    """Usual and short step of a piece; zeros where it shows none."""
    steps = _steps(ts_event[:_ROWS])
    usual, count = most_common(steps)
    needed = next((share for rows, share in _REGULAR if len(ts_event) >= rows), None)
    if not count or needed is None or count < needed * len(steps):
        return 0, 0
    short = int(_SHORT * len(steps))
    return usual, int(np.partition(steps, short)[short])


def _steps(ts_event: NDArray[np.int64]) -> NDArray[np.int64]:
    steps = np.abs(np.diff(ts_event))
    return steps[steps > 0]


def _alike(one: _Interval, other: _Interval) -> bool:
    """Whether the coarser of two has steps about as short as the finer: then it only lacks rows."""
    fine, coarse = sorted((one, other))
    return coarse[1] <= 1.5 * fine[0]

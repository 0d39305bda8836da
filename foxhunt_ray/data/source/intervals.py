"""The interval of bars, and files whose intervals differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, refusal
from foxhunt_ray.data.source.merge import Piece

_FEWEST = 20  # rows that show an interval
_REGULAR = 0.5  # share of steps that are the usual one, below which there is no interval
_Interval = tuple[int, int]  # usual step, smallest step [ns]


def usual_step_of(ts_event: NDArray[np.int64]) -> int:
    """The most common step between neighbouring stamps that differ [ns]; 0 = there is none."""
    values, counts = _steps(ts_event)
    return int(values[counts.argmax()]) if len(values) else 0


def interval_findings(pieces: Mapping[str, Sequence[Piece]]) -> list[Finding]:
    """A refusal that names two files, if bars of different intervals lie side by side.

    Args:
        pieces: the pieces of each symbol.
    """
    by_file: dict[str, _Interval] = {}
    for piece in (p for of in pieces.values() for p in of if len(p.ts_event) >= _FEWEST):
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
    """The pieces of one symbol in groups of one interval, the group with the most rows first."""
    groups: list[tuple[_Interval, list[Piece]]] = []
    for piece in pieces:
        interval = _interval(piece.ts_event)
        for at, members in groups:
            if not interval[0] or not at[0] or _alike(at, interval):
                members.append(piece)
                break
        else:
            groups.append((interval, [piece]))
    ordered = sorted((of for _, of in groups), key=lambda of: -sum(len(p.ts_event) for p in of))
    return ordered


def span(nanoseconds: int) -> str:
    """A length of time in the largest unit that divides it: 1 h, 90 min."""
    for unit, size in (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("min", 60 * 10**9), ("s", 10**9)):
        if nanoseconds >= size and nanoseconds % size == 0:
            return f"{nanoseconds // size:,} {unit}"
    return f"{nanoseconds / 10**9:.9g} s"


def _interval(ts_event: NDArray[np.int64]) -> _Interval:
    """Usual and smallest step of a piece; zeros where no step is usual."""
    values, counts = _steps(ts_event)
    if not len(values) or counts.max() < _REGULAR * counts.sum():
        return 0, 0
    return int(values[counts.argmax()]), int(values[0])


def _steps(ts_event: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    steps = np.abs(np.diff(ts_event))
    return np.unique(steps[steps > 0], return_counts=True)


def _alike(one: _Interval, other: _Interval) -> bool:
    """Whether the coarser of two has steps about as short as the finer: then it only lacks rows."""
    fine, coarse = sorted((one, other))
    return coarse[1] <= 1.5 * fine[0]

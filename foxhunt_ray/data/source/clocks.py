"""Which side of its bar a stamp marks, and whether the time columns of a file agree."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.source.columns import plain
from foxhunt_ray.data.split import iso

Ints = NDArray[np.int64]
_HOUR = 3600 * 10**9
_ENDS = re.compile(r"((bar|candle|window|period|interval)_)?(close|end)(_?(time|ts|at|date))?")
# Clocks of recorders and book-keepers: they may differ from the market's.
_RECORDERS = re.compile(
    r"(ts_)?(recv|init|received|collected|collection|created|updated|inserted|fetched|download(ed)?|ingest(ed)?"
    r"|local|parse|load(ed)?)(_?(time|timestamp|ts|at|date))?"
)


def is_recorder(name: str) -> bool:
    """Whether a time column is by its name that of the program which recorded the rows."""
    return _RECORDERS.fullmatch(plain(name)) is not None


def stamp_side(name: str, option: str) -> str:
    """Which side of its bar a stamp marks, "start" or "end": by ``data.stamp``, else by the column's name."""
    if option != "auto":
        return option
    return "end" if _ENDS.fullmatch(plain(name)) else "start"


def to_bar_start(ns: Ints, step: int) -> Ints:
    """Stamps at the end of bars moved to their start.

    Args:
        ns: int64 [n], UTC nanoseconds; ends such as 23:59:59.999 count as the full second after.
        step: length of the bars [ns].
    """
    second = 10**9
    return -(-ns // second) * second - step if step >= second else ns - step


def clock_findings(
    first: Ints, other: Ints, *, names: tuple[str, str], step: int, file: str
) -> list[Finding]:
    """Whether another time column of a file agrees with the one that is used.

    Args:
        first: int64 [n], the stamps that are used, UTC nanoseconds.
        other: int64 [n], those of the other column.
        names: of the two columns.
        step: usual step of the bars [ns].
        file: for the message.
    """
    apart = other - first
    used, name = names
    if not apart.any():
        return [note(f"agrees with {used} in every row", file=file, column=name)]
    if len(np.unique(other)) <= max(1, len(other) // 50):
        ahead = int(other.min() - first.max()) / _HOUR
        clock = f"; {ahead:.1f} h after the last bar, which another clock would explain" if ahead > 1 else ""
        return [note(f"the same for many rows, so no stamp of bars{clock}", file=file, column=name)]
    if is_recorder(name) or ((apart >= 0).all() and (apart <= step).all()):
        kind = "the recorder's clock" if is_recorder(name) else "the end of each bar"
        return [note(f"is {kind}; {used} is used", file=file, column=name)]
    differing = np.flatnonzero(apart)
    row = int(differing[0])
    shift = int(apart[0])
    if (apart == shift).all() and shift % (_HOUR // 4) == 0:
        text = f"lies {shift / _HOUR:g} h from {used} in every row: two clocks"
    else:
        text = f"differs from {used} in {len(differing):,} of {len(first):,} rows, first in row {row}: "
        text += f"{iso(int(other[row]))} against {iso(int(first[row]))}"
    return [refusal(text, file=file, column=name, action="name the right one in data.time_column")]

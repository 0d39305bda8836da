"""One canonical form for market data: symbol, ts_event (int64 UTC ns), float64 columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.discover import FileEntry


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
        notes: one line for each thing that was detected or assumed.
        dropped: rows left out, by reason.
    """

    bars: tuple[Bars, ...]
    files: tuple[FileEntry, ...] = ()
    notes: tuple[str, ...] = ()
    dropped: dict[str, int] | None = None

"""What the stamps of all files together show: zones, intervals, and rows that are no bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, refusal
from foxhunt_ray.data.source.events import event_findings
from foxhunt_ray.data.source.intervals import interval_findings
from foxhunt_ray.data.source.merge import Piece
from foxhunt_ray.data.source.reading import Reading


def stamp_findings(readings: Sequence[Reading], pieces: Mapping[str, Sequence[Piece]]) -> Iterator[Finding]:
    """Files that differ in zone or interval.

    Args:
        readings: every file that was read.
        pieces: the pieces of each symbol.
    """
    yield from _one_clock(readings)
    yield from interval_findings(pieces)


def no_bars(readings: Sequence[Reading]) -> tuple[list[Finding], set[str]]:
    """A refusal for every kind of file whose rows are events and not bars, and the symbols in such files."""
    found: list[Finding] = []
    symbols: set[str] = set()
    kinds: dict[tuple[str, ...], list[Reading]] = {}
    for reading in readings:
        kinds.setdefault(tuple(reading.layout.roles.values), []).append(reading)
    for names, alike in kinds.items():
        stamps: dict[str, list[NDArray[np.int64]]] = {}
        for reading in alike:
            for symbol, piece in reading.pieces.items():
                stamps.setdefault(symbol, []).append(piece.ts_event)
        merged = {s: np.sort(np.concatenate(parts)) for s, parts in stamps.items()}
        if events := event_findings(names, merged, file=alike[0].layout.path):
            found += events
            symbols |= merged.keys()
    return found, symbols


def _one_clock(readings: Sequence[Reading]) -> Iterator[Finding]:
    """Text with and without a zone; of timestamps the footers tell it."""
    naive = next((r.layout for r in readings if r.stamps.zone_assumed and r.layout.time_kind == "text"), None)
    aware = next((r.layout for r in readings if not r.stamps.zone_assumed), None)
    if naive and aware:
        yield refusal(
            f"stamps have no time zone in {naive.path} ({naive.times[0]}) but one in {aware.path} "
            f"({aware.times[0]})",
            action="set data.timezone to the zone of the first, UTC if it is that",
        )

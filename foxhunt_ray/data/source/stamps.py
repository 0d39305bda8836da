"""What the stamps of all files together show: zones, sides of bars, intervals, rows that are no bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.parquet import opened
from foxhunt_ray.data.source.clocks import clock_findings, stamp_side, to_bar_start
from foxhunt_ray.data.source.events import event_findings
from foxhunt_ray.data.source.intervals import span, usual_step_of
from foxhunt_ray.data.source.layout import Layout
from foxhunt_ray.data.source.merge import Piece
from foxhunt_ray.data.source.reading import Reading
from foxhunt_ray.data.source.timestamps import to_utc_ns
from foxhunt_ray.data.source.zones import local_time_findings
from foxhunt_ray.errors import DataError

_SAMPLE_ROWS = 10_000


def stamp_findings(readings: Sequence[Reading], config: Config) -> Iterator[Finding]:
    """Local time, files that differ in zone, and time columns that disagree.

    Args:
        readings: every file that was read.
        config: ``data.time_column`` settles which of two columns is right.
    """
    yield from _one_clock(readings)
    naive = [r for r in readings if r.stamps.zone_assumed]
    if naive:
        stamps = {s: p.ts_event for r in reversed(naive) for s, p in r.pieces.items()}
        yield from local_time_findings(stamps, where=naive[0].layout.path)
    if not config.data.time_column:
        yield from _other_clocks(readings, config)


def at_bar_start(
    readings: Sequence[Reading], pieces: Mapping[str, Sequence[Piece]], config: Config
) -> tuple[dict[str, list[Piece]], list[Finding]]:
    """The pieces with stamps at the start of their bars, and what was said of it."""
    ends = {r.layout.path for r in readings if bar_side(r.layout, config) == "end"}
    if not ends:
        return {s: list(of) for s, of in pieces.items()}, []
    longest = max((p for of in pieces.values() for p in of), key=lambda p: len(p.ts_event))
    step = usual_step_of(longest.ts_event)

    def moved(piece: Piece) -> Piece:
        return replace(piece, ts_event=to_bar_start(piece.ts_event, step)) if piece.path in ends else piece

    text = f"stamps of {len(ends)} files mark the end of a bar and are moved to its start, by {span(step)}"
    said = note(text, count=len(ends), action="set data.stamp = start if they mark the start")
    return {s: [moved(p) for p in of] for s, of in pieces.items()}, [said]


def bar_side(layout: Layout, config: Config) -> str:
    """Which side of its bar each stamp of a file marks, "start" or "end"."""
    return "start" if layout.prepared else stamp_side(layout.times[0], config.data.stamp)


def _other_clocks(readings: Sequence[Reading], config: Config) -> Iterator[Finding]:
    """The other time columns of the first file of each kind, held against the one that is used."""
    seen: set[tuple[str, ...]] = set()
    for reading in readings:
        used, *others = reading.layout.times
        if reading.layout.times in seen or len(reading.pieces) != 1:
            continue
        seen.add(reading.layout.times)
        first, path = next(iter(reading.pieces.values())).ts_event, reading.layout.path
        for name in others:
            other = _stamps_of(path, name, config)
            if other is not None and len(other) == len(first):
                step = usual_step_of(first)
                yield from clock_findings(first, other, names=(used, name), step=step, file=path)


def _stamps_of(path: str, name: str, config: Config) -> NDArray[np.int64] | None:
    """Another time column of a file, UTC ns; None if it cannot be read as one."""
    try:
        with opened(path) as parquet:
            column = parquet.read(columns=[name]).column(name)
        return to_utc_ns(
            column, timezone=config.data.timezone, where=f"{path}: {name}", dates=config.data.dates
        ).ns
    except DataError:  # expiry dates and the like, with missing values; or a damaged page
        return None


def no_bars(readings: Sequence[Reading]) -> tuple[list[Finding], set[str]]:
    """A refusal for every kind of file whose rows are events and not bars, and the symbols in such files."""
    found: list[Finding] = []
    symbols: set[str] = set()
    kinds: dict[tuple[str, ...], list[Reading]] = {}
    for reading in readings:
        kinds.setdefault(tuple(reading.layout.roles.values), []).append(reading)
    for names, alike in kinds.items():
        first = {s: np.sort(p.ts_event[:_SAMPLE_ROWS]) for s, p in alike[0].pieces.items()}
        if not event_findings(names, first, file=alike[0].layout.path):
            continue  # what begins as bars is not sorted whole to be counted
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

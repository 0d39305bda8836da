"""What was detected or assumed while reading, one short sentence each; ``foxhunt check`` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source.reading import Reading
from foxhunt_ray.data.source.stamps import bar_side

_Columns = Mapping[str, NDArray[np.float64]]


def reading_findings(readings: Sequence[Reading], symbols: Sequence[str], config: Config) -> list[Finding]:
    """How time, symbols and columns of the files were understood.

    Args:
        readings: every file that was read.
        symbols: the symbols kept, sorted.
        config: ``data.timezone`` and ``data.time_column`` were applied.
    """
    found = [note(f"time: {text}") for text in _counted(_time(r, config) for r in readings)]
    dates = {f.text: replace(f, file=r.layout.path) for r in reversed(readings) for f in r.stamps.findings}
    found += dates.values()
    if config.data.timezone and not any(config.data.timezone in r.stamps.reading for r in readings):
        found.append(note("data.timezone is not used: the stamps carry their zone"))
    sources = _counted(r.layout.symbol_source for r in readings)
    found.append(note(f"symbols: {len(symbols)} from {' and '.join(sources)}: {listed(symbols)}"))
    for order in ("newest first", "unordered"):
        if count := sum(r.order == order for r in readings):
            share = f"{count} of {len(readings)} files" if len(readings) > 1 else "the file is"
            found.append(note(f"order: {share} {order}; rows sorted by time", count=count))
    left_out = dict.fromkeys(c for r in readings for c in r.layout.roles.left_out)
    if left_out:
        found.append(note(f"columns left out: {listed(list(left_out))}", count=len(left_out)))
    return found + _counts(readings)


def value_findings(columns: Mapping[str, _Columns], scratch: Scratch) -> list[Finding]:
    """Columns that hold nothing or never change.

    Args:
        columns: symbol to its columns, float64 [n] each.
        scratch: their memory, handed back after each column.
    """
    constant: list[str] = []
    empty: list[str] = []
    for name in dict.fromkeys(name for of in columns.values() for name in of):
        spans = {s: _span(of[name]) for s, of in columns.items() if name in of}
        scratch.release()
        without = [s for s, span in spans.items() if span is None]
        known = [span for span in spans.values() if span is not None]
        if without:
            empty.append(name if not known else f"{name} (of {listed(without)})")
        if known and min(low for low, _ in known) == max(high for _, high in known):
            constant.append(f"{name} = {known[0][0]:g}")
    found = [note(f"columns without any value: {listed(empty)}", count=len(empty))] if empty else []
    if constant:
        found.append(note(f"columns that never change: {listed(constant)}", count=len(constant)))
    return found


def resolved(readings: Sequence[Reading]) -> dict[str, Any]:
    """How the files were understood, a list of the distinct readings each, as JSON holds it."""
    roles = [r.layout.roles.values for r in readings]
    return {
        "time": _distinct({"column": r.layout.times[0], "read_as": r.stamps.reading} for r in readings),
        "symbol": _distinct(r.layout.symbol_source for r in readings),
        "columns": _distinct(roles),
        "left_out": _distinct(list(r.layout.roles.left_out) for r in readings),
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _counts(readings: Sequence[Reading]) -> list[Finding]:
    """Values that were read as missing, by reason."""
    total: dict[str, Counter[str]] = {}
    for reading in readings:
        for column, reasons in reading.counts.items():
            for reason, count in reasons.items():
                total.setdefault(reason, Counter())[column] += count
    return [
        warning(
            f"{reason} values read as missing: {listed([f'{name} {n:,}' for name, n in by.items()])}",
            column=next(iter(by)) if len(by) == 1 else "",
            count=by.total(),
        )
        for reason, by in total.items()
    ]


def _time(reading: Reading, config: Config) -> str:
    used, *others = reading.layout.times
    text = f"column {used}, {reading.stamps.reading}"
    if others and not config.data.time_column:
        text += f"; chosen over {listed(others)} (data.time_column decides)"
    text += "; set data.timezone if it is local time" if reading.stamps.zone_assumed else ""
    return (
        text
        if bar_side(reading.layout, config) == "end"
        else f"{text}; taken as the start of each bar (data.stamp)"
    )


def _counted(texts: Iterable[str]) -> list[str]:
    counts = Counter(texts)
    total = counts.total()
    return [text if n == total else f"{text} ({n} of {total} files)" for text, n in counts.items()]


def _span(values: NDArray[np.float64]) -> tuple[float, float] | None:
    # fmin and fmax pass over NaN without a copy of what is left
    low = float(np.fmin.reduce(values)) if len(values) else np.nan
    return None if np.isnan(low) else (low, float(np.fmax.reduce(values)))

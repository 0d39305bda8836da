"""What was detected or assumed while reading, one short sentence each; ``foxhunt check`` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.source.reading import Reading
from foxhunt_ray.data.source.symbols import ends_in_date

_Columns = Mapping[str, NDArray[np.float64]]


def reading_notes(readings: Sequence[Reading], symbols: Sequence[str], config: Config) -> list[str]:
    """How time, symbols and columns of the files were understood.

    Args:
        readings: every file that was read.
        symbols: the symbols kept, sorted.
        config: ``data.timezone`` and ``data.time_column`` were applied.
    """
    notes = [f"time: {text}" for text in _counted(_time(r, config) for r in readings)]
    if config.data.timezone and not any(config.data.timezone in r.clock for r in readings):
        notes.append("data.timezone is not used: the stamps carry their zone")
    sources = _counted(r.layout.symbol_source for r in readings)
    notes.append(f"symbols: {len(symbols)} from {' and '.join(sources)}: {listed(symbols)}")
    if sources == ["file names"] and len(symbols) > 1 and all(map(ends_in_date, symbols)):
        notes.append(
            "symbols: file names end in dates, and each file counts as its own symbol; put the files of one "
            "symbol under a folder symbol=NAME to join them"
        )
    for order in ("newest first", "unordered"):
        if count := sum(r.order == order for r in readings):
            notes.append(f"order: {_share(count, len(readings))} {order}; rows sorted by time")
    left_out = dict.fromkeys(c for r in readings for c in r.layout.roles.left_out)
    if left_out:
        notes.append(f"columns left out: {listed(list(left_out))}")
    fixed = dict.fromkeys(c for r in readings for c in r.layout.roles.integer_prices)
    if fixed:
        notes.append(
            f"integer prices ({listed(list(fixed))}) are read as they are; a fixed scale does not change "
            "log returns"
        )
    infinite: Counter[str] = Counter()
    for reading in readings:
        infinite.update(reading.infinite)
    if infinite:
        notes.append(
            f"infinite values read as missing: {listed([f'{n} {count}' for n, count in infinite.items()])}"
        )
    return notes


def value_notes(columns: Mapping[str, _Columns]) -> list[str]:
    """Columns that hold nothing or never change.

    Args:
        columns: symbol to its columns, float64 [n] each; every symbol has the same names.
    """
    constant: list[str] = []
    empty: list[str] = []
    for name in next(iter(columns.values())):
        spans = {s: _span(of[name]) for s, of in columns.items()}
        without = [s for s, span in spans.items() if span is None]
        known = [span for span in spans.values() if span is not None]
        if without:
            empty.append(name if not known else f"{name} (of {listed(without)})")
        if known and min(low for low, _ in known) == max(high for _, high in known):
            constant.append(f"{name} = {known[0][0]:g}")
    notes = [f"columns without any value: {listed(empty)}"] if empty else []
    return notes + ([f"columns that never change: {listed(constant)}"] if constant else [])


def _time(reading: Reading, config: Config) -> str:
    used, *others = reading.layout.times
    text = f"column {used}, {reading.clock}"
    if others and not config.data.time_column:
        text += f"; chosen over {listed(others)} (data.time_column decides)"
    return text + ("; set data.timezone if it is local time" if reading.zone_assumed else "")


def _counted(texts: Iterable[str]) -> list[str]:
    counts = Counter(texts)
    total = counts.total()
    return [text if n == total else f"{text} ({n} of {total} files)" for text, n in counts.items()]


def _share(count: int, total: int) -> str:
    return f"{count} of {total} files" if total > 1 else "the file is"


def _span(values: NDArray[np.float64]) -> tuple[float, float] | None:
    finite = values[~np.isnan(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else None

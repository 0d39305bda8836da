"""Values as the words and columns that people read: ASCII, one line, never wider than asked.

Names that come from files are data: ``shown`` makes control and direction characters visible, and callers
put the text into ``rich.text.Text``, which reads no markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size

_GAP = "  "


@dataclass(frozen=True)
class Column:
    """A column of a table; where not all fit, those with the largest ``rank`` go first."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False


def table_lines(columns: Sequence[Column], *, width: int) -> list[str]:
    """A header line and a line a row, each at most ``width`` cells wide."""
    sizes = [max(map(cell_len, (c.title, *c.cells))) for c in columns]
    kept = sorted(range(len(columns)), key=lambda i: columns[i].rank)  # stable: the leftmost of equals stays
    while len(kept) > 1 and sum(sizes[i] for i in kept) + len(_GAP) * (len(kept) - 1) > width:
        kept.pop()
    kept.sort()
    rows = zip(*([columns[i].title, *columns[i].cells] for i in kept), strict=True)
    lefts = [columns[i].left for i in kept]
    widths = [sizes[i] for i in kept]
    lines = [
        _GAP.join(_pad(cell, size, left) for cell, size, left in zip(row, widths, lefts, strict=True))
        for row in rows
    ]
    return [shown(line.rstrip(), width) for line in lines]


def number(value: Any, spec: str = "") -> str:
    """``value`` as text: numbers by ``spec``, null or not finite as "-", other things as they are."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return shown(str(value), 16)
    return format(value, spec or ("d" if isinstance(value, int) else ".3g"))


def shown(text: str, limit: int = 60) -> str:
    """``text`` on one line of at most ``limit`` cells: escapes for what does not print, dots for a cut."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return line if cell_len(line) <= limit else set_cell_size(line, max(0, limit - 3)) + "..."


def duration(seconds: float) -> str:
    """``seconds`` in the two units that matter: 42 s, 3 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """A title for each dotted path: its last part, or the whole path where two parts are the same."""
    unique = list(dict.fromkeys(paths))
    last = [p.rpartition(".")[2] for p in unique]
    return {p: shown(p if last.count(name) > 1 else name, 24) for p, name in zip(unique, last, strict=True)}


def _pad(cell: str, size: int, left: bool) -> str:
    space = " " * (size - cell_len(cell))
    return cell + space if left else space + cell

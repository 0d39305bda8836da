"""Which columns of the files can help a model, and which take turns; what is left out is named.

Columns that never change, that repeat another one or that are mostly missing are left out. Two columns of
which one has a value where the other has none, such as the long and short stops of an indicator, belong
together: neither costs a window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.schema import Bars

_SELDOM = 0.01  # share of rows at which two columns that take turns may be both missing
_OFTEN, _TURNS = 0.2, 0.5  # if they overlap: shares of rows at which each is missing, and just one is there
_LONG = 0.25  # share of rows before a first value that is worth a word
_SAMPLE = 256  # values of a symbol that are compared before two columns are
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Screened:
    """The columns that are worth having.

    Attributes:
        kept: their names, in order.
        holed: those of them with a missing value.
        pairs: first and second of two that take turns, and whether both can have a value at a row.
        findings: what was left out, by name.
    """

    kept: tuple[str, ...]
    holed: frozenset[str]
    pairs: tuple[tuple[str, str, bool], ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Facts:
    """Share of missing values, smallest and largest value as float32, and a sample, over all symbols."""

    missing: float
    low: float
    high: float
    sample: bytes


def screen_columns(
    bars: Sequence[Bars], names: Sequence[str], *, max_missing: float, always: Collection[str] = ()
) -> Screened:
    """The columns that can help.

    Args:
        bars: every symbol; each has all columns. What is judged is judged by these rows.
        names: the columns, in order.
        max_missing: largest share of missing values of a column that takes no turns.
        always: those of the columns that are kept whatever they hold.
    """
    facts = {name: _facts(bars, name) for name in names}
    free = {name: of for name, of in facts.items() if name not in always}
    constant = [name for name, of in free.items() if not of.low < of.high]
    twice = _repeated(bars, {name: of for name, of in free.items() if of.low < of.high})
    rest = [name for name in names if name not in constant and name not in twice]
    pairs = _pairs(bars, {name: facts[name].missing for name in rest})
    paired = {name for pair in pairs for name in pair[:2]}
    sparse = [
        name for name in rest if name in free and name not in paired and facts[name].missing > max_missing
    ]
    kept = tuple(name for name in rest if name not in sparse)
    left_out = _left_out(
        [name if facts[name].missing < 1 else f"{name} (empty)" for name in constant],
        [f"{name} = {first}" for name, first in twice.items()],
        [f"{name} ({facts[name].missing:.0%})" for name in sparse],
        max_missing,
    )
    holed = frozenset(name for name in kept if facts[name].missing)
    return Screened(kept, holed, tuple(pairs), (*left_out, *_turns_found(pairs)))


def warm_up_findings(bars: Sequence[Bars], names: Sequence[str], own: Collection[str]) -> list[Finding]:
    """A warning of the column that begins last, if that costs more than a quarter of all rows.

    Args:
        bars: every symbol.
        names: the columns whose missing values invalidate windows.
        own: those of the user's own function.
    """
    rows = sum(len(one.ts_event) for one in bars)
    late = {name: sum(_first_value(one.columns[name]) for one in bars) for name in names}
    name = max(late, key=lambda n: late[n], default="")
    if not name or late[name] <= _LONG * rows:
        return []
    text = f"its first value comes after {late[name]:,} of {rows:,} rows, and no window begins before"
    remedy = "a shorter look-back in its function" if name in own else f'features.exclude=["{name}"]'
    return [warning(text, column=name, count=late[name], action=f"{remedy} keeps the earlier rows")]


def _facts(bars: Sequence[Bars], name: str) -> _Facts:
    missing, rows, low, high, sample = 0, 0, np.inf, -np.inf, b""
    for one in bars:
        values = one.columns[name]
        if len(values):
            missing, rows = missing + int(_missing(values).sum()), rows + len(values)
            low, high = np.fmin(low, np.fmin.reduce(values)), np.fmax(high, np.fmax.reduce(values))
            sample += np.nan_to_num(values[:: max(1, len(values) // _SAMPLE)] + 0.0).tobytes()
    with np.errstate(over="ignore"):
        return _Facts(missing / max(rows, 1), float(np.float32(low)), float(np.float32(high)), sample)


def _repeated(bars: Sequence[Bars], facts: Mapping[str, _Facts]) -> dict[str, str]:
    """Columns that equal an earlier one in every row of every symbol, with the name of that one."""
    alike: dict[bytes, list[str]] = {}
    found: dict[str, str] = {}
    for name, of in facts.items():
        earlier = alike.setdefault(of.sample, [])
        first = next((other for other in earlier if _equal(bars, name, other)), None)
        if first is None:
            earlier.append(name)
        else:
            found[name] = first
    return found


def _equal(bars: Sequence[Bars], one: str, other: str) -> bool:
    return all(np.array_equal(b.columns[one], b.columns[other], equal_nan=True) for b in bars)


def _pairs(bars: Sequence[Bars], missing: Mapping[str, float]) -> list[tuple[str, str, bool]]:
    """Pairs of columns that take turns, a column in one at most, and whether the two overlap."""
    free = [name for name, share in missing.items() if _SELDOM < share < 1]
    found = []
    while free:
        first, *free = free
        for second in free:
            # Missing together in the warm-up and hardly ever after it.
            if missing[first] + missing[second] > 1 + _LONG + _SELDOM:
                continue
            overlaps = _overlap(bars, first, second)
            if overlaps is False or (overlaps and min(missing[first], missing[second]) >= _OFTEN):
                found.append((first, second, overlaps))
                free.remove(second)
                break
    return found


def _overlap(bars: Sequence[Bars], first: str, second: str) -> bool | None:
    """Whether two columns that take turns have both a value in some rows; None if they take no turns."""
    late, rows, neither, both = 0, 0, 0, 0
    for one in bars:
        here, there = ~_missing(one.columns[first]), ~_missing(one.columns[second])
        begun = _first_true(here | there)
        late, rows = late + begun, rows + len(here) - begun
        neither += int((~here & ~there)[begun:].sum())
        both += int((here & there).sum())
    if not rows or late > _LONG * (late + rows):
        return None
    overlaps = both > _SELDOM * rows
    if neither > _SELDOM * rows or (overlaps and rows - neither - both < _TURNS * rows):
        return None
    return overlaps


def _missing(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where there is no value that float32 holds."""
    missing: NDArray[np.bool_] = ~(np.abs(values) <= _LARGEST)
    return missing


def _first_value(values: NDArray[np.float64]) -> int:
    return _first_true(~_missing(values))


def _first_true(mask: NDArray[np.bool_]) -> int:
    """Number of the first row that is true; the number of rows if none is."""
    return int(mask.argmax()) if mask.any() else len(mask)


def _left_out(
    constant: Sequence[str], twice: Sequence[str], sparse: Sequence[str], max_missing: float
) -> Iterator[Finding]:
    # All names: what is not said here is never said.
    if constant:
        yield note(f"inputs that never change are left out: {', '.join(constant)}", count=len(constant))
    if twice:
        yield note(f"inputs that repeat another one are left out: {', '.join(twice)}", count=len(twice))
    if sparse:
        yield warning(
            f"inputs missing in more than {max_missing:.0%} of rows are left out: {', '.join(sparse)}",
            count=len(sparse),
            action="raise features.max_missing to keep them",
        )


def _turns_found(pairs: Sequence[tuple[str, str, bool]]) -> list[Finding]:
    told = ", ".join(f"{first} / {second}" for first, second, _ in pairs)
    text = f"columns that take turns, 0 where missing, with a flag: {told}"
    return [note(text, count=len(pairs))] if pairs else []

"""Which inputs the model sees: computed ones that the columns allow, and columns of the files by name.

What cannot help is left out and named: columns that never change, that are mostly missing, or that repeat
another one. Two columns of which one has a value where the other has none, such as the long and short stops
of an indicator, do not cost every window: each counts as 0 where it is missing, and a flag says which is
there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.features import GROUPS, MISSING, feature, says_nothing
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError

_Mask = NDArray[np.bool_]
_OFTEN, _SELDOM = 0.2, 0.01  # shares of rows: a column is missing often; two columns both are, or are not
_LONG = 0.25  # share of rows before a column's first value that is worth a word


@dataclass(frozen=True)
class Inputs:
    """The inputs of a model.

    Attributes:
        names: the F inputs, in order.
        optional: those whose missing values do not invalidate a window; they count as 0 after scaling.
        findings: what was left out, and why.
    """

    names: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def choose_inputs(bars: Sequence[Bars], config: Config, *, more: Sequence[str] = ()) -> Inputs:
    """The inputs that these bars allow.

    Args:
        bars: every symbol; an input must exist in all of them.
        config: its ``features`` section and ``target.price``.
        more: columns that are inputs whatever the config says, those of the user's own function.

    Raises:
        DataError: a column or a group asked for by name is not there, or nothing is left.
    """
    computed, findings = _computed(bars, config)
    named = dict.fromkeys([*_matching(bars, config.features.columns), *more])
    raw = [name for name in named if name not in computed]
    price, rows = config.target.price, [len(one.ts_event) for one in bars]
    excluded = _excluded([n for n in (*computed, *raw) if n not in more], config.features.exclude)
    computed = [name for name in computed if name not in excluded]
    masks = {name: _missing(bars, name, price) for name in raw if name not in excluded}
    for name in set(config.features.columns) & masks.keys():  # asked for by its own name, not by a pattern
        if masks[name].all():
            raise DataError(
                f"features.columns has {name!r}, a column without any finite value in {len(masks[name]):,} "
                "rows; fill it or leave it out"
            )
    pairs = _complementary(masks, rows)
    raw, left_out = _worth_having(bars, masks, config, more, {n for pair in pairs for n in pair})
    findings += left_out
    pairs = [pair for pair in pairs if set(pair) <= set(raw)]
    optional, flags = {name for pair in pairs for name in pair}, _flags(masks, pairs)
    if optional:
        told = [f"{first} / {second}" for first, second in pairs]
        text = f"columns that take turns, 0 where missing, with a flag: {listed(told)}"
        findings.append(note(text, count=len(told)))
    if config.features.missing == "mask":
        masks |= {name: _missing(bars, name, price) for name in computed}
        holed = [name for name in (*computed, *raw) if name not in optional and masks[name].any()]
        optional |= set(holed)
        flags += [name + MISSING for name in holed]
    _require_free(bars, flags)
    names = [*computed, *raw, *flags]
    if not names:
        raise DataError("no input feature is left: set features.groups or features.columns")
    findings += _warm_up({name: masks[name] for name in raw if name not in optional}, rows, more)
    return Inputs(tuple(names), frozenset(optional), tuple(findings))


def bad_rows(rows: NDArray[np.float32], names: Sequence[str], optional: Collection[str]) -> NDArray[np.int64]:
    """Rows (int64) at which an input that is not optional is missing.

    Args:
        rows: float32 [n, F].
        names: of the F inputs.
        optional: those that may be missing.
    """
    bad = np.zeros(len(rows), np.bool_)
    for number, name in enumerate(names):
        if name not in optional:
            bad |= np.isnan(rows[:, number])
    return np.flatnonzero(bad)


def _computed(bars: Sequence[Bars], config: Config) -> tuple[list[str], list[Finding]]:
    wanted = [g for g in GROUPS if g in config.features.groups or "all" in config.features.groups]
    names: list[str] = []
    absent: list[str] = []
    for group in wanted:
        fits = [n for n in GROUPS[group] if _is_useful(n, bars, config)]
        if not fits and group in config.features.groups:
            raise DataError(
                f"features.groups has {group!r}, but the columns of {bars[0].symbol} do not allow it: "
                f"{', '.join(sorted(bars[0].columns))}; remove the group or add its columns"
            )
        absent += [n for n in GROUPS[group] if n not in fits]
        names += fits
    return names, [note(f"features: no {', '.join(absent)} (columns absent or constant)")] if absent else []


def _is_useful(name: str, bars: Sequence[Bars], config: Config) -> bool:
    """Whether every symbol's columns allow it and it varies in one at least (another may be too short)."""
    if any(says_nothing(one, name) for one in bars):
        return False
    varies = False
    for one in bars:
        # Once it varies somewhere, the others need only have the columns: a row or two shows that.
        seen = one if not varies else Bars(one.symbol, one.ts_event[:2], _head(one))
        values = feature(seen, name, config.target.price)
        if values is None:
            return False
        finite = values[np.isfinite(values)]
        varies = varies or bool(len(finite) and np.ptp(finite) > 0)
    return varies


def _head(bars: Bars) -> dict[str, NDArray[np.float64]]:
    return {name: values[:2] for name, values in bars.columns.items()}


def _matching(bars: Sequence[Bars], patterns: Sequence[str]) -> list[str]:
    shared = [c for c in bars[0].columns if all(c in one.columns for one in bars)]
    found: list[str] = []
    for pattern in patterns:
        hits = [c for c in shared if _fits(c, pattern)]
        if not hits:
            raise DataError(
                f"features.columns has {pattern!r}, but no numeric column of every symbol is called so; "
                f"columns: {', '.join(shared)}"
            )
        found += [h for h in hits if h not in found]
    return found


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _excluded(names: Sequence[str], patterns: Sequence[str]) -> set[str]:
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            raise DataError(
                f"features.exclude has {pattern!r}, but no input is called so; inputs: {listed(names)}"
            )
    return {name for name in names if any(_fits(name, pattern) for pattern in patterns)}


def _missing(bars: Sequence[Bars], name: str, price: str) -> _Mask:
    """Where an input has no value that float32 holds, all symbols one after another."""
    found = [feature(one, name, price) for one in bars]
    with np.errstate(over="ignore"):
        return np.concatenate([~np.isfinite(v.astype(np.float32)) for v in found if v is not None])


def _begun(missing: _Mask, rows: Sequence[int]) -> _Mask:
    """Which rows are at or after the first value of their own symbol."""
    parts = np.split(~missing, np.cumsum(rows)[:-1])
    return np.concatenate([np.logical_or.accumulate(part) for part in parts])


def _complementary(masks: Mapping[str, _Mask], rows: Sequence[int]) -> list[tuple[str, str]]:
    """Pairs of columns that take turns, each column in one pair at most."""
    half = {name: mask for name, mask in masks.items() if _SELDOM < mask.mean() < 1}
    pairs: list[tuple[str, str]] = []
    taken: set[str] = set()
    for number, first in enumerate(half):
        for second in list(half)[number + 1 :]:
            if {first, second} & taken or not _take_turns(half[first], half[second], rows):
                continue
            pairs.append((first, second))
            taken |= {first, second}
    return pairs


def _take_turns(one: _Mask, other: _Mask, rows: Sequence[int]) -> bool:
    """Whether just one has a value once either has begun; or one at least, and both are often missing."""
    begun = _begun(one & other, rows)
    first, second = one[begun], other[begun]
    if len(first) < 2 or (first & second).mean() > _SELDOM:
        return False
    least = min(first.mean(), second.mean())
    alone = (first ^ second).mean() >= 1 - _SELDOM and least > _SELDOM
    return bool(alone or min(one.mean(), other.mean()) > _OFTEN)


def _flags(masks: Mapping[str, _Mask], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """One flag for a pair that excludes each other, two for one that overlaps."""
    found = []
    for first, second in pairs:
        both = float((~masks[first] & ~masks[second]).mean())
        found += [first + MISSING] if both <= _SELDOM else [first + MISSING, second + MISSING]
    return found


def _require_free(bars: Sequence[Bars], flags: Sequence[str]) -> None:
    taken = sorted({flag for flag in flags for one in bars if flag in one.columns})
    if taken:
        raise DataError(
            f"{taken[0]!r} is a column, and also the name of the flag that says where "
            f"{taken[0].removesuffix(MISSING)!r} is missing; rename the column"
        )


def _worth_having(
    bars: Sequence[Bars],
    masks: Mapping[str, _Mask],
    config: Config,
    more: Sequence[str],
    paired: Collection[str],
) -> tuple[list[str], list[Finding]]:
    """The columns that can help, and a finding for each kind of the others."""
    constant, sparse, twice = [], [], []
    seen: dict[bytes, str] = {}
    kept: list[str] = []
    for name, mask in masks.items():
        digest = hashlib.blake2b(digest_size=16)
        low, high = np.inf, -np.inf
        for one in bars:
            values = one.columns[name]
            digest.update(np.where(np.isnan(values), np.nan, values + 0.0).tobytes())
            finite = values[np.isfinite(values)]
            if len(finite):
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        first = seen.setdefault(digest.digest(), name)
        if name in more:
            kept.append(name)
        elif low >= high:
            constant.append(name)
        elif mask.mean() > config.features.max_missing and name not in paired:
            sparse.append(f"{name} ({mask.mean():.0%})")
        elif first != name:
            twice.append(f"{name} = {first}")
        else:
            kept.append(name)
    return kept, list(_left_out(constant, sparse, twice))


def _left_out(constant: Sequence[str], sparse: Sequence[str], twice: Sequence[str]) -> Iterator[Finding]:
    if constant:
        yield note(f"inputs that never change are left out: {listed(constant)}", count=len(constant))
    if sparse:
        yield warning(
            f"inputs that are mostly missing are left out: {listed(sparse)}",
            count=len(sparse),
            action="raise features.max_missing to keep them",
        )
    if twice:
        yield note(f"inputs that repeat another one are left out: {listed(twice)}", count=len(twice))


def _warm_up(masks: Mapping[str, _Mask], rows: Sequence[int], more: Sequence[str]) -> list[Finding]:
    """The column that begins last, if that costs many windows."""
    if not masks:
        return []
    before = {name: int((~_begun(mask, rows)).sum()) for name, mask in masks.items()}
    name = max(before, key=lambda n: before[n])
    if before[name] <= _LONG * sum(rows):
        return []
    text = f"its first value comes after {before[name]:,} of {sum(rows):,} rows, and no window begins before"
    remedy = "a shorter look-back in its function" if name in more else f'features.exclude=["{name}"]'
    return [warning(text, column=name, action=f"{remedy} keeps the earlier rows")]

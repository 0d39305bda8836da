"""Which inputs the model sees: computed ones that the columns allow, and columns of the files by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.features import COMPUTED, GROUPS, MISSING, feature_blocks, says_nothing
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.globs import fits
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.screening import screen_columns, warm_up_findings
from foxhunt_ray.data.source.columns import is_id
from foxhunt_ray.errors import DataError


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
    features, price = config.features, config.target.price
    computed, findings = _computed(bars, config)
    excluded = _excluded([n for n in (*COMPUTED, *_shared(bars)) if n not in more], features.exclude)
    computed = [name for name in computed if name not in excluded]
    named, ids = _matching(bars, features.columns)
    if ids := [name for name in ids if name not in excluded]:
        text = f"ids and flags that the globs of features.columns do not take: {', '.join(ids)}"
        findings.append(note(text, count=len(ids), action="name one in full there if it is an input"))
    raw = [name for name in dict.fromkeys([*named, *more]) if name not in excluded]
    if taken := [name for name in raw if _is_taken(bars, name, price)]:
        raw = [name for name in raw if name not in taken]
        text = f"columns called like computed inputs are not used: {', '.join(taken)}"
        findings.append(warning(text, count=len(taken), action="rename them in the files to use them"))
    _require_values(bars, [name for name in raw if name in features.columns])
    screened = screen_columns(bars, raw, max_missing=features.max_missing, always=more)
    findings += screened.findings
    optional = {name for pair in screened.pairs for name in pair[:2]}
    flags = [n + MISSING for first, second, both in screened.pairs for n in (first, second)[: 1 + both]]
    if features.missing == "mask":
        holed = [name for name in computed if any(_is_missing(one, name, price) for one in bars)]
        holed += [name for name in screened.kept if name in screened.holed and name not in optional]
        optional |= set(holed)
        flags += [name + MISSING for name in holed]
    _require_free(bars, flags)
    if not computed and not screened.kept:
        why = "".join(f"; {f.text}" for f in findings)
        raise DataError(f"no input feature is left{why}: set features.groups or features.columns")
    findings += warm_up_findings(bars, [name for name in screened.kept if name not in optional], more)
    return Inputs((*computed, *screened.kept, *flags), frozenset(optional), tuple(findings))


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
                f"features.groups has {group!r}, but the bars of {bars[0].symbol} do not allow it, or it "
                f"never changes: columns {', '.join(sorted(bars[0].columns))}; remove the group or add its "
                "columns"
            )
        absent += [n for n in GROUPS[group] if n not in fits]
        names += fits
    return names, [note(f"features: no {', '.join(absent)} (columns absent or constant)")] if absent else []


def _is_useful(name: str, bars: Sequence[Bars], config: Config) -> bool:
    """Whether every symbol's columns allow it and it varies in one at least (another may be too short)."""
    if any(says_nothing(one, name) for one in bars):
        return False
    if not all(_is_allowed(one, name, config.target.price) for one in bars):
        return False
    return any(_varies(one, name, config.target.price) for one in bars)


def _is_allowed(bars: Bars, name: str, price: str) -> bool:
    """Whether other columns give it, whatever else is called so."""
    first = bars.part(0, 1)
    first.columns.pop(name, None)
    return all(values is not None for _, values in feature_blocks(first, name, price))


def _varies(bars: Bars, name: str, price: str) -> bool:
    low, high = np.inf, -np.inf
    for _, values in feature_blocks(bars, name, price):
        known = values[np.isfinite(values)] if values is not None else np.empty(0)
        low, high = min(low, known.min(initial=np.inf)), max(high, known.max(initial=-np.inf))
        if low < high:
            return True
    return False


def _is_missing(bars: Bars, name: str, price: str) -> bool:
    """Whether a computed input is missing anywhere."""
    return any(v is None or not np.isfinite(v).all() for _, v in feature_blocks(bars, name, price))


def _is_taken(bars: Sequence[Bars], name: str, price: str) -> bool:
    """Whether a column of the files has the name of an input that other columns give."""
    return name in COMPUTED and any(_is_allowed(one, name, price) for one in bars)


def _require_values(bars: Sequence[Bars], names: Sequence[str]) -> None:
    """Refuse a column that was asked for by its own name, not by a pattern, and is empty."""
    for name in names:
        if all(np.isnan(one.columns[name]).all() for one in bars):
            raise DataError(
                f"features.columns has {name!r}, a column without any finite value in "
                f"{sum(len(one.ts_event) for one in bars):,} rows; fill it or leave it out"
            )


def _shared(bars: Sequence[Bars]) -> list[str]:
    return [c for c in bars[0].columns if all(c in one.columns for one in bars)]


def _matching(bars: Sequence[Bars], patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns asked for, and the ids that only a glob asks for."""
    shared = _shared(bars)
    found: list[str] = []
    for pattern in patterns:
        hits = [c for c in shared if fits(c, pattern)]
        if not hits:
            raise DataError(
                f"features.columns has {pattern!r}, but no numeric column of every symbol is called so; "
                f"columns: {', '.join(shared)}"
            )
        found += [h for h in hits if h not in found]
    ids = [name for name in found if is_id(name) and name not in patterns]
    return [name for name in found if name not in ids], ids


def _excluded(names: Sequence[str], patterns: Sequence[str]) -> set[str]:
    for pattern in patterns:
        if not any(fits(name, pattern) for name in names):
            columns = [name for name in names if name not in COMPUTED]
            raise DataError(
                f"features.exclude has {pattern!r}, but no input is called so; columns: {listed(columns)}"
            )
    return {name for name in names if fits(name, *patterns)}


def _require_free(bars: Sequence[Bars], flags: Sequence[str]) -> None:
    taken = sorted({flag for flag in flags for one in bars if flag in one.columns})
    if taken:
        raise DataError(
            f"{taken[0]!r} is a column, and also the name of the flag that says where "
            f"{taken[0].removesuffix(MISSING)!r} is missing; rename the column"
        )

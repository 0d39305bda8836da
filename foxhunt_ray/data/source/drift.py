"""Schema drift: in which columns and kinds the files of one data set differ, over all files.

A difference that changes nothing is a note; one that only the user can decide is a refusal that names two
files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.source.layout import Layout

_TEXTS = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class DriftPlan:
    """What follows from the differences.

    Attributes:
        columns: names used inside of the columns to read of every file, missing where a file lacks them.
        table: every column with ``kinds`` (arrow type to number of files), ``missing_in`` (number of files)
            and ``examples`` (arrow type or "missing" to one file); holds only what JSON does.
    """

    columns: tuple[str, ...]
    table: tuple[dict[str, Any], ...]


@dataclass(frozen=True, eq=False)
class _Group:
    """Files that have one schema.

    Attributes:
        layout: of the first of them.
        count: how many there are.
        values: name used inside of every numeric column to its arrow type.
        types: the same, and every other column by its name in the file.
    """

    layout: Layout
    count: int
    values: dict[str, str]
    types: dict[str, str]

    @property
    def path(self) -> str:
        return self.layout.path


_Test = Callable[[_Group], bool]


def drift(layouts: Sequence[Layout], config: Config) -> tuple[DriftPlan, list[Finding]]:
    """What differs between the files, and which columns are read.

    While something is refused the plan goes on provisionally, with missing values for missing columns.

    Args:
        layouts: of the files that are read, those of symbols not asked for left out.
        config: ``data.missing_columns`` and ``timezone`` are used.
    """
    groups = _groups(layouts)
    lacking = _lacking(groups)
    dropped = {name for names in lacking.values() for name in names}
    kept = dict.fromkeys(name for g in groups for name in g.values if not _is_empty(name, groups))
    if config.data.missing_columns == "drop":
        kept = dict.fromkeys(name for name in kept if name not in dropped)
    findings = [
        *_stamps(groups, config.data.timezone),
        *_symbols(groups),
        *_missing(groups, lacking, config.data.missing_columns),
        *_spellings(groups),
        *_incompatible(groups),
        *_widened(groups),
    ]
    return DriftPlan(tuple(kept), tuple(_table(groups))), findings


def _groups(layouts: Iterable[Layout]) -> list[_Group]:
    """The distinct schemas in the order of their first files."""
    members: defaultdict[object, list[Layout]] = defaultdict(list)
    for layout in layouts:
        members[layout.types, layout.times, layout.symbol_column, bool(layout.melt)].append(layout)
    groups = []
    for first, *others in members.values():
        by_raw = dict(first.types)
        values = {name: by_raw.get(raw, "") for name, raw in first.roles.values.items()}
        melted = {raw for fields in first.melt.values() for raw in fields.values()}
        inside = {*first.roles.values.values(), *melted}
        types = values | {raw: kind for raw, kind in by_raw.items() if raw not in inside}
        groups.append(_Group(first, 1 + len(others), values, types))
    return groups


def _names(groups: Sequence[_Group], *, numeric: bool) -> list[str]:
    return list(dict.fromkeys(name for g in groups for name in (g.values if numeric else g.types)))


def _files(groups: Sequence[_Group], test: _Test) -> str:
    """How many of all files are in the groups that pass: ``3 of 12 files``."""
    total = sum(g.count for g in groups)
    return f"{sum(g.count for g in groups if test(g))} of {total} files"


def _pair(groups: Sequence[_Group], one: _Test, other: _Test) -> tuple[_Group, _Group] | None:
    first, second = next(filter(one, groups), None), next(filter(other, groups), None)
    return (first, second) if first and second else None


def _table(groups: Sequence[_Group]) -> Iterator[dict[str, Any]]:
    for name in _names(groups, numeric=False):
        kinds: defaultdict[str, int] = defaultdict(int)
        examples: dict[str, str] = {}
        for group in groups:
            kinds[group.types.get(name, "missing")] += group.count
            examples.setdefault(group.types.get(name, "missing"), group.path)
        missing = kinds.pop("missing", 0)
        yield {"column": name, "kinds": dict(kinds), "missing_in": missing, "examples": examples}


def _stamps(groups: Sequence[_Group], timezone: str) -> Iterator[Finding]:
    """Stamps of different kinds, with and without a zone, or under different names."""
    for group in groups[1:]:
        first, its = groups[0].layout, group.layout
        if first.time_kind != its.time_kind:
            yield refusal(
                f"the stamp is a {first.time_kind} in {first.path} ({first.times[0]}) but a {its.time_kind} "
                f"in {its.path} ({its.times[0]})",
                action="write one kind, or read them apart",
            )
            break
    if not timezone and (pair := _pair(groups, lambda g: _zoned(g) is False, lambda g: _zoned(g) is True)):
        naive, aware = (g.layout for g in pair)
        yield refusal(
            f"stamps have no time zone in {naive.path} ({naive.times[0]}) but one in {aware.path} "
            f"({aware.times[0]})",
            action="set data.timezone to the zone of the first, UTC if it is that",
        )
    names = dict.fromkeys(g.layout.times[0] for g in groups)
    if len(names) > 1:
        parts = [f"{name} in {_files(groups, lambda g, n=name: g.layout.times[0] == n)}" for name in names]  # type: ignore[misc]
        yield note(f"the stamp is column {', '.join(parts)}")


def _zoned(group: _Group) -> bool | None:
    """Whether stamps of the type timestamp carry a zone; None for every other type."""
    layout = group.layout
    return "tz=" in group.types.get(layout.times[0], "") if layout.time_kind == "timestamp" else None


def _symbols(groups: Sequence[_Group]) -> Iterator[Finding]:
    pair = _pair(groups, lambda g: bool(g.layout.symbol_column), lambda g: not g.layout.symbol_column)
    if pair:
        has, lacks = pair
        yield refusal(
            f"{has.path} has the symbol in column {has.layout.symbol_column!r}, {lacks.path} has no such "
            f"column, like {_files(groups, lambda g: not g.layout.symbol_column)}",
            action="add it there, or read them apart",
        )


def _lacking(groups: Sequence[_Group]) -> dict[tuple[bool, ...], list[str]]:
    """Numeric columns that some groups do not hold at all, by which groups these are."""
    respelt = {name for *_, first, name in _respelt(groups) for name in (first, name)}
    lacking: defaultdict[tuple[bool, ...], list[str]] = defaultdict(list)
    for name in _names(groups, numeric=True):
        absent = tuple(name not in g.types for g in groups)
        if any(absent) and name not in respelt and not _is_empty(name, groups):
            lacking[absent].append(name)
    return lacking


def _missing(
    groups: Sequence[_Group], lacking: dict[tuple[bool, ...], list[str]], choice: str
) -> Iterator[Finding]:
    for absent, names in lacking.items():
        without = {id(g) for g, gone in zip(groups, absent, strict=True) if gone}
        lacks = next(g for g in groups if id(g) in without)
        has = next(g for g in groups if names[0] in g.types)
        share = _files(groups, lambda g: id(g) in without)  # noqa: B023
        column = f"column{'s' * (len(names) > 1)} {listed(names)}"
        if choice == "fill":
            yield note(f"{column}: missing values in {share}, which lack them, such as {lacks.path}")
        elif choice == "drop":
            yield note(f"{column}: left out, since {share} lack them, such as {lacks.path}")
        else:
            yield refusal(
                f"{column} missing here, in {share}; {has.path} has {'them' if len(names) > 1 else 'it'}",
                file=lacks.path,
                count=sum(g.count for g in groups if id(g) in without),
                action="set data.missing_columns = fill (missing values there) or drop (leave them out)",
            )


def _respelt(groups: Sequence[_Group]) -> Iterator[tuple[_Group, _Group, str, str]]:
    """Numeric columns of two files, never of one, whose names differ in capitals only."""
    homes: dict[str, tuple[_Group, str]] = {}
    for name in _names(groups, numeric=True):
        there = next(g for g in groups if name in g.values)
        here, first = homes.setdefault(name.lower(), (there, name))
        if first != name and not any(first in g.types and name in g.types for g in groups):
            yield here, there, first, name


def _spellings(groups: Sequence[_Group]) -> Iterator[Finding]:
    for here, there, first, name in _respelt(groups):
        yield refusal(
            f"is written {first!r} in {here.path}: the names differ in capitals only",
            file=there.path,
            column=name,
            action="give them one spelling, or read them apart",
        )


def _is_empty(name: str, groups: Sequence[_Group]) -> bool:
    """Whether a column counts as numeric only where it has not a single value, and is none elsewhere."""
    numeric = {g.values[name] for g in groups if name in g.values}
    return numeric == {"null"} and any(name in g.types and name not in g.values for g in groups)


def _incompatible(groups: Sequence[_Group]) -> Iterator[Finding]:
    """Columns that are numbers in some files and something else in others."""
    for name in _names(groups, numeric=True):
        if _is_empty(name, groups):
            continue
        other = next((g for g in groups if name in g.types and name not in g.values), None)
        one = next((g for g in groups if g.values.get(name, "null") != "null"), None)
        if one and other and other.types[name] != "null":
            yield refusal(
                f"holds {other.types[name]} here but {one.values[name]} in {one.path}",
                file=other.path,
                column=name,
                action="write one kind, or read them apart",
            )


def _widened(groups: Sequence[_Group]) -> Iterator[Finding]:
    """One note each on numbers, texts and stamps whose types differ without a consequence."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    numeric = set(_names(groups, numeric=True))
    for name in _names(groups, numeric=False):
        held = (g.values if name in numeric else g.types for g in groups)
        kinds = list(dict.fromkeys(types[name] for types in held if name in types))
        if len(kinds) > 1:
            found[_class(kinds, name in numeric)].append(f"{name} ({', '.join(kinds)})")
    texts = {
        "numbers": "numbers of different types are read as float64",
        "texts": "text is stored in different ways, which makes no difference",
        "stamps": "time columns of different types are read as nanoseconds",
    }
    for kind, text in texts.items():
        if found[kind]:
            yield note(f"{text}: {listed(found[kind])}", count=len(found[kind]))


def _class(kinds: Collection[str], numeric: bool) -> str:
    if all(kind in _TEXTS or (kind.startswith("dictionary<values=") and "string" in kind) for kind in kinds):
        return "texts"
    if all(kind.startswith(("timestamp", "date")) for kind in kinds):
        return "stamps"
    return "numbers" if numeric else ""

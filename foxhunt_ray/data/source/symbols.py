"""Whose rows these are: the symbol of each row by a column, of a whole file by folder, metadata or name.

A name counts only where it can be a symbol: ``part-0`` and ``2024`` cannot, and then the nearest folder that
can does. Intervals and dates at its ends are no part of the symbol.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.source.columns import Head, is_text, plain
from foxhunt_ray.errors import DataError

_NAMES = (
    *("symbol", "ticker", "sym", "tic", "instrument", "instrument_id", "code", "asset", "pair", "contract"),
    *("security", "ric", "isin", "stock", "name"),
)
# Best first: a folder contract=ESZ3 under symbol=ES tells apart what the upper one does not.
_HIVE_KEYS = ("contract", "symbol", "ticker", "sym", "instrument", "pair", "asset")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_METADATA_KEYS = ("instrument_id", "symbol", "ticker")
_BAR_TYPE = re.compile(r"(.+?)-\d+-[A-Z_]+-[A-Z]+-(EXTERNAL|INTERNAL)(@.*)?")

_DATE = (
    r"(?:19|20)\d\d(?:[-_.]?(?:Q[1-4]|(?:0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[-_.T ]?(?:[01]\d|2[0-3])[-_.:]?[0-5]\d(?:[-_.:]?[0-5]\d)?Z?)?)?))?|\d{10}|\d{13}"
)
_INTERVAL = (
    r"\d{1,3}(?:s|sec|m|min|mins|minutes?|h|hr|hours?|d|days?|w|wk|weeks?|mo|mon|months?)"
    r"|second|minute|hour|hourly|daily|weekly|monthly"
)
_PACKED = r"snappy|zstd|gzip|gz|lz4|brotli"
_PART = r"(?:part|chunk|file|data)[-_.]?\d.*"
_WORD = r"part|chunk|file|data|bars?|ohlcv?|candles|klines|prices|quotes|trades|ticks|history"
_TAIL = re.compile(rf"(.+?)[-_. ]+(?:{_DATE}|{_INTERVAL}|{_PACKED}|to)", re.IGNORECASE)
_HEAD = re.compile(rf"(?:{_DATE}|{_INTERVAL})[-_ ]+(.+)", re.IGNORECASE)
_PASSING = re.compile(rf"{_PART}|{_DATE}|{_INTERVAL}", re.IGNORECASE)
_GENERIC = re.compile(rf"{_PASSING.pattern}|{_WORD}", re.IGNORECASE)
_TICKER = re.compile(r"(?=.*[A-Z])[A-Z0-9^][A-Z0-9.^=-]{0,11}")

_REMEDY = "name data.symbol_column, or put the files of one symbol under a folder symbol=NAME"
_Names = dict[str, tuple[str, str]]


def symbol_column(
    schema: Any, wanted: str, *, path: str, times: Sequence[str] = (), head: Head | None = None
) -> str:
    """The column of an arrow schema that holds the symbol of each row; empty if there is none.

    Args:
        schema: arrow schema of the file.
        wanted: ``data.symbol_column``; empty = find it by name, else an index level that holds names.
        path: the file, for messages.
        times: columns that could be the stamp; the first one is.
        head: gives the first rows of the columns named; tells text of dates from text of symbols.

    Raises:
        DataError: ``wanted`` cannot hold names.
    """
    if wanted:
        if wanted not in schema.names:
            return ""
        dtype = schema.field(wanted).type
        if not (is_text(dtype) or pa.types.is_integer(dtype)):
            raise DataError(f"{path}: column {wanted!r} (data.symbol_column) holds {dtype}, not names")
        return wanted
    texts = [field.name for field in schema if is_text(field.type) and field.name not in times[:1]]
    usual = [name for name in texts if plain(name) in _NAMES]
    found = min(usual, key=lambda name: _NAMES.index(plain(name)), default="")
    if found or head is None:
        return found
    levels = index_levels(schema.metadata)
    return next((name for name in texts if name in levels and not _holds_dates(head, name)), "")


def index_levels(metadata: Mapping[bytes, bytes] | None) -> tuple[str, ...]:
    """Columns that were levels of a pandas index, by the metadata of a file's schema."""
    try:
        levels = json.loads((metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):
        return ()
    return tuple(level for level in levels if isinstance(level, str))


def stated_symbol(path: str, metadata: Mapping[bytes, bytes] | None, *, key: str = "") -> tuple[str, str]:
    """The symbol that hive folders or the schema's metadata state for a whole file, and which; else "", "".

    Args:
        path: the file.
        metadata: of its schema.
        key: the only hive key that counts, and no metadata; empty = the usual ones.

    Raises:
        DataError: the folder is the one for rows without a symbol.
    """
    pairs = (part.partition("=") for part in os.path.dirname(path).split(os.sep))
    hive = {name.lower(): unquote(value) for name, _, value in pairs if value}
    for name in [key.lower()] if key else _HIVE_KEYS:
        if hive.get(name) == _HIVE_NULL:
            raise DataError(
                f"{path}: folder {name}={_HIVE_NULL} holds rows without a symbol; fill or remove them"
            )
        if name in hive:
            return hive[name], "folder names"
    texts = {name.decode(errors="replace"): value for name, value in (metadata or {}).items() if not key}
    for name in _METADATA_KEYS:
        if value := texts.get(name):
            return value.decode(errors="replace"), f"metadata {name}"
    found = _BAR_TYPE.fullmatch(texts.get("bar_type", b"").decode(errors="replace"))
    return (found[1], "metadata bar_type") if found else ("", "")


def named_symbols(paths: Sequence[str], roots: Collection[str]) -> tuple[_Names, list[Finding]]:
    """Symbol and its source ("file names" or "folder names") of files that nothing but their path names.

    Args:
        paths: the files.
        roots: the folders that were given to be read; a folder below names a symbol more readily.

    Returns:
        By path, symbol and source; and what was joined, or cannot be decided, with the first file it is of.
    """
    members: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        members[os.path.dirname(path)].append(path)
    tops = [os.path.abspath(root).rstrip(os.sep) + os.sep for root in roots]
    names: _Names = {}
    homes: dict[str, tuple[str, ...]] = {}
    for folder, files in members.items():
        nameless = all(_is_generic(_stem(path)) for path in files)
        above = _symbol_folder(os.path.abspath(folder), tops) if nameless else ""
        home = _home(os.path.abspath(folder), above)
        for path in files:
            homes[path] = home
            names[path] = (os.path.basename(above), "folder names") if above else (_name(path), "file names")
    if len(paths) > 1 and all(s == "file names" and _is_generic(_stem(p)) for p, (_, s) in names.items()):
        text = "neither a column, a folder nor its name says which symbol it holds"
        return names, [refusal(text, file=paths[0], action=_REMEDY, count=len(paths))]
    names, findings = _told_apart(names, homes)
    return names, findings + _joined(names)


def mixed_intervals(symbols: Iterable[tuple[str, str]]) -> list[Finding]:
    """A refusal if names of files or folders give one symbol bars of several intervals.

    Args:
        symbols: path and symbol of each file.
    """
    first: dict[str, tuple[str, str, float]] = {}
    found: dict[str, Finding] = {}
    for path, symbol in symbols:
        token, seconds = _interval(path)
        if not token or not symbol:
            continue
        other, its, length = first.setdefault(symbol, (path, token, seconds))
        if seconds != length and symbol not in found:
            found[symbol] = refusal(
                f"{token} bars of {symbol} here, but {its} bars of it in {other}",
                file=path,
                action=f"give data.path a pattern that names one interval, such as **/*{its}*",
            )
    return [*found.values()]


def rows_by_symbol(column: Any, *, where: str) -> dict[str, NDArray[np.int64]]:
    """Row numbers (int64, ascending) of each symbol in an arrow column.

    Raises:
        DataError: a row without a symbol; ``where`` names file and column.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    nameless = encoded.null_count
    if not nameless and "" in names:
        nameless = int((encoded.indices.to_numpy() == names.index("")).sum())
    if nameless:
        raise DataError(f"{where}: {nameless} of {len(encoded)} rows have no symbol; fill or remove them")
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}


def _holds_dates(head: Head, name: str) -> bool:
    values = [v for v in head([name]).column(name).to_pylist() if v]
    return all(re.match(r"\d{1,4}[-/.]\d|\d{8}(\D|$)", value) for value in values)


def _stem(path: str) -> str:
    return os.path.basename(path).rsplit(".", 1)[0]


def _stripped(stem: str) -> str:
    """A name without the intervals and dates at its ends, of which something always remains."""
    for pattern in (_TAIL, _HEAD):
        while found := pattern.fullmatch(stem):
            stem = found[1]
    return stem


def _is_generic(stem: str) -> bool:
    """Whether a name is that of a part, an interval or a date, and of no symbol."""
    return bool(_GENERIC.fullmatch(stem) or _GENERIC.fullmatch(_stripped(stem)))


def _name(path: str) -> str:
    stem = _stem(path)
    return stem if _is_generic(stem) else _stripped(stem)


def _symbol_folder(folder: str, tops: Sequence[str]) -> str:
    """The nearest folder that can name a symbol: any below the roots, else one that looks like a ticker."""
    while (name := os.path.basename(folder)) and ("=" in name or _is_generic(name)):
        folder = os.path.dirname(folder)
    below = any(folder.startswith(top) for top in tops)
    return folder if below or _TICKER.fullmatch(name) else ""


def _home(folder: str, symbol_folder: str) -> tuple[str, ...]:
    """Folders of a file but those that part one symbol's files: hive keys, dates, intervals, and its own."""
    parts = os.path.dirname(symbol_folder).split(os.sep) if symbol_folder else []
    parts += folder[len(symbol_folder) :].split(os.sep)
    return tuple(part for part in parts if part and "=" not in part and not _PASSING.fullmatch(part))


def _told_apart(names: _Names, homes: Mapping[str, tuple[str, ...]]) -> tuple[_Names, list[Finding]]:
    """Refuses one name in several folders; until that is decided, the folder is part of the symbol."""
    first: dict[str, str] = {}
    clashes: dict[str, str] = {}
    for path, (symbol, _) in names.items():
        if homes[path] != homes[first.setdefault(symbol, path)]:
            clashes.setdefault(symbol, path)
    if not clashes:
        return names, []
    symbol, path = next(iter(clashes.items()))
    levels = zip(*(homes[p] for p in names), strict=False)
    shared = next(
        (at for at, level in enumerate(levels) if len(set(level)) > 1), min(map(len, homes.values()))
    )
    apart = {
        p: ("/".join([*homes[p][shared:], s]) if s in clashes else s, source)
        for p, (s, source) in names.items()
    }
    text = f"{path} has the same name in another folder, but may be another symbol"
    return apart, [refusal(text, file=first[symbol], action=_REMEDY, count=len(clashes))]


def _joined(names: _Names) -> list[Finding]:
    """One note on the files that share a symbol, and on what was taken off their names."""
    if not names:
        return []
    counts = {s: n for s, n in Counter(symbol for symbol, _ in names.values()).items() if n > 1}
    cut = [p for p, (symbol, source) in names.items() if source == "file names" and _stem(p) != _name(p)]
    parts = []
    if len(counts) == 1:
        parts = [f"{count} files of {symbol} joined" for symbol, count in counts.items()]
    elif counts:
        parts = [f"{sum(counts.values())} files joined to {len(counts)} symbols ({listed(list(counts))})"]
    if cut:
        before, _, after = _stem(cut[0]).partition(_name(cut[0]))
        parts.append(f"endings like {after} removed" if after else f"beginnings like {before} removed")
    text = ("" if counts else "file names: ") + "; ".join(parts)
    return [note(text, count=sum(counts.values()) or len(cut))] if parts else []


def _interval(path: str) -> tuple[str, float]:
    """The interval that the name of a file or of a folder gives, and its length [s]; "", 0 for none."""
    folders = [part.partition("=")[2] or part for part in os.path.dirname(path).split(os.sep)]
    tokens = [*reversed(re.split(r"[-_. ]+", _stem(path))), *reversed(folders)]
    token = next((t for t in tokens if re.fullmatch(_INTERVAL, t, re.IGNORECASE)), "")
    if not token:
        return "", 0
    count, unit = re.fullmatch(r"(\d*)(.*)", token).groups()  # type: ignore[union-attr]
    if unit == "M":
        unit = "mo"
    lengths = {"mo": 2_592_000, "m": 60, "s": 1, "h": 3600, "d": 86_400, "w": 604_800}
    unit = unit.lower()
    return token, int(count or 1) * next(s for u, s in lengths.items() if unit.startswith(u))

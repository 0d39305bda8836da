"""Which files there are, and an account of every one: read, skipped (why), refused (why).

Only the first and last bytes and the footer of a file are looked at here; a page that is damaged shows when
``read_market`` decodes it. Nothing is left out silently: a zero-byte file, which other readers pass over, is
refused.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

import pyarrow.parquet as pq

from foxhunt_ray.data.parquet import FAULTS, brief
from foxhunt_ray.errors import DataError

_SUFFIXES = (".parquet", ".parq", ".pq")
_MAGIC = b"PAR1"
UNFINISHED = "_unfinished.json"
"""Lies in a folder while ``prepare`` writes into it."""
_FOREIGN = (
    (b"version https://git-lfs", "a Git LFS pointer, not the data; run `git lfs pull`"),
    (b"PARE", "encrypted parquet; write it without encryption"),
    (b"ARROW1", "an Arrow or Feather file; write it as parquet"),
    (b"FEA1", "a Feather file; write it as parquet"),
    (b"\x1f\x8b", "compressed by gzip as a whole; unpack it"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
)


@dataclass(frozen=True)
class FileEntry:
    """One file under the data path and what becomes of it."""

    path: str
    status: Literal["read", "skipped", "refused"]
    reason: str = ""
    symbol: str = ""
    """Symbol from a hive folder ``symbol=X``; empty when the path does not say."""
    rows: int = 0
    """Rows by the footer; 0 unless the file is read."""
    damaged: bool = False
    """Whether it is no whole, readable parquet file with rows, which ``data.skip_bad`` passes over."""


def discover(paths: Sequence[str]) -> list[FileEntry]:
    """Every file that the paths stand for, sorted by path, each once, with what becomes of it.

    Args:
        paths: parquet files (any suffix), folders (searched to their depths), or globs of files and folders.

    Raises:
        DataError: a path does not exist, is a URI, matches nothing, or holds no parquet file at all.
    """
    found = {entry.path: entry for path in paths for entry in _discover(path)}
    unfinished = next((path for path in found if os.path.basename(path) == UNFINISHED), "")
    if unfinished:
        raise DataError(
            f"{os.path.dirname(unfinished)}: `foxhunt prepare` was not finished there; run the same "
            "command again"
        )
    return [found[path] for path in sorted(found)]


def _discover(path: str) -> list[FileEntry]:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        raise DataError(
            f"{path}: remote storage is not read yet; copy the files to a disk and give that path"
        )
    root = os.path.expanduser(path)
    if os.path.isfile(root):
        return [_examine(root)]
    found = sorted(_account(root, path).items())
    entries = [FileEntry(file, "skipped", why) if why else _examine(file) for file, why in found]
    if not entries:
        raise DataError(f"{path}: an empty folder; expected parquet files in it")
    if all(e.status == "skipped" for e in entries):
        names = listed([os.path.basename(e.path) for e in entries])
        raise DataError(
            f"no parquet file in {path}: found {len(entries)} other file{'s' * (len(entries) > 1)} "
            f"({names}); expected names that end in .parquet"
        )
    return entries


def listed(items: Sequence[str]) -> str:
    """The first eight items joined by commas, and how many more there are."""
    more = len(items) - 8
    return ", ".join(items[:8]) + (f" and {more} more" if more > 0 else "")


def _account(root: str, path: str) -> dict[str, str]:
    """Each file under a folder or glob, and why its name alone rules it out ("" if it does not)."""
    if os.path.isdir(root):
        return {file: _unfit(file, root) for file in _files_under(root)}
    if not any(c in path for c in "*?["):
        raise DataError(f"{path or 'an empty path'}: {_missing(root)}")
    tops = sorted(glob.glob(root, recursive=True))
    if not tops:
        raise DataError(f"{path}: the pattern matches nothing; give a file, a folder or another pattern")
    files: dict[str, str] = {}
    for top in tops:  # a pattern such as ** names a folder and again what lies in it
        for file in _files_under(top) if os.path.isdir(top) else (top,):
            files.setdefault(file, _unfit(file, os.path.dirname(top)))
    return files


def _missing(root: str) -> str:
    folder, name = os.path.split(root.rstrip("/"))
    beside = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    near = [os.path.join(folder, n) for n in difflib.get_close_matches(name, beside, n=2)]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"does not exist; give a parquet file, a folder or a glob{hint}"


def _files_under(folder: str) -> Iterator[str]:
    seen: set[str] = set()

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: the folder cannot be listed ({error.strerror})") from error

    for here, folders, names in os.walk(folder, followlinks=True, onerror=fail):
        real = os.path.realpath(here)
        if real in seen:  # a link back to a folder above
            folders.clear()
            continue
        seen.add(real)
        yield from (os.path.join(here, name) for name in names)


def _unfit(file: str, top: str) -> str:
    for part in os.path.relpath(file, top or ".").split(os.sep):
        if part.startswith((".", "_")):
            return f"hidden: {part} begins with {part[0]}"
    if os.path.exists(file) and not os.path.isfile(file):
        return "not a regular file"
    return "" if file.lower().endswith(_SUFFIXES) else "not parquet by its name"


def _examine(path: str) -> FileEntry:
    symbol = _hive_symbol(path)
    rows, fault = _probe(path)
    if fault:
        return FileEntry(path, "refused", fault, symbol, damaged=True)
    return FileEntry(path, "read", "", symbol, rows)


def _hive_symbol(path: str) -> str:
    """The value of the innermost ``symbol=X`` or ``ticker=X`` folder; leading zeros survive."""
    for part in reversed(os.path.dirname(path).split(os.sep)):
        key, _, value = part.partition("=")
        if key.lower() in ("symbol", "ticker"):
            return unquote(value)
    return ""


def _probe(path: str) -> tuple[int, str]:
    """Rows by the footer and "", or 0 and the reason for which the file cannot be read."""
    try:
        with open(path, "rb") as file:
            head = file.read(256)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - len(_MAGIC), 0))
            tail = file.read()
            if fault := _foreign(head, tail, size):
                return 0, fault
            parquet = pq.ParquetFile(file)
            rows = parquet.metadata.num_rows if len(parquet.schema_arrow) else 0
    except FAULTS as err:
        if isinstance(err, OSError) and err.errno:
            return 0, f"cannot be opened ({err.strerror})"
        return 0, f"its footer cannot be read ({brief(err)}); write or download it again"
    return rows, "" if rows else "holds no rows; remove it or write it again"


def _foreign(head: bytes, tail: bytes, size: int) -> str:
    """What a file is that does not begin and end as parquet does; "" for parquet."""
    if size == 0:
        return "zero bytes; write or download it again"
    if head.startswith(_MAGIC):
        if size >= 12 and tail == _MAGIC:
            return ""
        return f"truncated: {size} bytes that do not end in PAR1; write or download it again"
    for start, what in _FOREIGN:
        if head.startswith(start):
            return what
    if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "an HTML page; the download returned a page, not the data"
    if not re.search(rb"[\x00-\x08\x0e-\x1f]", head):  # no control characters
        return "text such as CSV; write it as parquet"
    return "does not begin with PAR1 as parquet does; write or download it again"

"""Rows of a data set in files of this machine, mapped read-only by its processes and kept for later runs.

``rows-KEY`` is an entry, ``.tmp-KEY`` one that is being written, and ``rows-KEY.lock`` an empty file that its
writer locks. The folder is looked over and changed under its ``.lock``; mapped files are locked as well.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.durable import sync
from foxhunt_ray.errors import ConfigError, DataError

_VERSION = 1  # of what an entry holds; its data files keep their names, since those are what is locked
_FEATURES, _TARGETS, _META = "features.f32", "targets.f32", "meta.json"
_PART = re.compile(r"(rows|\.tmp)-[0-9a-f]{16,}")
_Array = NDArray[np.float32]
_Shapes = dict[str, list[int]]  # of both data files
_Parts = Callable[[], Iterable[tuple[_Array, _Array]]]


@dataclass(frozen=True, eq=False)
class CachedRows:
    """``features`` [N, F] and ``targets`` [N, H], float32 in files; rows of all symbols one after another.

    The entry counts as in use until the last array of it is gone, views included. The arrays cannot be
    written; ``torch.from_numpy`` ignores that, and a write through it kills the process: copy first.
    """

    features: _Array
    targets: _Array


def default_folder() -> Path:
    """``$FOXHUNT_CACHE``, else ``foxhunt_ray`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    if chosen := os.environ.get("FOXHUNT_CACHE"):
        return Path(chosen).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG standard says to ignore a relative one
        base = Path.home() / ".cache"
    return base / "foxhunt_ray"


def open_rows(
    folder: Path, key: str, *, rows: int, n_features: int, n_targets: int, parts: _Parts, limit_bytes: int
) -> CachedRows:
    """Map the entry ``key``; where it is missing or damaged, one process makes it and the others wait.

    Args:
        folder: where entries are kept, on a disk of this machine; made if it does not exist.
        key: hex digest of the data and of all that its rows were made with, at least 16 digits.
        rows: N, at least 1, as are ``n_features``, F, and ``n_targets``, H.
        parts: yields float32 [n, F] and [n, H] of N rows in all; called only if the entry is made.
        limit_bytes: entries that nobody uses go, least recently used first, until the new one fits.

    Raises:
        ConfigError: the folder cannot be written, or the rows do not fit into the limit or on the disk.
        DataError: ``parts`` had another number of rows; nothing was kept.
    """
    assert _PART.fullmatch(f"rows-{key}") and min(rows, n_features, n_targets) > 0
    shapes = {_FEATURES: [rows, n_features], _TARGETS: [rows, n_targets]}
    need = 4 * sum(map(prod, shapes.values()))
    entry, draft = folder / f"rows-{key}", folder / f".tmp-{key}"
    with _storage(folder, need):
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder / f"rows-{key}.lock", need):
        with _locked(folder / ".lock", need), _storage(folder, need, draft):
            if found := _mapped(entry, shapes):
                return found
            for left in (entry, draft):  # an entry that is mapped all the same outlives its name
                shutil.rmtree(left, ignore_errors=True)
            _make_room(folder, need, limit_bytes)
            _allocate(draft, shapes)
        try:
            _write(draft, shapes, parts, need)
            with _locked(folder / ".lock", need), _storage(folder, need, draft):
                os.rename(draft, entry)
                sync(folder)
                made = _mapped(entry, shapes)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    assert made is not None
    return made


def _mapped(entry: Path, shapes: _Shapes) -> CachedRows | None:
    """The arrays of an entry that is whole and has these shapes; marks it as used now."""
    if _whole(entry) != shapes:
        return None
    os.utime(entry / _META)
    arrays = []
    for name, (rows, width) in shapes.items():
        with (entry / name).open("rb") as file:
            # The map keeps a duplicate of the descriptor, and so the lock, as long as an array of it lives;
            # nothing unlocks it by hand, since a forked child that has the map shares the lock.
            fcntl.flock(file, fcntl.LOCK_SH)
            arrays.append(np.asarray(np.memmap(file, np.float32, "r", shape=(rows, width))))
    return CachedRows(*arrays)


def _whole(entry: Path) -> _Shapes | None:
    """Shapes in an entry; None if it is missing, of another version or key, or its files have other sizes."""
    try:
        meta = json.loads((entry / _META).read_bytes())
        shapes: _Shapes = meta["shapes"]
        fits = all((entry / name).stat().st_size == 4 * prod(shapes[name]) for name in (_FEATURES, _TARGETS))
        return shapes if fits and (meta["version"], f"rows-{meta['key']}") == (_VERSION, entry.name) else None
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, LookupError):
        return None


def _make_room(folder: Path, need: int, limit: int) -> None:
    """Remove what nobody can read, then idle entries, least recently used first, until ``need`` bytes fit.

    No idle entry goes if the rows would not fit even then. The folder is locked: what is idle stays idle.
    """
    idle, busy = [], []
    for part in [p for p in folder.iterdir() if _PART.fullmatch(p.name)]:
        if _in_use(part):
            busy.append(part)
        elif _whole(part):
            idle.append(part)
        else:
            shutil.rmtree(part)
    if (held := _nbytes(busy)) + need > limit:
        others = f" beside {held:,} bytes in use by {_users(busy)}" if busy else ""
        raise ConfigError(
            f"{folder}: {need:,} bytes of rows do not fit into {limit:,}{others}; raise loader.cache_size, "
            "or point loader.cache_dir to another folder"
        )
    if need > shutil.disk_usage(folder).free + _nbytes(idle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    idle.sort(key=lambda p: (p / _META).stat().st_mtime_ns)
    while idle and (held + _nbytes(idle) + need > limit or shutil.disk_usage(folder).free < need):
        shutil.rmtree(idle.pop(0))


def _allocate(draft: Path, shapes: _Shapes) -> None:
    """Make both data files at full size, so that the room is taken before the folder is unlocked."""
    draft.mkdir()
    for name, shape in shapes.items():
        with (draft / name).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 4 * prod(shape))


def _write(draft: Path, shapes: _Shapes, parts: _Parts, need: int) -> None:
    """Fill the draft block by block; errors of ``parts`` pass as they are."""
    done, rows = 0, shapes[_FEATURES][0]
    for part in parts():
        first, done = done, done + len(part[0])
        if done > rows:
            break
        for (name, (_, width)), block in zip(shapes.items(), part, strict=True):
            assert block.shape == (done - first, width) and block.dtype == np.float32
            with _storage(draft.parent, need, draft), (draft / name).open("r+b") as file:
                file.seek(4 * first * width)
                file.write(np.ascontiguousarray(block).data)
    if done != rows:
        raise DataError(
            f"{done:,} rows were read for the cache, expected {rows:,}; the files have changed meanwhile: "
            "run the same command again"
        )
    meta = {"version": _VERSION, "key": draft.name.removeprefix(".tmp-"), "shapes": shapes}
    with _storage(draft.parent, need, draft):
        (draft / _META).write_text(json.dumps(meta))
        for name in (*shapes, _META, "."):
            sync(draft / name)


def _locks(part: Path) -> list[Path]:
    """Files that are locked while somebody maps an entry, or writes a draft."""
    if part.name.startswith(".tmp"):
        return [part.with_name(f"{part.name.replace('.tmp', 'rows')}.lock")]
    return [part / _FEATURES, part / _TARGETS]


def _in_use(part: Path) -> bool:
    for path in _locks(part):
        with suppress(FileNotFoundError, NotADirectoryError), path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            fcntl.flock(file, fcntl.LOCK_UN)  # or a child that another thread forks now would hold it
    return False


def _users(parts: list[Path]) -> str:
    """Processes that hold the locks of ``parts``, as far as the system tells."""
    pids: set[int] = set()
    with suppress(OSError):
        inodes = {str(path.stat().st_ino) for part in parts for path in _locks(part)}
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        pids = {int(h[4]) for h in held if h[1] == "FLOCK" and h[5].split(":")[-1] in inodes}
    known = ", ".join(str(pid) for pid in sorted(pids - {0}))  # 0 is of another container
    return f"process {known}" if known else "another process"


def _nbytes(parts: list[Path]) -> int:
    total = 0
    for part in parts:
        with suppress(FileNotFoundError):  # a draft that its writer gives up just now
            total += sum(file.stat().st_size for file in part.glob("*.f32"))
    return total


@contextmanager
def _locked(path: Path, need: int) -> Iterator[None]:
    """Wait for the lock of a file, which is made if it does not exist, and hold it."""
    with _storage(path.parent, need):
        file = path.open("ab")
    with file:
        with _storage(path.parent, need):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing would not do it if a child was forked meanwhile


@contextmanager
def _storage(folder: Path, need: int, draft: Path | None = None) -> Iterator[None]:
    """Faults of the storage become one sentence; a ``draft`` goes first, so that its room counts as free."""
    try:
        yield
    except OSError as err:
        if draft:
            shutil.rmtree(draft, ignore_errors=True)
        found, todo = "rows cannot be cached there", "make it writable"
        if err.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(next(p for p in (folder, *folder.parents) if p.exists())).free
            found, todo = f"no room for {need:,} bytes of rows, {free:,} are free", "make room"
        raise ConfigError(
            f"{folder}: {found} ({err.strerror or err}); {todo}, or point loader.cache_dir to another folder"
        ) from err

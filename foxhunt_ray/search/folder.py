"""The folder of a run: made or gone on with, held by one driver, written so that a kill leaves old or new.

``<out>/<name>`` is the only place that a run writes to. Its lock is the kernel's, which drops it with the
process: there is no stale lock to find and no age to judge.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from foxhunt_ray.durable import sync
from foxhunt_ray.errors import CheckpointError, ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create_run(out: str, name: str, *, resume: bool) -> Path:
    """The folder ``<out>/<name>``, new and empty, or with ``resume`` the one that is there.

    Raises:
        ConfigError: the name leaves ``out``, exists (or, with ``resume``, does not), or cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name[:80]!r}: expected 1 to 64 letters, digits, '.', '_' or '-', the first a letter "
            "or a digit; use another --name"
        )
    if "://" in out or "\0" in out or not out:
        raise ConfigError(f"--out {out!r}: expected a local or mounted folder; use another --out")
    # A name that matches holds no separator and is not "..": only a link could lead out of the parent.
    folder = Path(out).expanduser() / name
    if folder.is_symlink():
        raise ConfigError(f"{folder}: is a link, expected a folder of its own; use another --name")
    if resume:
        if not (folder / "events.jsonl").is_file():
            raise ConfigError(
                f"run {name!r} has nothing to go on with in {out}: leave out --resume to start it"
            )
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError as err:
        if not folder.parent.is_dir():
            raise ConfigError(f"--out {out}: is a file, expected a folder; use another --out") from err
        raise ConfigError(
            f"run {name!r} exists in {out}: use another --name, or --resume to go on with it"
        ) from err
    except OSError as err:
        raise ConfigError(f"{folder}: cannot be made ({err.strerror}); give --out a writable folder") from err
    return folder


class RunLock:
    """Holds a run folder for this process while the ``with`` block runs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._file = -1

    def __enter__(self) -> Self:
        """The lock, held.

        Raises:
            ConfigError: another process holds it (it is named), or the folder cannot be written.
        """
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            os.truncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode())
        except BlockingIOError as err:
            owner = os.read(self._file, 500).decode(errors="replace") or "another process"
            self.__exit__()
            raise ConfigError(
                f"{self._path.parent} is in use by {owner}: wait for it, or use another --name"
            ) from err
        except OSError as err:
            self.__exit__()
            raise ConfigError(
                f"{self._path}: cannot be locked ({err.strerror}); give --out a writable folder"
            ) from err
        return self

    def __exit__(self, *_: object) -> None:
        """Let go; the file stays, because removing it would race with the next owner."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A path to write to; what is there when the block ends takes the place of ``path`` at once.

    Raises:
        CheckpointError: the storage is gone, full or read-only.
    """
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.unlink(missing_ok=True)  # never through a link that was planted here
        yield draft
        sync(draft)
        os.replace(draft, path)
        sync(path.parent)
    except OSError as err:
        raise CheckpointError(
            f"{path}: cannot be written ({err.strerror or err}); free the storage, then use --resume"
        ) from err


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON; a number that is not finite is a fault of the caller.

    Raises:
        CheckpointError: the storage is gone, full or read-only.
    """
    with replaced(path) as draft:
        draft.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")

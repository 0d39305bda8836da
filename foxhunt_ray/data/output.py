"""A folder that is filled step by step, is refused by readers until it is whole, and can be gone on with.

While it is filled it holds ``_unfinished.json``: a line with the fingerprint of what goes in, then a line for
every file that is complete. The manifest comes last.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foxhunt_ray.data.discover import UNFINISHED
from foxhunt_ray.data.parquet import brief
from foxhunt_ray.durable import sync
from foxhunt_ray.errors import CheckpointError, ConfigError

MANIFEST = "_manifest.json"
_ELSEWHERE = "give an empty folder"
_SUFFIXES = (".parquet", ".parq", ".pq")
_Entry = dict[str, Any]


def require_out(out: Path, paths: Sequence[str] = ()) -> None:
    """Refuse a folder that ``write_canonical`` cannot use; cheap, to be called before anything is read.

    Args:
        out: the folder; it need not exist.
        paths: what is read: files, folders and globs.

    Raises:
        ConfigError: it lies in a folder that is read, is a file, or holds something else.
    """
    inside = next((path for path in paths if _covers(path, out)), "")
    if inside:
        raise ConfigError(f"{out}: lies in {inside}, which is read; {_ELSEWHERE} that lies elsewhere")
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: a file, expected a folder; {_ELSEWHERE}")
    with storage(out):
        names = sorted(os.listdir(out)) if out.is_dir() else []
    if names and not {UNFINISHED, MANIFEST} & set(names):
        raise ConfigError(f"{out}: holds {names[0]} and was not made by `foxhunt prepare`; {_ELSEWHERE}")


def finished(out: Path, fingerprint: str) -> _Entry | None:
    """The manifest of a folder that holds everything; None for one that is empty or unfinished.

    Raises:
        ConfigError: it holds something else than what ``fingerprint`` stands for, or a file has changed.
    """
    if (out / UNFINISHED).exists() or not (out / MANIFEST).exists():
        return None
    try:
        manifest: _Entry = json.loads((out / MANIFEST).read_bytes())
    except (OSError, ValueError) as err:
        raise ConfigError(f"{out / MANIFEST}: cannot be read ({brief(err)}); {_ELSEWHERE}") from err
    if manifest.get("fingerprint") != fingerprint:
        raise ConfigError(f"{out}: was prepared from other files or settings; {_ELSEWHERE}")
    sizes = {e["file"]: e["size"] for e in manifest["symbols"]}
    odd = [n for n, size in sizes.items() if not (out / n).is_file() or (out / n).stat().st_size != size]
    if odd:
        raise ConfigError(f"{out / odd[0]}: is missing or was changed since it was prepared; {_ELSEWHERE}")
    return manifest


@contextmanager
def journal(out: Path, fingerprint: str) -> Iterator[tuple[dict[str, _Entry], Callable[[_Entry], None]]]:
    """Marks the folder as unfinished while the block runs, and takes the mark away if it ends well.

    Args:
        out: the folder, which no other process may fill at the same time.
        fingerprint: what goes in.

    Returns:
        What was recorded of each file that an earlier call completed, by its name; and a function that
        records one, whose name stands under "file".

    Raises:
        ConfigError: the folder is in use, or unfinished with another fingerprint.
    """
    with (out / UNFINISHED).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise ConfigError(f"{out}: another `foxhunt prepare` writes there; wait for it") from err
        file.seek(0)
        lines = [line for line in map(_parsed, file.read().split("\n")) if line]
        if lines and lines[0].get("fingerprint") != fingerprint:
            raise ConfigError(f"{out}: unfinished, of other files or settings; {_ELSEWHERE}, or remove it")

        def record(entry: _Entry) -> None:
            file.write(json.dumps(entry) + "\n")
            file.flush()

        if lines:
            file.write("\n")  # after a line that was cut off
        else:
            file.truncate(0)
            record({"fingerprint": fingerprint})
            sync(out / UNFINISHED)
        yield {line["file"]: line for line in lines[1:]}, record
        sync(out)  # what was written must be there for good before the mark goes
        (out / UNFINISHED).unlink(missing_ok=True)
        sync(out)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A path to write to; what is there when the block ends takes the place of ``path`` at once."""
    draft = path.with_name(f".partial-{path.name}")
    try:
        yield draft
        sync(draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def storage(out: Path) -> Iterator[None]:
    """Faults of the storage while the block runs become a CheckpointError, which says what to do."""
    try:
        yield
    except OSError as err:
        raise CheckpointError(
            f"{out}: cannot be written ({err.strerror or brief(err)}); make room or make it writable, then "
            "run the same command again"
        ) from err


def _covers(path: str, out: Path) -> bool:
    """Whether files in ``out`` would be found under a data path."""
    path, target = os.path.expanduser(path), out.resolve()
    if os.path.exists(path):
        return os.path.isdir(path) and target.is_relative_to(Path(path).resolve())
    fixed, *patterns = re.split(r"[*?\[]", path, maxsplit=1)
    folder = Path(os.path.dirname(fixed)).resolve()
    if patterns and "/" not in patterns[0] and path.lower().endswith(_SUFFIXES):  # files of this folder alone
        return target == folder
    return bool(patterns) and target.is_relative_to(folder)


def _parsed(line: str) -> _Entry:
    try:
        found = json.loads(line)
    except ValueError:  # cut off; what it told of is written again
        return {}
    return found if isinstance(found, dict) else {}

"""``check``: an account of every file, every finding, and what a run would read. No Ray, no torch."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from foxhunt_ray.cli.inspect import contract, user_features
from foxhunt_ray.cli.options import overrides
from foxhunt_ray.cli.progress import reading_progress
from foxhunt_ray.config import load_config
from foxhunt_ray.errors import ConfigError

if TYPE_CHECKING:
    from foxhunt_ray.data.discover import FileEntry
    from foxhunt_ray.data.findings import Finding
    from foxhunt_ray.data.inspection import Inspection
    from foxhunt_ray.data.survey import Survey

_REFUSED = 2  # exit code
_LISTED = 100  # files of one status that are named one by one


def check(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Print what becomes of each file, what was found, and the windows per split."""
    from foxhunt_ray.data.inspection import inspect

    if options.paths and options.data:
        raise ConfigError(f"--data {options.data} and PATH {options.paths[0]}: give the data once")
    config = load_config(options.config, overrides(options))
    with reading_progress() as progress:
        seen = inspect(config, user=user_features(options), on_progress=progress)
    if options.json:
        print(json.dumps(_as_json(seen), indent=2))
    else:
        for line in account_lines(seen.market.files, seen.findings):
            print(line)
        for line in _reading_lines(seen.survey) if seen.survey else ():
            print(line)
    return _REFUSED if seen.refusals else 0


def account_lines(files: Sequence[FileEntry], findings: Sequence[Finding]) -> Iterator[str]:
    """A line a file and a line a finding; many files with one outcome share a line."""
    yield from _file_lines(files)
    yield from (f"{f.level:8} {f}" for f in findings)


def _file_lines(files: Sequence[FileEntry]) -> Iterator[str]:
    counts = Counter((f.status, f.reason) for f in files)
    rows: Counter[tuple[str, str]] = Counter()
    for file in files:
        rows[file.status, file.reason] += file.rows
    told: set[tuple[str, str]] = set()
    for file in files:
        kind = (file.status, file.reason)
        if file.status == "refused" or counts[kind] <= _LISTED:
            detail = file.reason or f"{file.rows:,} rows"
            yield f"{file.status:8} {file.path}  ({detail})"
        elif kind not in told:
            told.add(kind)
            detail = file.reason or f"{rows[kind]:,} rows; --json lists them"
            yield f"{file.status:8} {counts[kind]:,} files  ({detail})"


def _reading_lines(found: Survey) -> Iterator[str]:
    data = found.summary()
    yield from contract(found, data)
    for name, span in data["splits"].items():
        yield f"{name:5} {data['windows'][name]:>10,} windows  {span['start'][:19]} to {span['end'][:19]} UTC"


def _as_json(seen: Inspection) -> dict[str, Any]:
    return {
        "status": "refused" if seen.refusals else "ok",
        "files": [asdict(f) for f in seen.market.files],
        "findings": [asdict(f) for f in seen.findings],
        "reading": seen.market.reading | ({"max_gap_ns": seen.survey.max_gap} if seen.survey else {}),
        "data": seen.survey.summary() if seen.survey else None,
    }

"""What will be read of which file, before any of them is decoded whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import FileEntry
from foxhunt_ray.data.findings import Finding, note
from foxhunt_ray.data.globs import fits
from foxhunt_ray.data.parquet import opened
from foxhunt_ray.data.source.columns import is_market_data
from foxhunt_ray.data.source.layout import Layout
from foxhunt_ray.errors import DamagedFileError, DataError

_ALL_COLUMNS_BYTES = 256_000_000  # data larger than this are read without the columns that nobody asked for
_SAMPLE_FILES = 32
_SAMPLE_ROWS = 4096


class Account:
    """The files that were found, and what becomes of each while they are read."""

    def __init__(self, entries: Iterable[FileEntry], *, skip_bad: bool) -> None:
        self._skip_bad = skip_bad
        self._entries = {e.path: e for e in entries}
        for entry in list(self._entries.values()):
            if entry.damaged:
                self._close(entry, entry.reason, damaged=True)

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """Every file, sorted by path."""
        return tuple(self._entries[path] for path in sorted(self._entries))

    def readable(self) -> list[FileEntry]:
        """The files that nothing speaks against yet."""
        return [e for e in self.entries if e.status == "read"]

    def refuse(self, path: str, fault: DataError) -> None:
        """Note why a file cannot be used; a damaged one is passed over if the config says so."""
        reason = str(fault).removeprefix(f"{path}: ")
        self._close(self._entries[path], reason, damaged=isinstance(fault, DamagedFileError))

    def _close(self, entry: FileEntry, reason: str, *, damaged: bool) -> None:
        skip = damaged and self._skip_bad
        self._entries[entry.path] = replace(
            entry,
            status="skipped" if skip else "refused",
            reason=f"damaged: {reason}" if skip else reason,
            rows=0,
            damaged=damaged,
        )


def page_damage(path: str) -> DamagedFileError | None:
    """The fault of a file whose first row group cannot be decoded, else None."""
    try:
        with opened(path) as parquet:
            parquet.read_row_group(0)
    except DamagedFileError as err:
        return err
    return None


def columns_to_read(
    layouts: Sequence[Layout], names: Collection[str], config: Config, *, every: bool
) -> tuple[frozenset[str], list[Finding]]:
    """Canonical names of the columns to read, and a note if some are not.

    Args:
        layouts: the files.
        names: canonical names of the columns that may be read.
        config: its features and target say what is needed.
        every: read all of them, however large the data are.
    """
    widths = [sum(map(len, x.melt.values())) or len(x.roles.values) for x in layouts]
    nbytes = sum(8 * x.rows * width for x, width in zip(layouts, widths, strict=True))
    if every or nbytes <= _ALL_COLUMNS_BYTES:
        return frozenset(names), []
    asked = [p for p in (*config.features.columns, config.target.column, config.target.price) if p]
    kept = frozenset(n for n in names if is_market_data(n) or fits(n, *asked))
    left = len(names) - len(kept)
    text = f"{left:,} of {len(names):,} columns are not read: all would take {nbytes / 1e9:.1f} GB"
    action = "name those that the model should see in features.columns"
    return kept, [note(text, count=left, action=action)] if left else []


def price_samples(layouts: Sequence[Layout]) -> dict[str, NDArray[np.int64]]:
    """The first values of the integer prices of up to 32 files, by column: int64, missing ones left out.

    A file that cannot be decoded adds none; it is refused when it is read whole.
    """
    samples: dict[str, list[NDArray[np.int64]]] = {}
    fixed = [x for x in layouts if x.roles.integer_prices]
    for layout in fixed[:: -(-len(fixed) // _SAMPLE_FILES) or 1]:
        raw = {layout.roles.values[name]: name for name in layout.roles.integer_prices}
        for name in raw.values():
            samples.setdefault(name, [np.empty(0, np.int64)])
        try:
            with opened(layout.path) as parquet:
                batch = next(parquet.iter_batches(batch_size=_SAMPLE_ROWS, columns=list(raw)))
        except DamagedFileError:
            continue
        for column, name in raw.items():
            values = batch.column(column).drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
            samples[name].append(values)
    return {name: np.concatenate(parts) for name, parts in samples.items()}

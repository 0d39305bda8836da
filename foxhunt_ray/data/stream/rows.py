"""Where the rows of a run lie: in Ray's object store, or, when they are too many for it, in mapped files.

The files belong to a cache that every node has of its own. The driver's node writes it; another node copies
what that one has, once, through an actor that lives as long as the run's ``Prepared``.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from foxhunt_ray.config import parse_bytes
from foxhunt_ray.data.order import Units
from foxhunt_ray.data.stream.cache import CachedRows, default_folder, open_rows
from foxhunt_ray.data.stream.store import StoredRows, UnitRows, put_blocks
from foxhunt_ray.data.survey import Survey
from foxhunt_ray.data.windows import Rows

_LOG = logging.getLogger(__name__)
_PART_BYTES = 32_000_000  # copied to another node at a time


@dataclass(frozen=True)
class CacheEntry:
    """The rows of all symbols, one after another, as an entry of each node's cache."""

    key: str
    rows: int
    n_features: int
    n_targets: int
    folder: str
    limit_bytes: int

    def open(self, parts: Any) -> CachedRows:
        """The entry on this node, made of ``parts`` (see ``open_rows``) if it is not there.

        Raises:
            ConfigError: there is no room for it, or its folder cannot be written.
        """
        return open_rows(
            Path(self.folder).expanduser() if self.folder else default_folder(),
            self.key,
            rows=self.rows,
            n_features=self.n_features,
            n_targets=self.n_targets,
            parts=parts,
            limit_bytes=self.limit_bytes,
        )


@dataclass(frozen=True, eq=False)
class FileRows:
    """Rows in files that are mapped into memory; picklable. A node copies them once.

    Attributes:
        server: actor on the node that has the entry.
    """

    units: Units
    entry: CacheEntry
    server: Any
    nbytes = 0  # in the object store

    @property
    def widths(self) -> tuple[int, int]:
        """Inputs F and targets H of a row."""
        return self.entry.n_features, self.entry.n_targets

    def read(self, numbers: Rows, *, prefetch_blocks: int) -> Generator[UnitRows, None, None]:
        """The rows of the units ``numbers`` (int64 [K]), in this order; the system reads ahead by itself."""
        cached = self.entry.open(self._copied)
        for first, last in zip(self.units.first[numbers], self.units.last[numbers], strict=True):
            yield cached.features[first:last], cached.targets[first:last]

    def _copied(self) -> Iterator[UnitRows]:
        """All rows, from the node that has them; the next part travels while one is written."""
        entry = self.entry
        step = max(1, _PART_BYTES // (4 * (entry.n_features + entry.n_targets)))
        coming = None
        for start in [*range(0, entry.rows, step), None]:
            now, coming = coming, None if start is None else self.server.part.remote(start, start + step)
            if now is not None:
                yield ray.get(now)


RowSource = StoredRows | FileRows


class _Server:
    """Holds the entry open, so that no other run removes it, and hands its rows to other nodes."""

    def __init__(self, entry: CacheEntry) -> None:
        self._cached = entry.open(_absent)

    def part(self, start: int, stop: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Rows [start, stop)."""
        return np.array(self._cached.features[start:stop]), np.array(self._cached.targets[start:stop])


def place_rows(found: Survey, units: Units) -> RowSource:
    """Put the rows of a survey where ``loader.memory_frac`` lets them lie.

    Raises:
        ConfigError: they need files, and there is no room for those.
    """
    loader = found.config.loader
    width = found.rows[0].shape[1] + found.targets[0].shape[1]
    needed, room = 4 * width * int(units.rows.sum()), loader.memory_frac * _store_bytes()
    if needed <= room:
        return put_blocks(found.rows, found.targets, units)
    _LOG.info("rows take %d bytes, more than %d of the object store: mapped from files", needed, room)
    entry = CacheEntry(
        key=found.fingerprint,
        rows=sum(map(len, found.rows)),
        n_features=found.rows[0].shape[1],
        n_targets=found.targets[0].shape[1],
        folder=str(Path(loader.cache_dir).expanduser().absolute()) if loader.cache_dir else "",
        limit_bytes=parse_bytes(loader.cache_size),
    )
    kept = entry.open(lambda: _parts(found))  # until the server holds it
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    mine = replace(entry, folder=entry.folder or str(default_folder()))  # its environment may be another
    server = ray.remote(num_cpus=0)(_Server).options(scheduling_strategy=here).remote(mine)
    ray.get(server.part.remote(0, 0))
    del kept
    return FileRows(units, entry, server)


def _parts(found: Survey) -> Iterator[UnitRows]:
    for rows, targets in zip(found.rows, found.targets, strict=True):
        yield rows, targets.astype(np.float32)


def _absent() -> Iterator[UnitRows]:
    raise FileNotFoundError("the entry was removed while a run began; start it again")


def _store_bytes() -> float:
    """The smallest object store of a node that may run trials."""
    held = [n["Resources"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU")]
    return min((h.get("object_store_memory", 0.0) for h in held), default=0.0)

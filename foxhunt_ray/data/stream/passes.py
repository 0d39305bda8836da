"""One pass over the windows of a split: pools of chunks in, batches of gathered windows out.

Windows are gathered after the rows were scaled, by one ``index_select`` over a strided view of the pool: 1/L
of the arithmetic, and batches that own their memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from foxhunt_ray.batch import Batch
from foxhunt_ray.data.order import Windows, pass_order
from foxhunt_ray.data.stream.store import Arena, ChunkStore
from foxhunt_ray.data.windows import Rows

_POOL_BYTES = 64_000_000


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x - mean) / std, then a clip at +-clip; float64 [F] statistics of training rows, clip 0 = none.

    What is still missing is 0: in a valid window that can only be an optional input.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    clip: float

    def apply_(self, features: torch.Tensor) -> None:
        """Scale float32 [N, F] rows in place."""
        features.sub_(torch.from_numpy(self.mean).float())
        features.mul_(torch.from_numpy(1 / self.std).float())
        if self.clip:
            features.clamp_(-self.clip, self.clip)
        features.nan_to_num_(nan=0.0)


@dataclass(frozen=True, eq=False)
class Pass:
    """The host batches of one epoch; reads whole pools, and none that lies before ``start_batch``."""

    store: ChunkStore
    windows: Windows
    stamps: Rows
    scaling: Scaling | None
    context_length: int
    batch_size: int
    seed: int
    epoch: int
    start_batch: int
    shuffle: bool
    prefetch_blocks: int

    def __len__(self) -> int:
        return max(-(-len(self.windows) // self.batch_size) - self.start_batch, 0)

    def __iter__(self) -> Iterator[Batch]:
        parts: list[Batch] = []
        wanted, skip = self.batch_size, self.start_batch * self.batch_size
        for chunks, order in self._pools():
            skipped = min(skip, len(order))
            skip, order = skip - skipped, order[skipped:]
            if not len(order):
                continue
            arena = self._load(chunks)
            while len(order):
                now, order = order[:wanted], order[wanted:]
                parts.append(self._gather(arena, now))
                wanted -= len(now)
                if not wanted:
                    yield _joined(parts)
                    parts, wanted = [], self.batch_size
        if parts:
            yield _joined(parts)

    def _pools(self) -> Iterator[tuple[Rows, Rows]]:
        return pass_order(
            self.windows,
            self.store.chunks,
            seed=self.seed,
            epoch=self.epoch,
            shuffle=self.shuffle,
            pool_rows=_POOL_BYTES // self.store.row_bytes,
        )

    def _load(self, chunks: Rows) -> Arena:
        arena = self.store.load(chunks, prefetch_blocks=self.prefetch_blocks)
        if self.scaling:
            self.scaling.apply_(arena.features)
        return arena

    def _gather(self, arena: Arena, chosen: Rows) -> Batch:
        """Windows ``chosen`` (int64 [B]) out of the arena by one index_select over a strided view of it."""
        windows, length = self.windows.take(chosen), self.context_length
        end = torch.from_numpy(arena.offset[windows.chunk] + windows.end)
        n, width = arena.features.shape
        view = arena.features.as_strided((n - length + 1, length * width), (width, 1))
        return Batch(
            view.index_select(0, end - (length - 1)).view(-1, length, width),
            arena.targets.index_select(0, end),
            torch.from_numpy(windows.symbol),
            torch.from_numpy(self.stamps[chosen]),
        )


def endless_passes(first: Pass) -> Iterator[Batch]:
    """The batches of a pass, then of the next epoch, and so on without end."""
    while True:
        yield from first
        first = replace(first, epoch=first.epoch + 1, start_batch=0)


def _joined(parts: Sequence[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    return Batch(
        *(torch.cat([getattr(p, f) for p in parts]) for f in ("features", "targets", "symbol", "ts_event"))
    )

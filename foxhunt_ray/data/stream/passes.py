"""The second stage of a stream: windows gathered out of filled pools, a batch at a time.

    rows of a pool, scaled -> [one pool ahead, own thread] -> windows gathered -> [AsyncDataLoader's thread]

The first stage runs on into the next pass, so that no batch waits for a pool to be read. A pool is large, and
reading it is the burst that a queue of batches alone would not hide.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from foxhunt_ray.batch import Batch
from foxhunt_ray.data.prefetch.ahead import Ahead, warn_of_no_thread
from foxhunt_ray.data.prefetch.loader import place_near
from foxhunt_ray.data.stream.arena import Filled
from foxhunt_ray.data.stream.pools import PoolReader

_JOIN_S = 0.8  # less than the loader waits for the thread that waits here


class Stream:
    """Batches of one pass, or of one after another without end; iterated once."""

    def __init__(
        self,
        reader: PoolReader,
        *,
        epoch: int = 0,
        start_batch: int = 0,
        endless: bool = False,
        rank: int = 0,
        world_size: int = 1,
        threaded: bool = True,
    ) -> None:
        """A stream that has not begun to read.

        Args:
            reader: fills its pools.
            epoch: number of the (first) pass.
            start_batch: batches of the first pass to leave out.
            endless: go on with the next epoch, and the next.
            rank: of this consumer: it gets the windows rank, rank + world_size, ... of every batch.
            world_size: consumers that share the batches.
            threaded: fill the next pool on a thread while one is in use.
        """
        self._reader, self._plan = reader, reader.plan
        self._epoch, self._start, self._endless = epoch, start_batch, endless
        self._rank, self._world, self._threaded = rank, world_size, threaded
        self._ahead: Ahead[Filled] | None = None
        self._cancelled, self._made_on = False, threading.get_ident()

    def __iter__(self) -> Iterator[Batch]:
        ahead = Ahead(
            self._reader.pools(self._epoch, self._start, endless=self._endless),
            int(self._threaded),
            name="foxhunt-pools",
            join_s=_JOIN_S,
            on_start=partial(place_near, self._reader.device),
        )
        if self._threaded and not ahead.has_thread and threading.get_ident() != self._made_on:
            warn_of_no_thread()  # where the loader has no thread either, it has said so
        self._ahead = ahead
        if self._cancelled:
            ahead.wake()
        try:
            yield from self._batches(ahead)
        finally:
            ahead.stop()

    @property
    def tier(self) -> str:
        """Where windows are gathered."""
        return self._reader.tier

    @property
    def device_bytes(self) -> int:
        """Sent to the device by the stream itself, that is, not as windows."""
        return self._reader.device_bytes

    def cancel(self) -> None:
        """Wake whoever waits for a batch; from any thread."""
        self._cancelled = True
        if self._ahead is not None:
            self._ahead.wake()

    def state_dict(self, consumed: int) -> dict[str, Any]:
        """Where to go on after ``consumed`` batches of this stream."""
        done, each = self._start + consumed, max(self._plan.batches, 1)
        epoch, batch = divmod(done, each) if self._endless else (0, done)
        return {
            "seed": self._plan.seed,
            "epoch": self._epoch + epoch,
            "batch": batch,
            "batch_size": self._plan.batch_size,
            "plan": self._plan.fingerprint,
        }

    def _batches(self, ahead: Ahead[Filled]) -> Iterator[Batch]:
        size, have = self._plan.batch_size, 0
        parts: list[Batch] = []
        for pool in ahead:
            pool.wait()
            at = 0
            while at < len(pool):
                stop = min(at + size - have, len(pool))
                mine = slice(at + (self._rank - have) % self._world, stop, self._world)
                parts.append(pool.windows(mine, pinned=self._reader.pins_batches))
                have, at = have + stop - at, stop
                if have == size or (pool.is_last and at == len(pool)):
                    yield parts[0] if len(parts) == 1 else _joined(parts)
                    parts, have = [], 0


class Pass(Stream):
    """The batches of one epoch; its length is known."""

    def __len__(self) -> int:
        return max(self._plan.batches - self._start, 0)


def _joined(parts: list[Batch]) -> Batch:
    return Batch(*map(torch.cat, zip(*(p.tensors() for p in parts), strict=True)))

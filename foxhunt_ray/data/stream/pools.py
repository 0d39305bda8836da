"""The first stage of a stream: units of rows read, scaled and sent, and their windows put in order."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import torch

from foxhunt_ray.data.order import Plan, Pool
from foxhunt_ray.data.prefetch.loader import beside
from foxhunt_ray.data.stream.arena import Arena, Filled, Scaling, Tier, ordered
from foxhunt_ray.data.stream.rows import RowSource
from foxhunt_ray.data.stream.store import UnitRows
from foxhunt_ray.data.windows import Rows


@dataclass(eq=False)
class PoolReader:
    """Pools of one pass, or of one after another without end.

    Attributes:
        plan: which windows, in which order.
        rows: where the rows lie.
        stamps: int64 [n], UTC nanoseconds of all rows.
        scaling: of the inputs; None = as they are.
        device: of the batches.
        tier: where windows are gathered.
        prefetch_blocks: blocks that Ray fetches ahead.
        pins_batches: whether windows are gathered into page-locked memory, to be sent from there.
        device_bytes: sent to the device so far.
    """

    plan: Plan
    rows: RowSource
    stamps: Rows
    scaling: Scaling | None
    device: torch.device
    tier: Tier
    prefetch_blocks: int
    device_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.pins_batches = self.device.type == "cuda" and self.tier == "host"
        self._sends = self.device.type == "cuda" and self.tier != "host"
        self._stream: torch.cuda.Stream | None = None
        if self._sends:  # of its own: the consumer's is busy
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def pools(self, epoch: int, start_batch: int, *, endless: bool) -> Generator[Filled, None, None]:
        """Filled pools from a batch of a pass on; rows that stay from pool to pool are read once.

        Args:
            epoch: number of the (first) pass.
            start_batch: batches of it to leave out; pools that lie before them are not read.
            endless: go on with the next epoch, and the next.
        """
        plan, held = self.plan, None
        stays = self.tier == "resident" or plan.fits_one_pool
        for number in itertools.count(epoch):
            pools = plan.pools(number, start_batch * plan.batch_size if number == epoch else 0)
            if stays:
                held = held or self._load(self._read([plan.used]), plan.used)
                yield from (self._ordered(p, *held, is_last=p is pools[-1]) for p in pools)
            elif pools:
                with closing(self._read([p.units for p in pools])) as rows:
                    for pool in pools:
                        yield self._ordered(pool, *self._load(rows, pool.units), is_last=pool is pools[-1])
            if not endless:
                return

    def _read(self, pools: Sequence[Rows]) -> Generator[UnitRows, None, None]:
        numbers = np.concatenate([self.plan.units.stored(units) for units in pools])
        return self.rows.read(numbers, prefetch_blocks=self.prefetch_blocks)

    def _load(self, rows: Iterator[UnitRows], numbers: Rows) -> tuple[Arena, Rows]:
        """The units of the next pool of ``rows`` in an arena; and for each how far its rows were moved."""
        units = self.plan.units
        numbers = units.stored(numbers)
        count = units.rows[numbers]
        stop = np.cumsum(count)
        n, (width, horizons) = int(stop[-1]), self.rows.widths
        features = torch.empty(n, width, pin_memory=self._sends)
        targets = torch.empty(n, horizons, pin_memory=self._sends)
        stamps = torch.empty(n, dtype=torch.int64, pin_memory=self._sends)
        x, y, t = features.numpy(), targets.numpy(), stamps.numpy()
        here = [slice(b - k, b) for b, k in zip(stop, count, strict=True)]
        for unit, to, (inputs, known) in zip(numbers, here, rows, strict=False):  # more may follow in rows
            x[to], y[to], t[to] = inputs, known, self.stamps[units.first[unit] : units.last[unit]]
        if self.scaling:
            self.scaling.apply_(features)
        shift = np.zeros(len(units.first), np.int64)
        shift[numbers] = stop - units.last[numbers]
        arena = Arena(features, targets, torch.from_numpy(np.repeat(units.symbol[numbers], count)), stamps)
        return self._sent(arena), shift

    def _sent(self, arena: Arena) -> Arena:
        if not self._sends:
            return arena
        self.device_bytes += arena.nbytes
        with beside(self._stream):
            return arena.to(self.device)

    def _ordered(self, pool: Pool, arena: Arena, shift: Rows, *, is_last: bool) -> Filled:
        ends = pool.ordered(self.plan.ends, shift)
        self.device_bytes += ends.nbytes if self._sends else 0
        with beside(self._stream):
            return ordered(arena, ends, self.plan.context_length, is_last=is_last, pinned=self.pins_batches)

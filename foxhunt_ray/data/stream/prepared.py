"""Prepared: a run's data in the object store, and the streams of batches that come out of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from foxhunt_ray.config import Config, parse_bytes
from foxhunt_ray.data.order import Plan, spread
from foxhunt_ray.data.prefetch import AsyncDataLoader
from foxhunt_ray.data.split import Span
from foxhunt_ray.data.stream.arena import Scaling, Tier, device_free_bytes, pick_tier
from foxhunt_ray.data.stream.passes import Pass, Stream
from foxhunt_ray.data.stream.pools import PoolReader
from foxhunt_ray.data.stream.rows import RowSource
from foxhunt_ray.data.windows import Rows, Times, longest_run, window_ends
from foxhunt_ray.errors import CheckpointError, ConfigError, DataError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TargetStatistics:
    """Statistics of the target over the training windows, in target units, one entry a horizon.

    Attributes:
        center: what the model's zero output means; also the reference forecast of skill.
        scale: standard deviation.
        mean: training mean, the "mean" baseline.
    """

    center: tuple[float, ...]
    scale: tuple[float, ...]
    mean: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run's data in the object store; small, picklable, and passed to trials by reference.

    Attributes:
        config: the run's config.
        symbols: symbol i of ``Batch.symbol`` is ``symbols[i]``.
        features: names of the F inputs.
        optional: inputs whose missing values count as 0 after scaling.
        mean: float64 [F], subtracted from inputs; over training rows.
        std: float64 [F], by which they are divided; over training rows.
        target: statistics of the target over training windows.
        context_length: the longest L that can be asked for [bars].
        max_gap: longest step inside a segment [ns].
        nbytes: bytes of all blocks, indices and prices in the object store.
    """

    config: Config
    symbols: tuple[str, ...]
    features: tuple[str, ...]
    optional: frozenset[str]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    target: TargetStatistics
    context_length: int
    max_gap: int
    nbytes: int
    _spans: dict[str, Span]
    _rows: RowSource
    _index: Any
    _prices: Any

    def stream(
        self,
        split: str,
        *,
        batch_size: int,
        seed: int = 0,
        epoch: int = 0,
        start_batch: int = 0,
        shuffle: bool = True,
        device: str = "cpu",
        prefetch_batches: int | Literal["auto"] = 3,
        normalise: bool = True,
        context_length: int | None = None,
        stride: int | None = None,
        windows: int | None = None,
        endless: bool = False,
        rank: int = 0,
        world_size: int = 1,
        state: Mapping[str, Any] | None = None,
    ) -> AsyncDataLoader:
        """Batches of a split: every valid window once an epoch, in an order that (seed, epoch) decides.

        Args:
            split: "train", "val", "test", or "all" = every window, its target known or not.
            batch_size: windows a batch; the last one of a pass may be smaller.
            seed: of the order.
            epoch: number of the (first) pass.
            start_batch: batches of the first pass to leave out; goes on bitwise where they ended, without
                reading the pools that they came from.
            shuffle: False = natural order (by symbol, then time).
            device: where the batches are wanted.
            prefetch_batches: batches prepared ahead on a thread, or "auto"; 0 = on demand, with the
                same batches.
            normalise: scale and clip inputs as the config says; False = as they are in the file.
            context_length: L, at most the longest prepared for; None = the config's [bars].
            stride: of training windows; None = the config's [bars].
            windows: score at most so many windows, spread over time; None = all.
            endless: go on with the next epoch, and the next, without end.
            rank: of this consumer among ``world_size``: it gets the windows rank, rank + world_size, ... of
                every batch, so that the order does not depend on how many share it; its part of the last
                batch of a pass may be empty.
            world_size: consumers that share the batches.
            state: what ``AsyncDataLoader.state_dict`` gave; goes on there, whatever epoch and
                start_batch say.

        Raises:
            DataError: the split has no valid window, or the context is longer than was prepared for.
            CheckpointError: the state is that of other windows, another seed or another batch size.
            ConfigError: a batch size below 1, a negative start, or a rank that is not below the world size.
        """
        if batch_size < 1 or start_batch < 0 or not 0 <= rank < world_size:
            raise ConfigError(
                f"batch_size {batch_size}, start_batch {start_batch}, rank {rank} of {world_size}: expected "
                "at least 1, at least 0, and a rank from 0 to world_size - 1"
            )
        length = context_length or self.config.data.context_length
        if length > self.context_length:
            raise DataError(
                f"context_length {length} is longer than the {self.context_length} bars prepared for; "
                "put it into the config or its search space"
            )
        ends = self.windows(split, context_length=length, stride=stride)
        if windows is not None:
            ends = ends[self.subset(ends, windows)]
        if not len(ends):
            raise self._no_window(split, length)
        pool_rows = max(1, parse_bytes(self.config.loader.pool) // self._row_bytes)
        plan = Plan(self._rows.units, ends, length, batch_size, seed, shuffle, pool_rows)
        if state is not None:
            epoch, start_batch = _position(plan, state)
        on = torch.device(device)
        ahead = 3 if prefetch_batches == "auto" else prefetch_batches
        scaling = self._scaling() if normalise else None
        reader = PoolReader(
            plan, self._rows, self._times.stamps, scaling, on, self._tier(plan, on), max(ahead, 1)
        )
        stream = (Stream if endless else Pass)(
            reader,
            epoch=epoch,
            start_batch=start_batch,
            endless=endless,
            rank=rank,
            world_size=world_size,
            threaded=ahead > 0,
        )
        return AsyncDataLoader(stream, prefetch_count=prefetch_batches, device=on)

    def windows(self, split: str, *, context_length: int | None = None, stride: int | None = None) -> Rows:
        """Valid windows of a split in natural order: int64 [N], the last row of each, through all symbols.

        Training windows are those of the given length and stride. Validation and test windows are those of
        the longest length at the base stride, so that all trials of a search are scored on the same ones.
        """
        length, every = self.context_length, self.config.data.stride
        if split in ("train", "all"):
            length = context_length or self.config.data.context_length
            every = stride or every
        times = self._times
        ends = [
            begin
            + window_ends(
                index,
                self._span(split),
                context_length=length,
                stride=every,
                horizon=self.config.target.longest,
                known_target=split != "all",
            )
            for begin, index in zip(times.begin, times.index, strict=True)
        ]
        return np.concatenate(ends)

    def subset(self, windows: Rows, count: int) -> Rows:
        """Positions of the fixed, seeded ``count`` of ``windows`` that a report scores, spread over time."""
        return spread(self._times.stamps[windows], count, self.config.seed)

    def last_prices(self, symbol: Rows, ts_event: Rows) -> NDArray[np.float64]:
        """The price at the last input bar of windows, by ``target.price``: float64 [N]; 0 for other targets.

        Args:
            symbol: int64 [N], position in ``symbols``.
            ts_event: int64 [N], stamp of the last input bar [UTC ns].
        """
        found, index = np.zeros(len(symbol)), self._times.index
        for number, prices in enumerate(ray.get(self._prices)):
            mine = symbol == number
            found[mine] = prices[np.searchsorted(index[number].ts_event, ts_event[mine])]
        return found

    @property
    def _times(self) -> Times:
        times: Times = ray.get(self._index)
        return times

    @property
    def _row_bytes(self) -> int:
        """Of a row in a pool: inputs, targets, symbol and stamp."""
        return 4 * sum(self._rows.widths) + 16

    def _span(self, split: str) -> Span | None:
        return None if split == "all" else self._spans.get(split, Span(split, 0, 0))

    def _scaling(self) -> Scaling:
        features = self.config.features
        if features.scale == "none":
            return Scaling(np.zeros_like(self.mean), np.ones_like(self.std), clip=0.0)
        return Scaling(self.mean, self.std, features.clip)

    def _tier(self, plan: Plan, device: torch.device) -> Tier:
        split_bytes = self._row_bytes * int(plan.units.rows[plan.used].sum())
        pool_bytes = min(split_bytes, self._row_bytes * plan.pool_rows)
        wanted, free = self.config.loader.tier, device_free_bytes(device)
        tier = pick_tier(wanted, free_bytes=free, split_bytes=split_bytes, pool_bytes=pool_bytes)
        _LOG.info("tier %s (wanted: %s): split %d bytes, pool %d", tier, wanted, split_bytes, pool_bytes)
        return tier

    def _no_window(self, split: str, length: int) -> DataError:
        """Why a split is empty, with the arithmetic."""
        horizon = self.config.target.longest
        runs = [longest_run(index, self._span(split)) for index in self._times.index]
        best = int(np.argmax(runs))
        return DataError(
            f"no window in split {split!r}: context_length {length} + horizon {horizon} need "
            f"{length + horizon} bars in a row without a gap or a missing value; the longest run up to its "
            f"end has {runs[best]} ({self.symbols[best]}); lower data.context_length or target.horizon, or "
            "give the split more data"
        )


def _position(plan: Plan, state: Mapping[str, Any]) -> tuple[int, int]:
    """Epoch and batch of a saved state, once it is known to be of this plan."""
    now = {"seed": plan.seed, "batch_size": plan.batch_size, "plan": plan.fingerprint}
    for name, value in now.items():
        if state.get(name) != value:
            what = {"plan": "windows or their pools"}.get(name, name)
            raise CheckpointError(
                f"the saved position is that of other {what} ({name} {state.get(name)!r}, now {value!r}); "
                "go on with the data and settings that it was saved with, or start anew"
            )
    return int(state["epoch"]), int(state["batch"])

"""Prepared: a run's data in the object store, and the streams of batches that come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.inspection import survey as take_survey
from foxhunt_ray.data.order import Windows, locate, spread
from foxhunt_ray.data.prefetch import AsyncDataLoader
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.scaling import scaling_statistics
from foxhunt_ray.data.split import Span
from foxhunt_ray.data.stream.passes import Pass, Scaling, endless_passes
from foxhunt_ray.data.stream.store import ChunkStore, put_chunks
from foxhunt_ray.data.survey import Survey
from foxhunt_ray.data.windows import Rows, SymbolIndex, window_ends
from foxhunt_ray.errors import DataError

_ROUNDING = float(np.finfo(np.float32).eps)
# Their reference forecast is no change.
_CENTRED = ("log_return", "vol_scaled_return", "price")


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
        nbytes: bytes of all chunks, indices and prices in the object store.
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
    _store: ChunkStore
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
        prefetch_batches: int = 3,
        normalise: bool = True,
        context_length: int | None = None,
        stride: int | None = None,
        windows: int | None = None,
        endless: bool = False,
    ) -> AsyncDataLoader:
        """Batches of a split: every valid window once an epoch, in an order that (seed, epoch) decides.

        Args:
            split: "train", "val", "test", or "all" = every window, its target known or not.
            batch_size: windows a batch; the last one of a pass may be smaller.
            seed: of the order.
            epoch: number of the (first) pass.
            start_batch: batches of the first pass to leave out; goes on bitwise where they ended.
            shuffle: False = natural order (by symbol, then time).
            device: where the batches are wanted.
            prefetch_batches: batches prepared ahead on a thread; 0 = on demand, with the same batches.
            normalise: scale and clip inputs as the config says; False = as they are in the file.
            context_length: L, at most the longest prepared for; None = the config's [bars].
            stride: of training windows; None = the config's [bars].
            windows: score at most so many windows, spread over time; None = all.
            endless: go on with the next epoch, and the next, without end.

        Raises:
            DataError: the split has no valid window, or the context is longer than was prepared for.
        """
        length = context_length or self.config.data.context_length
        if length > self.context_length:
            raise DataError(
                f"context_length {length} is longer than the {self.context_length} bars prepared for; "
                "put it into the config or its search space"
            )
        chosen = self.windows(split, context_length=length, stride=stride)
        if windows is not None:
            chosen = chosen.take(self.subset(chosen, windows))
        if not len(chosen):
            raise DataError(
                f"no window in split {split!r}: none has context_length {length} + horizon "
                f"{self.config.target.longest} bars without a gap there; see `foxhunt check`"
            )
        one = Pass(
            store=self._store,
            windows=chosen,
            stamps=self._stamps(chosen),
            scaling=self._scaling() if normalise else None,
            context_length=length,
            batch_size=batch_size,
            seed=seed,
            epoch=epoch,
            start_batch=start_batch,
            shuffle=shuffle,
            prefetch_blocks=self.config.loader.prefetch_batches,
        )
        source = endless_passes(one) if endless else one
        return AsyncDataLoader(source, prefetch_count=prefetch_batches, device=device)

    def windows(self, split: str, *, context_length: int | None = None, stride: int | None = None) -> Windows:
        """Valid windows of a split in natural order.

        Training windows are those of the given length and stride. Validation and test windows are those of
        the longest length at the base stride, so that all trials of a search are scored on the same ones.
        """
        length, every = self.context_length, self.config.data.stride
        if split in ("train", "all"):
            length = context_length or self.config.data.context_length
            every = stride or every
        span = None if split == "all" else self._spans.get(split, Span(split, 0, 0))
        ends = [
            window_ends(
                index,
                span,
                context_length=length,
                stride=every,
                horizon=self.config.target.longest,
                known_target=split != "all",
            )
            for index in self._indices()
        ]
        return locate(ends, self._store.chunks)

    def subset(self, windows: Windows, count: int) -> Rows:
        """Positions of the fixed, seeded ``count`` of ``windows`` that a report scores, spread over time."""
        return spread(self._stamps(windows), count, self.config.seed)

    def last_prices(self, symbol: Rows, ts_event: Rows) -> NDArray[np.float64]:
        """The price at the last input bar of windows, by ``target.price``: float64 [N]; 0 for other targets.

        Args:
            symbol: int64 [N], position in ``symbols``.
            ts_event: int64 [N], stamp of the last input bar [UTC ns].
        """
        found = np.zeros(len(symbol))
        for number, prices in enumerate(ray.get(self._prices)):
            mine = symbol == number
            found[mine] = prices[np.searchsorted(self._indices()[number].ts_event, ts_event[mine])]
        return found

    def _scaling(self) -> Scaling:
        features = self.config.features
        if features.scale == "none":
            return Scaling(np.zeros_like(self.mean), np.ones_like(self.std), clip=0.0)
        return Scaling(self.mean, self.std, features.clip)

    def _indices(self) -> tuple[SymbolIndex, ...]:
        indices: tuple[SymbolIndex, ...] = ray.get(self._index)
        return indices

    def _stamps(self, windows: Windows) -> Rows:
        stamps = np.empty(len(windows), np.int64)
        for number, index in enumerate(self._indices()):
            mine = windows.symbol == number
            stamps[mine] = index.ts_event[windows.end[mine]]
        return stamps


def prepare(config: Config, survey: Survey | None = None) -> Prepared:
    """Put the data of ``config`` into Ray's object store, once per run, on the driver.

    Args:
        config: the run's config.
        survey: what ``survey(config)`` returned, if that was called before.

    Raises:
        DataError: data that cannot be used.
    """
    found = survey or take_survey(config)
    inside = [_within(i.ts_event, found.spans.get("train")) for i in found.index]
    mean, std = scaling_statistics(found.rows, inside, found.features, config.features.scale)
    truth = [t[e] for t, e in zip(found.targets, found.ends("train"), strict=True)]
    return put_rows(found, mean=mean, std=std, target=_target_statistics(np.concatenate(truth), config))


def put_rows(
    found: Survey, *, mean: NDArray[np.float64], std: NDArray[np.float64], target: TargetStatistics
) -> Prepared:
    """Put surveyed rows into the object store with statistics that are already known (of the training run).

    Args:
        found: the survey.
        mean: float64 [F].
        std: float64 [F].
        target: statistics of the target.
    """
    store = put_chunks(found.rows, found.targets, context_length=found.context_length)
    index_bytes = sum(a.nbytes for i in found.index for a in vars(i).values())
    prices = _prices(found)
    return Prepared(
        config=found.config,
        symbols=found.symbols,
        features=found.features,
        optional=found.inputs.optional,
        mean=mean,
        std=std,
        target=target,
        context_length=found.context_length,
        max_gap=found.max_gap,
        nbytes=store.nbytes + index_bytes + sum(p.nbytes for p in prices),
        _spans=found.spans,
        _store=store,
        _index=ray.put(found.index),
        _prices=ray.put(prices),
    )


def _prices(found: Survey) -> tuple[NDArray[np.float64], ...]:
    """What a forecast change is added to; nothing if no price is forecast."""
    target = found.config.target
    bars = found.market.bars if target.kind == "price" else ()
    return tuple(price_series(b, target.price)[0] for b in bars)


def _within(stamps: Rows, span: Span | None) -> NDArray[np.bool_]:
    # Whatever the purge does to windows, a *row* is a training row when its stamp lies in the span.
    if span is None:
        return np.zeros(len(stamps), np.bool_)
    inside: NDArray[np.bool_] = (stamps >= span.start) & (stamps < span.end)
    return inside


def _target_statistics(truth: NDArray[np.float64], config: Config) -> TargetStatistics:
    mean, spread = truth.mean(axis=0), truth.std(axis=0)
    center = np.zeros_like(mean) if config.target.kind in _CENTRED else mean
    # Targets are stored as float32: what varies by less than its rounding is constant there.
    scale = np.where(spread > _ROUNDING * np.abs(mean), spread, 1.0)
    return TargetStatistics(tuple(center.tolist()), tuple(scale.tolist()), tuple(mean.tolist()))

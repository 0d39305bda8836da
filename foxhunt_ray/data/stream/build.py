"""From a survey to Prepared: statistics of training rows, rows cut into units, and both into Ray."""

from __future__ import annotations

import numpy as np
import ray
from numpy.typing import NDArray

from foxhunt_ray.config import Config
from foxhunt_ray.data.inspection import survey as take_survey
from foxhunt_ray.data.order import Units, cut_units
from foxhunt_ray.data.prices import price_series
from foxhunt_ray.data.scaling import scaling_statistics
from foxhunt_ray.data.split import Span
from foxhunt_ray.data.stream.prepared import Prepared, TargetStatistics
from foxhunt_ray.data.stream.rows import place_rows
from foxhunt_ray.data.survey import Survey
from foxhunt_ray.data.windows import Rows, Times

_UNIT_ROWS = 1024
_UNIT_CONTEXTS = 8  # rows of look-back that are stored twice are at most an eighth
_BLOCK_BYTES = 4_000_000
_ROUNDING = float(np.finfo(np.float32).eps)
# Their reference forecast is no change.
_CENTRED = ("log_return", "vol_scaled_return", "price")


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
    found: Survey,
    *,
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    target: TargetStatistics,
    shuffled: bool = True,
) -> Prepared:
    """Put surveyed rows into the object store with statistics that are already known (of the training run).

    Args:
        found: the survey.
        mean: float64 [F].
        std: float64 [F].
        target: statistics of the target.
        shuffled: training windows will be wanted shuffled, so their rows are stored mixed; False = all rows
            are stored in natural order, in which they are then read best.

    Raises:
        ConfigError: the rows need files, and there is no room for those.
    """
    units = _units(found, shuffled)
    rows = place_rows(found, units)
    stamps = np.concatenate([i.ts_event for i in found.index])
    begin = np.cumsum([0, *(len(i.ts_event) for i in found.index)])[:-1]
    times = Times(stamps, begin, tuple((i.segment_first, i.bad_rows, i.target_missing) for i in found.index))
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
        nbytes=rows.nbytes + times.nbytes + sum(p.nbytes for p in prices),
        _spans=found.spans,
        _rows=rows,
        _index=ray.put(times),
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


def _units(found: Survey, shuffled: bool) -> Units:
    """How rows are cut: units of max(1024, 8 L) rows, those to be shuffled apart from the others."""
    none, stamps = Span("train", 0, 0), [i.ts_event for i in found.index]
    train = found.spans.get("train", none) if shuffled else none
    width = found.rows[0].shape[1] + found.targets[0].shape[1]
    return cut_units(
        [len(t) for t in stamps],
        [(int(a), int(b)) for a, b in (np.searchsorted(t, [train.start, train.end]) for t in stamps)],
        unit_rows=max(_UNIT_ROWS, _UNIT_CONTEXTS * found.context_length),
        halo=found.context_length - 1,
        block_rows=max(1, _BLOCK_BYTES // (4 * width)),
    )

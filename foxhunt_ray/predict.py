"""Run folder + data -> forecasts; and what a run folder must hold for that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foxhunt_ray import cluster, trial
from foxhunt_ray.config import Config, load_config
from foxhunt_ray.data import Prepared
from foxhunt_ray.data.inputs import Inputs
from foxhunt_ray.data.schema import read_market
from foxhunt_ray.data.stream import TargetStatistics, put_rows
from foxhunt_ray.data.survey import survey_market
from foxhunt_ray.data.synthetic import synthetic_market
from foxhunt_ray.data.user_features import UserFeatures
from foxhunt_ray.errors import CheckpointError, ConfigError, DataError
from foxhunt_ray.train.metrics import Predictions

_VERSION = 2
# Of the training run these would cut the new data: predictions are wanted for all of it, at every bar.
_WHOLE = {
    "data.stride": 1,
    "split.train": 1.0,
    "split.val": 0.0,
    "split.test": 0.0,
    "split.embargo": "0s",
    "search.space": {},
}


def predict(folder: Path, overrides: Sequence[str] = (), *, user: UserFeatures | None = None) -> pa.Table:
    """Forecasts of a run's best model for every window of new data, the latest bars included.

    Args:
        folder: the run's folder.
        overrides: ``section.field=value`` strings on top of the run's config, such as ``data.path=...``.
        user: the function of the user's own that the run was given.

    Returns:
        Columns symbol (text), ts_event (timestamp of the last input bar, ns UTC), horizon (int32, bars),
        prediction and target (float64, see ``forecast_table``; target is null where the future is not known).

    Raises:
        ConfigError: the folder holds no finished run.
        CheckpointError: what it holds is damaged.
        DataError: the data lack a column that the model needs, or no window fits; names the file.
        ClusterError: Ray cannot be started or joined.
    """
    source, statistics = _read(folder)
    config = _config(source, overrides)
    market = read_market(config) if config.data.path else synthetic_market(config.seed)
    inputs = Inputs(
        tuple(f["name"] for f in statistics["features"]),
        frozenset(f["name"] for f in statistics["features"] if f["optional"]),
    )
    try:
        if user:
            market = replace(market, bars=user.apply(market.bars)[0])
        found = survey_market(config, market, inputs=inputs, max_gap=statistics["max_gap_ns"])
    except DataError as err:
        raise DataError(f"{config.data.where}: {err}") from err
    weights = folder / "best" / "model.safetensors"
    with cluster.connect(config, data_bytes=found.nbytes):
        prepared = put_rows(
            found,
            mean=np.array([f["mean"] for f in statistics["features"]]),
            std=np.array([f["std"] for f in statistics["features"]]),
            shuffled=False,
            target=TargetStatistics(**{k: tuple(v) for k, v in statistics["target"].items()}),
        )
        if not len(prepared.windows("all")):
            raise DataError(
                f"{config.data.where}: no window of {config.data.context_length} bars in a row without a gap "
                "or a missing value; bring more bars"
            )
        _, forecasts = trial.score(config, prepared, weights, splits=("all",))["all"]
        return forecast_table(prepared, {"": forecasts}).drop_columns("split")


def forecast_table(prepared: Prepared, forecasts: Mapping[str, Predictions]) -> pa.Table:
    """Forecasts of one or more splits: split, symbol, ts_event, horizon, prediction, target; a row a horizon.

    Prediction and target are in target units; of ``target.kind = "price"`` they are prices, that is, the last
    known one plus the change.
    """
    parts = list(forecasts.values())
    horizons = np.array(prepared.config.target.horizons, np.int32)
    symbol, ts_event = (np.concatenate([getattr(p, f) for p in parts]) for f in ("symbol", "ts_event"))
    last = prepared.last_prices(symbol, ts_event)[:, None]
    prediction = (np.concatenate([p.prediction for p in parts]) + last).ravel()
    target = (np.concatenate([p.target for p in parts]) + last).ravel()
    windows = np.repeat(np.arange(len(symbol)), len(horizons))
    split = np.repeat(np.array(list(forecasts), dtype=object), [len(p.symbol) for p in parts])
    names = np.array(prepared.symbols, dtype=object)[symbol]
    return pa.table(
        {
            "split": pa.array(split[windows], pa.string()),
            "symbol": pa.array(names[windows], pa.string()),
            "ts_event": pa.array(ts_event[windows], pa.timestamp("ns", tz="UTC")),
            "horizon": pa.array(np.tile(horizons, len(symbol))),
            "prediction": pa.array(prediction),
            "target": pa.array(target, mask=np.isnan(target)),
        }
    )


def preprocessing(prepared: Prepared) -> dict[str, Any]:
    """What turns files into model inputs, as plain JSON values: ``best/preprocessing.json``."""
    statistics = zip(prepared.features, prepared.mean, prepared.std, strict=True)
    return {
        "version": _VERSION,
        "features": [
            {"name": n, "mean": float(m), "std": float(s), "optional": n in prepared.optional}
            for n, m, s in statistics
        ],
        "target": vars(prepared.target).copy(),
        "max_gap_ns": prepared.max_gap,
        "symbols": list(prepared.symbols),
    }


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    source, statistics = folder / "best" / "config.toml", folder / "best" / "preprocessing.json"
    if not source.is_file():
        raise ConfigError(f"{source}: not there; give the folder of a run that has ended, such as runs/NAME")
    try:
        found = json.loads(statistics.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise CheckpointError(f"{statistics}: cannot be read ({err}); run the search again") from err
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise CheckpointError(f"{statistics}: not of version {_VERSION}; use the program that wrote it")
    return source, found


def _config(source: Path, overrides: Sequence[str]) -> Config:
    saved = load_config(source)
    whole = [f"{path}={json.dumps(value)}" for path, value in _WHOLE.items() if path != "search.space"]
    merged = load_config(source, [*overrides, *whole, "search.space={}"])
    changed = [s for s in ("features", "target", "model") if getattr(merged, s) != getattr(saved, s)]
    if changed:
        raise ConfigError(
            f"--set {changed[0]}...: a model is used with the {changed[0]} settings it was trained with; "
            "leave this out, or train anew"
        )
    return merged

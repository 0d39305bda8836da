"""Mamba2Trainer: ``trial.run`` as an object, for people who script.

trainer = Mamba2Trainer("bars/", epochs=3).with_async_loading(True, prefetch_count=3)
result = trainer.train_with_params({"optimizer.lr": 1e-3})
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from foxhunt_ray import cluster, trial
from foxhunt_ray.config import Config, load_config, with_values
from foxhunt_ray.data import Prepared, prepare, survey
from foxhunt_ray.errors import ConfigError

_REPORTS = 20  # a trial, unless train.report_every is given


class Trained(NamedTuple):
    """What a training left.

    Attributes:
        metrics: those of the last report, val_full/* among them.
        checkpoint: the weights of the best report, as safetensors.
    """

    metrics: dict[str, float]
    checkpoint: Path


@dataclass(frozen=True)
class Mamba2Trainer:
    """Trains one model on one data set; immutable, each ``with_`` call gives a changed copy.

    Attributes:
        data: file, folder or glob of parquet; empty = the built-in synthetic market.
        epochs: passes over the training windows.
        folder: where the weights are kept; None = a new folder under ``runs``.
    """

    data: str
    epochs: int
    folder: Path | None = None
    _loading: tuple[bool, int] = (True, 3)

    def with_async_loading(self, enabled: bool, prefetch_count: int = 3) -> Self:
        """The trainer with batches prepared ahead on a thread or not; the results are the same.

        Args:
            enabled: False = each batch is prepared when it is asked for.
            prefetch_count: batches prepared ahead.
        """
        return replace(self, _loading=(enabled, prefetch_count))

    def train_with_params(self, params: Mapping[str, Any] | None = None) -> Trained:
        """Train with the given settings on top of the defaults.

        Args:
            params: dotted config paths and their values, such as ``{"model.d_model": 64}``.

        Raises:
            ConfigError: a setting that does not exist or is out of range, or fewer than one epoch.
            DataError: data that cannot be used; names the file.
            DivergedError: a loss is not finite.
        """
        if self.epochs < 1:
            raise ConfigError(f"epochs = {self.epochs}: expected at least 1 pass over the data")
        enabled, count = self._loading
        fixed = {"data.path": self.data, "search.space": {}, "loader.mode": "async" if enabled else "sync"}
        config = load_config(None, fixed | {"loader.prefetch_batches": count} | dict(params or {}))
        found = survey(config)
        folder = self.folder or Path("runs") / f"mamba2-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}"
        with cluster.connect(config, data_bytes=found.nbytes):
            prepared = prepare(config, found)
            config = _as_steps(config, prepared, self.epochs, given=params or {})
            device = trial.pick_device(cluster.trial_resources(config).gpus)
            *_, last = trial.run(config, prepared, folder=folder, device=device)
        return Trained(last.metrics, folder / "best" / "model.safetensors")


def _as_steps(config: Config, prepared: Prepared, epochs: int, *, given: Mapping[str, Any]) -> Config:
    """``epochs`` passes in optimiser steps, the unit of a trial's length."""
    steps = epochs * -(-len(prepared.windows("train")) // config.train.batch_size)
    every = {} if "train.report_every" in given else {"train.report_every": max(1, steps // _REPORTS)}
    return with_values(config, {"train.max_steps": steps} | every)

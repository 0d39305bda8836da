"""The main path: config -> stream -> model -> fit -> progress. Start reading here.

``run`` is one trial, from the first batch to the last report. The caller pulls: a test, the ``train`` verb
and a Ray Tune trial all iterate the same generator, and closing it ends the loader's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from foxhunt_ray.config import Config
from foxhunt_ray.data import Prepared, Survey
from foxhunt_ray.data.prefetch import AsyncDataLoader, LoaderProgress
from foxhunt_ray.errors import ClusterError
from foxhunt_ray.models import build_model
from foxhunt_ray.train.baselines import fit_ridge, score_baselines
from foxhunt_ray.train.checkpoint import load_weights
from foxhunt_ray.train.loop import Progress, fit, resume_state
from foxhunt_ray.train.metrics import Predictions, Scores, TargetScale, evaluate, predict

_SCORE_BATCH = 128  # a model is quickest at about the size it trains with, ridge at a larger one
_RIDGE_BATCH = 1024
_RIDGE_WINDOWS = 200_000


def run(
    config: Config,
    prepared: Prepared,
    *,
    folder: Path | None = None,
    device: str = "cpu",
    resume: bool = False,
) -> Iterator[Progress]:
    """Progress at every report of one trial; the last one also scores all validation windows (val_full/*).

    Args:
        config: the trial's config; what was ingested must be that of ``prepared``.
        prepared: the run's data.
        folder: where weights and state are kept; None = nowhere.
        device: "cpu" or "cuda".
        resume: go on from the state in ``folder``.

    Raises:
        DivergedError: a loss is not finite.
        DataError: a split has no window.
        CheckpointError: the state cannot be written or read.
    """
    torch.set_num_threads(config.cluster.cpus_per_trial)
    torch.manual_seed(config.seed)
    scale = target_scale(prepared)
    model = _model(config, prepared, device)
    val = list(_scoring(config, prepared, "val", device=device, windows=config.train.eval_windows))
    position = resume_state(folder).position if folder and resume else {}
    best: dict[str, torch.Tensor] = {}
    with _training(config, prepared, device=device, position=position) as batches:
        for progress in fit(
            model,
            batches,
            config=config,
            scale=scale,
            evaluate=lambda m: evaluate(m, val, scale),
            folder=folder,
            device=device,
            resume=resume,
        ):
            if progress.is_best:
                best = {k: v.detach().clone() for k, v in model.state_dict().items()}
            progress = _with_loading(progress, batches.progress)
            if progress.finished:
                progress = _scored_in_full(progress, config, prepared, model, best, folder, device=device)
            yield progress


def score(
    config: Config, prepared: Prepared, weights: Path, *, splits: tuple[str, ...], device: str = "cpu"
) -> dict[str, tuple[dict[str, float], Predictions]]:
    """Scores and forecasts of saved weights over all windows of each split, by the split's name.

    A window whose target is not known is forecast and not scored; scores are empty when none is known.

    Args:
        config: the trial's config.
        prepared: the data.
        weights: a ``model.safetensors`` file.
        splits: names of splits, or "all".
        device: "cpu" or "cuda".

    Raises:
        CheckpointError: the weights cannot be read, or are not of this model.
        DataError: a split has no window.
    """
    scale = target_scale(prepared)
    model = _model(config, prepared, device)
    load_weights(weights, model)
    found = {}
    for split in splits:
        with _scoring(config, prepared, split, device=device) as batches:
            forecasts = predict(model, batches, scale)
        scores = Scores(scale)
        scores.add(torch.from_numpy(forecasts.prediction), torch.from_numpy(forecasts.target))
        known = bool((forecasts.target == forecasts.target).all(axis=1).any())
        found[split] = (scores.result() if known else {}, forecasts)
    return found


def baselines(prepared: Prepared, survey: Survey) -> dict[str, dict[str, float]]:
    """Scores of zero, mean, last and ridge on the windows of the trials: {name: {"val/skill": ...}}.

    The scopes are those of a trial: val (the subset of a report), val_full and test (all windows). Ridge sees
    at most 200,000 training windows, spread over time.
    """
    config, scale = prepared.config, target_scale(prepared)
    found: dict[str, dict[str, float]] = {}

    def stream(split: str, windows: int | None = None, shuffle: bool = False) -> AsyncDataLoader:
        return _scoring(config, prepared, split, windows=windows, batch_size=_RIDGE_BATCH, shuffle=shuffle)

    # Shuffled is the order in which training rows are stored, and to ridge they are all the same.
    with stream("train", _RIDGE_WINDOWS, shuffle=True) as train, stream("val") as val:
        ridge = fit_ridge(train, val, scale=scale)
    for scope, split, count in (
        ("val", "val", config.train.eval_windows),
        ("val_full", "val", None),
        ("test", "test", None),
    ):
        windows = prepared.windows(split)
        if not len(windows):
            continue
        last = survey.last(split)
        if count is not None:
            last = last[prepared.subset(windows, count)]
        with stream(split, count) as batches:
            scores = score_baselines(batches, last=last, mean=prepared.target.mean, ridge=ridge, scale=scale)
        for name, values in scores.items():
            found.setdefault(name, {}).update({f"{scope}/{key}": v for key, v in values.items()})
    return found


def target_scale(prepared: Prepared) -> TargetScale:
    """The target's centre, scale and reference forecast, all from training windows."""
    target, kind, horizons = prepared.target, prepared.config.target.kind, prepared.config.target.horizons
    signed = kind in ("log_return", "vol_scaled_return", "direction", "price")
    if kind == "direction":
        unscaled = (0.0,) * len(horizons), (1.0,) * len(horizons)
        return TargetScale(*unscaled, target.mean, link="logistic", is_signed=signed, horizons=horizons)
    return TargetScale(target.center, target.scale, target.center, is_signed=signed, horizons=horizons)


def pick_device(gpus: float) -> str:
    """The torch device of a trial that was given ``gpus`` GPUs.

    Raises:
        ClusterError: GPUs were given, but torch sees none.
    """
    if gpus and not torch.cuda.is_available():
        raise ClusterError(
            f"the trial was given {gpus:g} GPU, but torch {torch.__version__} sees none; install a CUDA "
            "build of torch, or set cluster.gpus_per_trial = 0"
        )
    return "cuda" if gpus else "cpu"


def _model(config: Config, prepared: Prepared, device: str) -> nn.Module:
    n_features, n_targets = len(prepared.features), len(prepared.target.mean)
    return build_model(config.model, n_features=n_features, n_targets=n_targets, device=device)


def _training(
    config: Config, prepared: Prepared, *, device: str, position: Mapping[str, Any]
) -> AsyncDataLoader:
    """Training batches without end, from a saved position on."""
    return prepared.stream(
        "train",
        batch_size=config.train.batch_size,
        seed=config.seed,
        device=device,
        prefetch_batches=_ahead(config),
        context_length=config.data.context_length,
        stride=config.data.stride,
        endless=True,
        state=position or None,
    )


def _ahead(config: Config) -> int | Literal["auto"]:
    return config.loader.prefetch_batches if config.loader.mode == "async" else 0


def _with_loading(progress: Progress, loading: LoaderProgress) -> Progress:
    """A report with what the loader tells of itself."""
    told = {
        "data/prefetch_depth": float(loading.depth),
        "data/bytes_to_device": float(loading.device_bytes),
    }
    return replace(progress, metrics=progress.metrics | told, tier=loading.tier)


def _scoring(
    config: Config,
    prepared: Prepared,
    split: str,
    *,
    device: str = "cpu",
    windows: int | None = None,
    batch_size: int = _SCORE_BATCH,
    shuffle: bool = False,
) -> AsyncDataLoader:
    """One pass over a split, in natural order unless shuffled."""
    return prepared.stream(
        split,
        batch_size=batch_size,
        seed=config.seed,
        shuffle=shuffle,
        device=device,
        prefetch_batches=_ahead(config),
        context_length=config.data.context_length,
        windows=windows,
    )


def _scored_in_full(
    progress: Progress,
    config: Config,
    prepared: Prepared,
    model: nn.Module,
    best: dict[str, torch.Tensor],
    folder: Path | None,
    *,
    device: str,
) -> Progress:
    """The last report with the best weights' scores on all validation windows added."""
    if best:
        model.load_state_dict(best)
    elif folder:  # resumed, and no report since was better
        load_weights(folder / "best" / "model.safetensors", model)
    with _scoring(config, prepared, "val", device=device) as batches:
        scores = evaluate(model, batches, target_scale(prepared))
    full = {f"val_full/{name}": value for name, value in scores.items()}
    return replace(progress, metrics=progress.metrics | full)

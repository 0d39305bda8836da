"""fit(): a model, a stream of batches and a config become a stream of Progress, one a report.

A generator, so the caller decides what a report means (a line, a Tune result, a test) and stops early by
closing it. It seeds nothing and owns no thread: dropout draws from torch's global generator, and the
batches are the caller's, from the position that ``resume_state`` tells.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foxhunt_ray.batch import Batch
from foxhunt_ray.config import Config
from foxhunt_ray.errors import DataError, DivergedError
from foxhunt_ray.train.checkpoint import (
    TrainState,
    load_checkpoint,
    read_state,
    save_checkpoint,
    save_weights,
)
from foxhunt_ray.train.meter import Meter
from foxhunt_ray.train.metrics import TargetScale
from foxhunt_ray.train.optimizer import build_optimizer, clip_gradients, learning_rate


@dataclass(frozen=True, slots=True)
class Progress:
    """One report of a trial.

    Attributes:
        step: optimiser steps taken.
        report: 1 for the first.
        metrics: values by key, such as ``val/loss``; a score that is undefined is NaN.
        is_best: whether val/loss is the lowest so far.
        finished: whether the trial has ended.
        reason: "length" (max_steps reached), "patience" (no better val/loss for that many reports), else "".
        tier: where windows were gathered ("resident", "arena", "host"); empty when not known.
    """

    step: int
    report: int
    metrics: dict[str, float]
    is_best: bool
    finished: bool
    reason: str
    tier: str = ""


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    config: Config,
    scale: TargetScale,
    evaluate: Callable[[nn.Module], dict[str, float]],
    folder: Path | None = None,
    device: str = "cpu",
    resume: bool = False,
) -> Generator[Progress, None, None]:
    """Progress at every report, while ``model`` is trained by ``scale.loss``; the last is ``finished``.

    With a folder, the weights of the best report lie in ``best/model.safetensors`` (its numbers in
    ``model.json``) and the state of the last one in ``last/``, both written before the report is yielded. A
    resumed trial goes on bitwise where that state was saved; one that had already ended yields its last
    report once more.

    Args:
        model: maps features [B, L, F] to scaled forecasts [B, H]; it lies on ``device``.
        batches: endless, on ``device``; one is pulled a step. If they have a ``state_dict()``, as an
            ``AsyncDataLoader`` has, it is saved with the state.
        config: ``optimizer`` and ``train`` are used, and most of the rest must be the same at a resume.
        scale: between target units and scaled units.
        evaluate: scores of the model on the validation windows, among them ``loss``.
        folder: where the trial's state is kept; None = nowhere.
        device: "cpu" or a CUDA device.
        resume: go on from ``folder/last`` if it holds a state; else what is there is replaced.

    Raises:
        DivergedError: a loss or a gradient norm is not finite.
        DataError: the batches ended.
        CheckpointError: the state cannot be written, or is not that of this model and config.
    """
    optimizer = build_optimizer(model, config.optimizer)
    fingerprint = _fingerprint(config, device)
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # an earlier trial of this process may have needed more
    state = TrainState()
    if folder is not None and resume:
        saved = load_checkpoint(folder / "last", model, optimizer, fingerprint=fingerprint, device=device)
        state = saved or state
        if state.reason:
            yield _progress(state)
    elif folder is not None:
        # A later resume must not find the state of an older trial.
        shutil.rmtree(folder / "last", ignore_errors=True)
    source, position = iter(batches), getattr(batches, "state_dict", dict)
    while not state.reason:
        meter = Meter(device)
        state, metrics = _advance(
            model, optimizer, source, state=state, config=config, scale=scale, meter=meter
        )
        metrics |= meter.metrics() | {f"val/{name}": value for name, value in evaluate(model).items()}
        state = replace(_reported(state, metrics, config=config), position=position())
        if folder is not None:
            _save(folder, model, optimizer, state=state, fingerprint=fingerprint, device=device)
        yield _progress(state)


def resume_state(folder: Path) -> TrainState:
    """The state in a trial's folder, that of a trial which has not begun if there is none.

    Raises:
        CheckpointError: the state is damaged.
    """
    return read_state(folder / "last") or TrainState()


def _advance(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    source: Iterator[Batch],
    *,
    state: TrainState,
    config: Config,
    scale: TargetScale,
    meter: Meter,
) -> tuple[TrainState, dict[str, float]]:
    """Trains up to the next report; the new counters, and what was measured on the way."""
    every, length = config.train.report_every, config.train.max_steps
    stop = min((state.step // every + 1) * every, length)
    loss_sum = norm_sum = lr = 0.0
    model.train()  # at every report: whoever used the model in between may have left it in evaluation mode
    for step in range(state.step, stop):
        with meter.waiting():
            batch = next(source, None)
        if batch is None:
            raise DataError(
                f"the batches ended after {step} steps; expected train.max_steps = {length}; "
                "repeat the stream epoch after epoch"
            )
        lr = learning_rate(step, optimizer=config.optimizer, max_steps=length)
        with meter.stepping(len(batch)):
            loss, norm = _step(model, optimizer, batch, step=step, lr=lr, config=config, scale=scale)
        loss_sum, norm_sum = loss_sum + loss, norm_sum + norm
    meter.stop()
    steps, wait_s = stop - state.step, state.wait_s + meter.wait_s
    metrics = {
        "train/loss": loss_sum / steps,
        "optimizer/lr": lr,
        "optimizer/grad_norm": norm_sum / steps,
        "data/wait_s": wait_s,
    }
    return replace(state, step=stop, wait_s=wait_s), metrics


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    step: int,
    lr: float,
    config: Config,
    scale: TargetScale,
) -> tuple[float, float]:
    """Moves the weights once; the loss before the move and the gradient norm before clipping."""
    loss = scale.loss(model(batch.features).float(), batch.targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = clip_gradients(model, config.optimizer.grad_clip)
    # Both in one copy: on a GPU each read waits for the device. Before the move, so that weights stay finite.
    loss_value, norm_value = torch.stack((loss.detach(), norm.float())).tolist()
    if not math.isfinite(loss_value):
        raise _diverged(step + 1, "loss", loss_value, lr)
    if not math.isfinite(norm_value):
        raise _diverged(step + 1, "gradient norm", norm_value, lr)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return loss_value, norm_value


def _reported(state: TrainState, metrics: dict[str, float], *, config: Config) -> TrainState:
    """The counters after a report with ``metrics``: is it the best, and is it the last."""
    loss = metrics["val/loss"]
    if not math.isfinite(loss):
        raise _diverged(state.step, "validation loss", loss, metrics["optimizer/lr"])
    state = replace(state, report=state.report + 1, stale_reports=state.stale_reports + 1, metrics=metrics)
    if loss < state.best_value:
        state = replace(state, best_value=loss, best_step=state.step, stale_reports=0)
    # Length before patience: a trial whose patience ends with its last step has had its full length.
    if state.step >= config.train.max_steps:
        return replace(state, reason="length")
    if 0 < config.train.patience <= state.stale_reports:
        return replace(state, reason="patience")
    return state


def _save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    state: TrainState,
    fingerprint: Mapping[str, Any],
    device: str,
) -> None:
    # Best first: killed in between, the resumed trial repeats this report and writes the same weights again.
    if state.best_step == state.step:
        notes = {"step": state.step, "report": state.report, **state.metrics}
        save_weights(folder / "best" / "model.safetensors", model, notes=notes)
    save_checkpoint(folder / "last", model, optimizer, state=state, fingerprint=fingerprint, device=device)


def _progress(state: TrainState) -> Progress:
    return Progress(
        step=state.step,
        report=state.report,
        metrics=dict(state.metrics),
        is_best=state.best_step == state.step,
        finished=bool(state.reason),
        reason=state.reason,
    )


def _diverged(step: int, what: str, value: float, lr: float) -> DivergedError:
    return DivergedError(
        f"step {step}: {what} is {value} at learning rate {lr:.3g}; expected a finite number; "
        "try a lower optimizer.lr, a larger optimizer.warmup_frac, or optimizer.grad_clip = 1.0"
    )


def _fingerprint(config: Config, device: str) -> dict[str, Any]:
    """Values that decide what a step does; where files lie and how batches travel may change at a resume."""
    tree = config.model_dump(mode="json", by_alias=True)
    sections = ("data", "features", "target", "split", "model", "optimizer", "train")
    flat = {f"{name}.{key}": value for name in sections for key, value in tree[name].items()}
    del flat["data.path"]
    return flat | {"seed": config.seed, "device": torch.device(device).type}

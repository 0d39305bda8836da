"""``bench_data.py --device cuda``: where windows are gathered, and whether a real step ever waits for them.

A step trains a Mamba-2 as a trial does, and reads its loss. It is busy from its first kernel to its last, by
CUDA's own clock: gaps between its kernels are busy here, and idle in NVML's utilisation beside it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from bench_common import Arm, Figures, bench_config
from bench_loaders import Epochs, copies, measure, own_batches, own_stream
from bench_stalls import ahead, delayed

from foxhunt_ray.batch import Batch
from foxhunt_ray.config import with_values
from foxhunt_ray.data import Prepared, Survey, prepare
from foxhunt_ray.data.prefetch import AsyncDataLoader
from foxhunt_ray.models import build_model
from foxhunt_ray.train.optimizer import build_optimizer, clip_gradients

_TIERS = ("resident", "arena", "host")
_SIZES = {"model.d_model": 256, "model.n_layer": 4}  # so large that a step is more than its launches
_WARM_UP = 10  # steps that are not counted
_SLOW = 0.28  # of a step: a loader without look-ahead keeps the device 78 % busy

Step = Callable[[Batch], None]


def device_arms(found: Survey, options: Namespace) -> dict[str, Arm]:
    """Windows/s of every tier, then steps fed by our stream, and by one that a sleep slows down."""
    arms: dict[str, Arm] = {
        "memcpy": functools.partial(measure, copies(options), seconds=options.seconds),
    }
    for tier in _TIERS:
        config = bench_config(options, {"loader.tier": tier})
        held = prepare(config, replace(found, config=config))
        epochs = _finished(own_batches(held, depth=3, options=options, device=options.device))
        arms[f"tier {tier}"] = functools.partial(measure, epochs, seconds=options.seconds)
    prepared = prepare(found.config, found)
    step = _real_step(prepared, options)
    slow_s = _SLOW * _step_seconds(prepared, step, options)
    for depth in (0, 3):
        opened = functools.partial(own_stream, prepared, options, depth, options.device)
        arms[f"real step, {ahead(depth)}"] = functools.partial(_training, opened, step, options)
        slow = functools.partial(_slow_stream, prepared, options, depth, slow_s)
        arms[f"real step, producer {_SLOW}, {ahead(depth)}"] = functools.partial(
            _training, slow, step, options
        )
    return arms


def _finished(epochs: Epochs) -> Epochs:
    """The same batches; an epoch is over when the device has them all."""

    def epoch(number: int) -> Iterator[Any]:
        try:
            yield from epochs(number)
        finally:
            torch.cuda.synchronize()

    return epoch


def _slow_stream(
    prepared: Prepared, options: Namespace, depth: int, seconds: float, epoch: int
) -> AsyncDataLoader:
    source = delayed(own_stream(prepared, options, 0, "cpu", epoch), seconds)
    return AsyncDataLoader(source, prefetch_count=depth, device=options.device)


def _real_step(prepared: Prepared, options: Namespace) -> Step:
    """A step of training on one batch; its weights are kept from step to step."""
    config = with_values(prepared.config, _SIZES)
    sizes = {"n_features": len(prepared.features), "n_targets": len(prepared.target.mean)}
    model = build_model(config.model, **sizes).to(options.device)
    optimizer = build_optimizer(model, config.optimizer)

    def step(batch: Batch) -> None:
        loss = torch.nn.functional.mse_loss(model(batch.features), batch.targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_gradients(model, config.optimizer.grad_clip)
        loss.item()  # as a trial reads it: the host waits for the device
        optimizer.step()

    return step


def _step_seconds(prepared: Prepared, step: Step, options: Namespace) -> float:
    """Time of a step whose batch lies on the device already."""
    with own_stream(prepared, options, 0, options.device, 0) as stream:
        batch = stream.next_batch()
    assert batch is not None
    for _ in range(_WARM_UP):
        step(batch)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(options.batches):
        step(batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / options.batches


def _training(
    opened: Callable[[int], Iterable[Batch]], step: Step, options: Namespace, repeat: int
) -> Figures:
    """The share of the time in which the device was inside a step, and the host's wait for batches."""
    source = iter(opened(repeat))
    for batch in itertools.islice(source, _WARM_UP):
        step(batch)
    torch.cuda.synchronize()
    marks, waited, begun = [], 0.0, time.perf_counter()
    for _ in range(options.batches):
        asked = time.perf_counter()
        batch = next(source)
        waited += time.perf_counter() - asked
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step(batch)
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize()
    spent = time.perf_counter() - begun
    busy = sum(start.elapsed_time(end) for start, end in marks) / 1000
    figures = {"busy_frac": busy / spent, "stall_pct": 100 * waited / spent}
    return figures | {"ms_per_batch": 1000 * spent / options.batches} | _utilization()


def _utilization() -> Figures:
    """NVML's share of the last moments in which a kernel ran [%]; empty where NVML cannot be asked."""
    with contextlib.suppress(ModuleNotFoundError, RuntimeError):
        return {"nvml_pct": float(torch.cuda.utilization())}
    return {}

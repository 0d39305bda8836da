"""Throughput arms of ``bench_data.py``: loaders of the same windows, and the copy that bounds them all.

Rivals get the rows already scaled, for nothing. All run on one torch thread; those on Ray or with workers use
other processes beside it, whose CPU time counts.
"""

from __future__ import annotations

import functools
import itertools
import logging
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import ray
import torch
from bench_common import Arm, Figures, cpu_clock
from bench_datasets import ByBatch, FlatRows, PerItem
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from foxhunt_ray.batch import Batch
from foxhunt_ray.data import Prepared, Survey
from foxhunt_ray.data.prefetch import AsyncDataLoader

Epochs = Callable[[int], Iterable[Any]]  # number of the epoch -> its batches
_AHEAD = 3
_COPIED_BYTES = 256_000_000  # many times a cache
_NAIVE_BYTES = 200_000_000  # windows of an epoch that Ray makes anew
_KEPT_BYTES = 80_000_000  # windows that Ray keeps in its store
_BLOCK_ROWS = 8192


def throughput_arms(
    prepared: Prepared, direct: Prepared, found: Survey, options: Namespace
) -> dict[str, Arm]:
    """Every loader, by name; see ``measure`` for the figures."""
    flat = flat_rows(prepared, found)
    ours = functools.partial(own_batches, options=options)
    check_same_windows(prepared, flat, options)
    loaders: dict[str, Epochs] = {
        "DataLoader per item, 0 workers": per_item(flat, options, workers=0),
        "DataLoader per item, 2 workers": per_item(flat, options, workers=2),
        "DataLoader __getitems__, 0 workers": _by_batch(flat, options),
        "ours through Ray": ours(prepared, depth=0),
        "ours through Ray, 3 ahead": ours(prepared, depth=_AHEAD),
        "ours through Ray, a stream an epoch": ours(prepared, depth=0, endless=False),
        "ours direct": ours(direct, depth=0),
        "ours direct, a stream an epoch": ours(direct, depth=0, endless=False),
        "memcpy": copies(options),
    }
    arms: dict[str, Arm] = {
        name: functools.partial(measure, loader, seconds=options.seconds) for name, loader in loaders.items()
    }
    naive, kept = _ray_windows(flat, options)
    for name, epochs in (("naive Ray windows", naive), ("Ray materialised windows", kept)):
        arms[name] = functools.partial(measure, epochs, seconds=options.seconds, whole=True)
    return arms


def measure(epochs: Epochs, repeat: int, *, seconds: float, whole: bool = False) -> Figures:
    """Read epochs for about so many seconds beside the time to the first batch of each.

    ``windows_per_s`` is of the time after the first batch of each epoch (or endless stream),
    ``windows_per_s_all`` of all the time; ``cpu_us_per_window`` is of all processes. ``whole`` = epochs are
    always read to their end.
    """
    firsts, windows, first_windows = [], 0, 0
    cpu_s, begun = cpu_clock(), time.perf_counter()
    for epoch in itertools.count(1000 * repeat):
        started = time.perf_counter()
        batches = iter(epochs(epoch))
        first_windows += _size(next(batches))
        firsts.append(time.perf_counter() - started)
        for batch in batches:
            windows += _size(batch)
            if not whole and time.perf_counter() - begun > seconds + sum(firsts):
                break
        del batches  # closes what was left early
        if time.perf_counter() - begun > seconds + sum(firsts):
            break
    spent = time.perf_counter() - begun
    used = cpu_s()
    return {
        "windows_per_s": windows / (spent - sum(firsts)),
        "windows_per_s_all": (windows + first_windows) / spent,
        "cpu_us_per_window": 1e6 * used / (windows + first_windows),
        "first_batch_ms": 1000 * statistics.median(firsts),
    }


def own_batches(
    prepared: Prepared, *, depth: int, options: Namespace, device: str = "cpu", endless: bool = True
) -> Epochs:
    """The training windows of foxhunt_ray, shuffled; depth 0 = on demand, without a thread.

    Endless, as a trial reads them, or with a new stream for each epoch, which reads all rows again.
    """
    return lambda epoch: own_stream(prepared, options, depth, device, epoch, endless=endless)


def own_stream(
    prepared: Prepared, options: Namespace, depth: int, device: str, epoch: int, *, endless: bool = True
) -> AsyncDataLoader:
    """One stream of them."""
    return prepared.stream(
        "train",
        batch_size=options.batch,
        epoch=epoch,
        prefetch_batches=depth,
        device=device,
        endless=endless,
    )


def flat_rows(prepared: Prepared, found: Survey) -> FlatRows:
    """The same windows that ``prepared`` serves, for the rivals."""
    features = torch.from_numpy(np.concatenate(found.rows))
    features.sub_(torch.from_numpy(prepared.mean).float()).mul_(torch.from_numpy(1 / prepared.std).float())
    if clip := found.config.features.clip:
        features.clamp_(-clip, clip)
    offsets = np.cumsum([0, *map(len, found.rows)])
    ends = [e + o for e, o in zip(found.ends("train"), offsets, strict=False)]
    targets = torch.from_numpy(np.concatenate(found.targets).astype(np.float32))
    return FlatRows(features, targets, np.concatenate(ends), found.config.data.context_length)


def check_same_windows(prepared: Prepared, flat: FlatRows, options: Namespace) -> None:
    """Stop where rivals would be given other windows than ours."""
    stream = prepared.stream("train", batch_size=options.batch, shuffle=False, prefetch_batches=0)
    with stream:
        batch = stream.next_batch()
        total = stream.progress.batches_total
    assert batch is not None and total == -(-len(flat.ends) // options.batch)
    features, targets = ByBatch(flat).__getitems__(list(range(len(batch))))
    assert torch.allclose(features, batch.features) and torch.equal(targets, batch.targets)


def per_item(flat: FlatRows, options: Namespace, *, workers: int) -> Epochs:
    """torch's DataLoader at its best settings for a data set of single windows."""
    dataset = PerItem(flat)
    more: dict[str, Any] = {}
    if workers:  # not forked: a process that uses Ray may hang after it was
        more = {"persistent_workers": True, "prefetch_factor": 3, "multiprocessing_context": "spawn"}
    loader = DataLoader(
        dataset,
        batch_size=options.batch,
        sampler=RandomSampler(dataset),
        num_workers=workers,
        pin_memory=False,
        **more,
    )
    return lambda epoch: loader


def _by_batch(flat: FlatRows, options: Namespace) -> Epochs:
    dataset = ByBatch(flat)
    loader = DataLoader(
        dataset, batch_size=options.batch, sampler=RandomSampler(dataset), collate_fn=lambda batch: batch
    )
    return lambda epoch: loader


def copies(options: Namespace) -> Epochs:
    """Contiguous copies of as many bytes a batch into new memory, out of a block that no cache holds."""
    size = options.batch * options.length * options.features
    count = max(4, _COPIED_BYTES // (4 * size))
    source = torch.ones(count, options.batch, options.length, options.features)

    def epoch(_: int) -> Iterator[tuple[Tensor]]:
        for number in range(count):
            yield (source[number].clone(),)

    return epoch


def _ray_windows(flat: FlatRows, options: Namespace) -> tuple[Epochs, Epochs]:
    """Windows made by Ray Data in each epoch, and once and kept; both of as many rows as the store bears.

    In the order of the rows, without regard to gaps: neither shuffling nor care costs it anything.
    """
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # a line for every epoch
    window = 4 * flat.length * flat.features.shape[1]
    rows = np.concatenate([flat.features.numpy(), flat.targets.numpy()], axis=1)

    def dataset(nbytes: int) -> Any:
        count = min(len(rows), nbytes // window + flat.length)
        parts = np.array_split(rows[:count], max(1, count // _BLOCK_ROWS))
        made = functools.partial(_make_windows, length=flat.length, width=flat.features.shape[1])
        return ray.data.from_numpy(parts).map_batches(made, batch_size=None, batch_format="numpy")

    def epochs(source: Any) -> Epochs:
        return lambda epoch: source.iter_torch_batches(batch_size=options.batch, prefetch_batches=_AHEAD)

    small = 8 if options.quick else 1
    return epochs(dataset(_NAIVE_BYTES // small)), epochs(dataset(_KEPT_BYTES // small).materialize())


def _make_windows(block: dict[str, Any], *, length: int, width: int) -> dict[str, Any]:
    """Every window of a block of rows [n, F + H]: x [n - L + 1, L, F], y [n - L + 1, H]."""
    rows = block["data"]
    view = np.lib.stride_tricks.sliding_window_view(rows[:, :width], length, axis=0)
    return {"x": np.ascontiguousarray(view.swapaxes(1, 2)), "y": rows[length - 1 :, width:]}


def _size(batch: Any) -> int:
    """Windows of a batch of any of the loaders."""
    if isinstance(batch, Batch):
        return len(batch)
    return len(batch["x"] if isinstance(batch, dict) else batch[0])

"""What a run feels of the loader: stalls of its steps, first batches, early breaks, resuming.

The device is a sleep: it leaves the cores to the loader, as a GPU does. Only ``slow_pools`` and ``with_pool``
know how the loader reads pools of rows.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal
from unittest import mock

import torch
from bench_common import Arm, Figures

from foxhunt_ray.batch import Batch
from foxhunt_ray.config import Config, with_values
from foxhunt_ray.data import Prepared, Survey, prepare
from foxhunt_ray.data.prefetch import AsyncDataLoader
from foxhunt_ray.data.stream.build import _BLOCK_BYTES
from foxhunt_ray.data.stream.pools import PoolReader

Depth = int | Literal["auto"]  # batches ahead
_EVERY, _BURST_STEPS = 50, 10


def stall_arms(prepared: Prepared, options: Namespace) -> dict[str, Arm]:
    """Steps fed by producers that are slow steadily, or in bursts of 10 steps every 50 batches.

    Bursts are counted after the first two of them, so that a depth may be learnt.
    """
    step, count = options.step_ms / 1000, options.batches
    burst, learnt = _BURST_STEPS * step, 0 if options.quick else 2 * _EVERY

    def stream(data: Prepared, epoch: int, depth: Depth, batch: int = options.batch) -> AsyncDataLoader:
        return data.stream("train", batch_size=batch, epoch=epoch, prefetch_batches=depth, endless=True)

    def steady(share: float, depth: Depth, repeat: int) -> Figures:
        slow = delayed(stream(prepared, repeat, 0), share * step)
        return _steps(lambda: AsyncDataLoader(slow, prefetch_count=depth), count, step, skip=1)

    def batch_burst(depth: Depth, repeat: int) -> Figures:
        slow = delayed(stream(prepared, repeat, 0), 0.2 * step, burst)
        return _steps(lambda: AsyncDataLoader(slow, prefetch_count=depth), 2 * count, step, skip=learnt)

    def chunk_burst(depth: Depth, repeat: int) -> Figures:
        with slow_pools(prepared, burst, _EVERY) as (slow, batch):
            return _steps(lambda: stream(slow, repeat, depth, batch), 2 * count, step, skip=learnt)

    arms: dict[str, Arm] = {"steps alone": lambda _: _steps(lambda: itertools.repeat(0), count, step, skip=1)}
    for share, depth in itertools.product((0.28, 0.8), (0, 3, "auto")):
        arms[f"producer {share} of a step, {ahead(depth)}"] = functools.partial(steady, share, depth)
    for depth in (3, "auto"):
        arms[f"burst in the batch stage, {ahead(depth)}"] = functools.partial(batch_burst, depth)
        arms[f"burst in the chunk stage, {ahead(depth)}"] = functools.partial(chunk_burst, depth)
    return arms


def ahead(depth: Depth) -> str:
    """A depth in words."""
    return f"{depth} ahead" if depth else "on demand"


@contextlib.contextmanager
def slow_pools(prepared: Prepared, seconds: float, every: int) -> Iterator[tuple[Prepared, int]]:
    """The same data in pools of one block, each of which takes ``seconds`` longer to load.

    The last block is smaller, and takes so much less. With the data comes the batch size at which a block
    lasts ``every`` batches.
    """
    load = PoolReader._load
    block_rows = _BLOCK_BYTES // (4 * (len(prepared.features) + len(prepared.target.mean)))

    def slow(self: PoolReader, rows: Any, numbers: Any) -> Any:
        time.sleep(seconds * float(self.plan.units.rows[numbers].sum()) / block_rows)
        return load(self, rows, numbers)

    with mock.patch.object(PoolReader, "_load", slow):
        yield with_pool(prepared, 1), max(1, block_rows // every)


def with_pool(prepared: Prepared, rows: int) -> Prepared:
    """The same data, of which so many rows are shuffled together."""
    row_bytes = 4 * (len(prepared.features) + len(prepared.target.mean)) + 16  # a symbol and a stamp
    return replace(prepared, config=with_values(prepared.config, {"loader.pool": f"{rows * row_bytes}B"}))


def delayed(batches: Iterable[Batch], seconds: float, burst: float = 0.0) -> Iterator[Batch]:
    """The same batches; each takes ``seconds`` to make, if not longer, and every 50th ``burst`` more."""
    source = iter(batches)
    for number in itertools.count(1):
        begun = time.perf_counter()
        batch = next(source, None)
        if batch is None:
            return
        left = max(0.0, seconds - (time.perf_counter() - begun))
        time.sleep(left + (burst if number % _EVERY == 0 else 0.0))
        yield batch


def _steps(opened: Callable[[], Iterable[Any]], count: int, step_s: float, *, skip: int) -> Figures:
    """``count`` steps after ``skip`` that are not counted.

    ``busy_frac`` is the share of the time spent in steps, ``stall_pct`` that spent waiting for batches. A
    sleep ends late, most of all on a busy machine: ``late_pct`` says how much, beside that of "steps alone".
    """
    batches = opened()
    source = iter(batches)
    for _ in itertools.islice(source, skip):
        time.sleep(step_s)
    waited, begun = 0.0, time.perf_counter()
    for _ in range(count):
        asked = time.perf_counter()
        batch = next(source)
        waited += time.perf_counter() - asked
        time.sleep(step_s)
        del batch  # to free it is no waiting
    spent = time.perf_counter() - begun
    depth = batches.progress.depth if isinstance(batches, AsyncDataLoader) else 0
    return {
        "depth": depth,
        "busy_frac": 1 - waited / spent,
        "stall_pct": 100 * waited / spent,
        "late_pct": 100 * (spent - waited - count * step_s) / spent,
        "ms_per_batch": 1000 * spent / count,
    }


def first_batches(found: Survey, config: Config, options: Namespace, repeat: int) -> Figures:
    """Time to a first batch: of a new preparation, resuming, and of later epochs.

    ``running_ms`` is the wait for the first batch of a later epoch in a stream without end, as a trial reads,
    here without any step between the batches; ``later_epoch_ms`` that of a stream which is opened anew.
    """
    begun = time.perf_counter()
    prepared = prepare(config, found)
    prepare_s = time.perf_counter() - begun

    def first(epoch: int, start: int = 0) -> float:
        asked = time.perf_counter()
        with prepared.stream("train", batch_size=options.batch, epoch=epoch, start_batch=start) as stream:
            stream.next_batch()
            return 1000 * (time.perf_counter() - asked)

    each = -(-sum(map(len, found.ends("train"))) // options.batch)
    middle = each // 2
    earliest = first(0)
    pairs = [(first(epoch), first(epoch, middle)) for epoch in range(1, 6)]
    fresh, resumed = (statistics.median(times) for times in zip(*pairs, strict=True))
    with prepared.stream("train", batch_size=options.batch, endless=True) as stream:
        waits = []
        for _ in range(each + 1 if options.quick else 4 * each + 1):
            before = stream.progress.wait_s
            stream.next_batch()
            waits.append(1000 * (stream.progress.wait_s - before))
    return {
        "prepare_s": prepare_s,
        "epoch_1_ms": earliest,
        "running_ms": statistics.median(waits[each::each]),
        "later_epoch_ms": fresh,
        "resumed_ms": resumed,
        "resumed_over_fresh": resumed / fresh,
    }


def early_breaks(prepared: Prepared, options: Namespace, repeat: int) -> Figures:
    """Threads that 100 epochs leave behind for more than two seconds which ended at their first batch."""
    before = threading.active_count()
    for epoch in range(20 if options.quick else 100):
        for _ in prepared.stream("train", batch_size=options.batch, epoch=epoch):
            break
    until = time.monotonic() + 2.0
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    return {"threads_left": threading.active_count() - before}


def resuming(prepared: Prepared, options: Namespace, repeat: int) -> Figures:
    """The share of resumed batches that equal those of the whole epoch bit by bit."""

    def stream(**more: int) -> AsyncDataLoader:
        return prepared.stream("train", batch_size=options.batch, epoch=repeat, seed=1, **more)

    total = stream(prefetch_batches=0).progress.batches_total or 0
    starts = sorted({0, 1, total // 3, total // 2, max(total - 3, 0), total - 1})
    wanted = {n for start in starts for n in range(start, min(start + 3, total))}
    whole = {n: batch for n, batch in enumerate(stream()) if n in wanted}
    equal = []
    for start in starts:
        for number, batch in zip(range(start, start + 3), stream(start_batch=start), strict=False):
            equal.append(_same(batch, whole[number]))
    return {"equal_share": sum(equal) / len(equal), "compared": len(equal)}


def _same(one: Batch, other: Batch) -> bool:
    names = ("features", "targets", "symbol", "ts_event")
    return all(torch.equal(getattr(one, n), getattr(other, n)) for n in names)

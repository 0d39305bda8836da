"""How random the order of shuffled batches is, and what reading them costs a trial in private memory."""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from bench_common import Arm, Figures, bench_config, bench_market, private_bytes
from bench_stalls import with_pool
from numpy.typing import NDArray

from foxhunt_ray.data import Prepared, prepare
from foxhunt_ray.data.survey import survey_market

_SYMBOLS, _SYMBOL_ROWS = 8, 480_000  # of the market whose order is judged
_POOL_SHARE = 0.07
_SAMPLE_EVERY = 50  # batches between looks at the private memory


def order_arm(options: Namespace) -> Arm:
    """How far shuffled batches of one input are from a random order, with a pool of 7 % of the rows.

    Nearly all rows are training rows: only these are stored mixed.
    """
    rows = 10_000 if options.quick else _SYMBOL_ROWS

    @functools.cache
    def made() -> tuple[Prepared, NDArray[np.float64], NDArray[np.int64]]:
        market = bench_market(rows * _SYMBOLS, 1, _SYMBOLS, gaps=False)
        config = bench_config(options, {"split.train": 0.98, "split.val": 0.01, "split.test": 0.01})
        levels = np.stack([np.log(b.columns["close"]) for b in market.bars])
        prepared = prepare(config, survey_market(config, market))
        return with_pool(prepared, int(_POOL_SHARE * rows * _SYMBOLS)), levels, market.bars[0].ts_event

    def arm(repeat: int) -> Figures:
        prepared, levels, stamps = made()
        stream = prepared.stream("train", batch_size=options.batch, epoch=repeat, prefetch_batches=0)
        full = [(b.symbol, b.ts_event) for b in stream if len(b) == options.batch]
        symbol, ts_event = (torch.stack(parts).numpy() for parts in zip(*full, strict=True))
        return order_figures(symbol, levels[symbol, np.searchsorted(stamps, ts_event)])

    return arm


def order_figures(symbol: NDArray[np.int64], level: NDArray[np.float64]) -> Figures:
    """Of batches [K, B]: var(batch mean) / (var / B), which is 1 in a random order, and their symbols."""
    kinds = np.unique(symbol)
    seen = sum((symbol == kind).any(axis=1) for kind in kinds)
    effect = level.mean(axis=1).var() / (level.var() / level.shape[1])
    return {"design_effect": float(effect), "symbols_a_batch": float(np.mean(seen)), "symbols": len(kinds)}


def trials(prepared: Prepared, options: Namespace, repeat: int) -> Figures:
    """Largest growth of private memory over one epoch in new processes: one alone, then four together."""
    shared = ray.put(prepared)
    count = 1 if options.quick else 4
    actors = [ray.remote(num_cpus=0)(Trial).remote() for _ in range(1 + count)]
    pids = ray.get([actor.ready.remote() for actor in actors])
    alone = ray.get(actors[0].epoch.remote(shared, options.batch))
    _end(actors[:1], pids[:1])
    together = ray.get([actor.epoch.remote(shared, options.batch) for actor in actors[1:]])
    _end(actors[1:], pids[1:])
    mean = statistics.mean(together)
    node = (prepared.nbytes + alone, prepared.nbytes + sum(together))
    return {
        "private_mb_one": alone / 1e6,
        "private_mb_each_of_four": mean / 1e6,
        "each_over_one": mean / alone,
        "store_mb": prepared.nbytes / 1e6,
        "node_mb_one": node[0] / 1e6,
        "node_mb_four": node[1] / 1e6,
        "node_four_over_one": node[1] / node[0],
    }


def _end(actors: Sequence[Any], pids: Sequence[int]) -> None:
    """End processes, and wait until they are gone, so that the next arm has the machine to itself."""
    for actor in actors:
        ray.kill(actor)
    until = time.monotonic() + 10
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)


class Trial:
    """A process like that of a trial, which reads an epoch."""

    def ready(self) -> int:
        """Import what a trial imports, here by way of this module, and use it once; the process's number."""
        torch.set_num_threads(1)
        torch.ones(8, 8).index_select(0, torch.arange(4))
        return os.getpid()

    def epoch(self, prepared: Prepared, batch_size: int) -> int:
        """Bytes of private memory, at most, above what was held before the first batch was asked for."""
        before = private_bytes()
        largest = before
        with prepared.stream("train", batch_size=batch_size) as stream:
            for number in itertools.count():
                if stream.next_batch() is None:
                    return largest - before
                if number % _SAMPLE_EVERY == 0:
                    largest = max(largest, private_bytes())
        raise AssertionError("unreachable")

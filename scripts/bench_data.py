"""Does preparing batches ahead keep the device busy, and what does the stream deliver by itself?

Arms run in turn in one process and are repeated; each prints one JSON line with the median and the spread.
The device is a sleep of ``--step-ms`` (it leaves the cores to the loader, as a GPU does); the slow producer
adds a sleep of 0.28 steps a batch, at which a loader without look-ahead keeps a device 78 % busy.

    python scripts/bench_data.py [--rows 200000] [--features 16] [--step-ms 10] [--batches 300] [--repeats 5]
    python scripts/bench_data.py --ingest [--rows 4000000]  # beside pyarrow, pandas, polars
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from foxhunt_ray import cluster
from foxhunt_ray.config import Config, load_config
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.survey import Survey, survey_market


def main() -> None:
    """Run every arm and print its line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("rows", 0), ("features", 16), ("batches", 300), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--ingest", action="store_true", help="measure reading instead")
    options = parser.parse_args()
    options.rows = options.rows or (4_000_000 if options.ingest else 200_000)
    if options.ingest:
        from bench_ingest import measure

        measure(options.rows, options.repeats, {"commit": _commit()})
        return
    config = load_config(
        None, ["features.groups=[]", 'features.columns=["c0*","c1*"]', "target.kind=log_return"]
    )
    found = survey_market(config, _market(options.rows, options.features))
    cluster.prepare_environment(config)
    with cluster.connect(config, data_bytes=found.nbytes):
        _measure(config, found, options)


def _measure(config: Config, found: Survey, options: argparse.Namespace) -> None:
    import ray
    import torch

    from foxhunt_ray.data import prepare
    from foxhunt_ray.data.prefetch import AsyncDataLoader

    torch.set_num_threads(1)
    prepared = prepare(config, found)
    step_s = options.step_ms / 1000
    about = {
        "commit": _commit(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "ray": ray.__version__},
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
        "config": vars(options) | {"context_length": config.data.context_length, "batch_size": 256},
        "store_bytes_over_raw": prepared.nbytes / (options.rows * options.features * 4),
    }

    def stream(depth: int, epoch: int) -> Iterable[Any]:
        return prepared.stream("train", batch_size=256, epoch=epoch, prefetch_batches=depth)

    def slow(depth: int, epoch: int) -> Iterable[Any]:
        source = prepared.stream("train", batch_size=256, epoch=epoch, prefetch_batches=0)
        return AsyncDataLoader(_delayed(source, 0.28 * step_s), prefetch_count=depth)

    arms: dict[str, Callable[[int], dict[str, float]]] = {}
    for mode, depth in (("sync", 0), ("async", 3)):
        arms[f"stream alone, {mode}"] = lambda e, d=depth: _consume(stream(d, e), options.batches, 0)
        arms[f"step, {mode}"] = lambda e, d=depth: _consume(stream(d, e), options.batches, step_s)
        arms[f"step, slow producer, {mode}"] = lambda e, d=depth: _consume(
            slow(d, e), options.batches, step_s
        )
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for repeat in range(options.repeats + 1):
        for name, arm in arms.items():
            measured = arm(repeat)
            if repeat:  # the first round warms up
                runs[name].append(measured)
    for name, results in runs.items():
        print(json.dumps({"arm": name, **_summary(results), **about}))


def _consume(batches: Iterable[Any], count: int, step_s: float) -> dict[str, float]:
    """Pull ``count`` batches with a step after each; what was reached, the first batch left out."""
    source = iter(batches)
    next(source)
    windows, started = 0, time.perf_counter()
    for batch in itertools.islice(source, count):
        windows += len(batch)
        if step_s:
            time.sleep(step_s)
    spent = time.perf_counter() - started
    busy = min(1.0, count * step_s / spent)
    return {"windows_per_s": windows / spent, "busy_frac": busy, "ms_per_batch": 1000 * spent / count}


def _delayed(batches: Iterable[Any], seconds: float) -> Iterator[Any]:
    for batch in batches:
        time.sleep(seconds)
        yield batch


def _summary(results: list[dict[str, float]]) -> dict[str, float]:
    found = {}
    for key in results[0]:
        values = [r[key] for r in results]
        found[key] = round(statistics.median(values), 4)
        found[f"{key}_spread"] = round(max(values) - min(values), 4)
    return found


def _market(rows: int, features: int) -> Market:
    random = np.random.default_rng(0)
    columns = {f"c{k:02}": random.standard_normal(rows) for k in range(features)}
    columns["close"] = 100 * np.exp(np.cumsum(random.standard_normal(rows) * 1e-4))
    return Market((Bars("AAA", np.arange(rows, dtype=np.int64) * 60 * 10**9, columns),))


def _commit() -> str:
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()

"""Arms of ``bench_data.py --ingest``: how fast parquet becomes canonical bars, and in how much memory.

Each arm is a process of its own on one core: it reads the same columns of the same files again and again, and
a thread samples the private memory above that after the imports. One JSON line an arm and data set.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("open", "high", "low", "close", "volume", "bid_close", "ask_close")
ARMS = ("pyarrow", "pandas", "polars", "foxhunt read", "foxhunt check")


def measure(rows: int, repeats: int, about: dict[str, Any]) -> None:
    """Write the data sets, run every arm on each, and print a line for each pair."""
    with tempfile.TemporaryDirectory() as folder:
        for name, write in SETS.items():
            where = Path(folder) / name
            where.mkdir()
            group_bytes = write(where, rows)
            lines = {arm: _in_process(arm, where, repeats) for arm in ARMS}
            decode = lines["pyarrow"]["seconds"]
            limit = 2 * group_bytes + 300_000_000
            for arm, found in lines.items():
                more = {"speed_over_pyarrow": round(decode / found["seconds"], 3), "memory_limit": limit}
                print(json.dumps({"data": name, "arm": arm, **found, **more, **about}), flush=True)


def _in_process(arm: str, where: Path, repeats: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--arm", arm, "--where", str(where), "--repeats", str(repeats)],
        env=os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _one_group(where: Path, rows: int) -> int:
    pq.write_table(_table(rows, 0), where / "AAA.parquet", row_group_size=rows)
    return 8 * rows * (len(COLUMNS) + 1)


def _many_groups(where: Path, rows: int) -> int:
    pq.write_table(_table(rows, 1), where / "AAA.parquet", row_group_size=65_536)
    return 8 * 65_536 * (len(COLUMNS) + 1)


def _many_files(where: Path, rows: int) -> int:
    for number in range(1000):
        pq.write_table(_table(2000, number), where / f"S{number:04}.parquet")
    return 8 * 2000 * (len(COLUMNS) + 1)


SETS: dict[str, Callable[[Path, int], int]] = {
    "one row group": _one_group,
    "row groups of 65536": _many_groups,
    "1000 files of 2000 rows": _many_files,
}


def _table(rows: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(random.standard_normal(rows) * 1e-4))
    columns = {name: close + i * 0.01 for i, name in enumerate(COLUMNS)} | {"close": close}
    stamps = 1_500_000_000 * 10**9 + np.arange(rows, dtype=np.int64) * 60 * 10**9
    return pa.table({"ts": pa.array(stamps, pa.timestamp("ns", "UTC")), **columns})


def _run_arm(arm: str, where: Path, repeats: int) -> dict[str, Any]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    read = _reader(arm, where)
    seconds = []
    before = _private()
    for repeat in range(repeats + 1):
        gc.collect()
        begun = time.perf_counter()
        kept = read()
        if repeat:  # the first reading warms up the page cache
            seconds.append(time.perf_counter() - begun)
        del kept
    gc.collect()
    pa.default_memory_pool().release_unused()
    with _PrivatePeak(before) as peak:  # apart from the timing: sampling takes its time of the one core
        kept = read()
    del kept
    spread = max(seconds) - min(seconds)
    return {
        "seconds": round(statistics.median(seconds), 4),
        "seconds_spread": round(spread, 4),
        "private_peak_bytes": peak.bytes,
    }


def _reader(arm: str, where: Path) -> Callable[[], Any]:
    files = sorted(map(str, where.iterdir()))
    names = ["ts", *COLUMNS]
    if arm == "pyarrow":
        pa.set_cpu_count(1)
        return lambda: [pq.read_table(f, columns=names, use_threads=False, partitioning=None) for f in files]
    if arm == "pandas":
        import pandas as pd

        return lambda: [pd.read_parquet(f, columns=names) for f in files]
    if arm == "polars":
        import polars as pl

        return lambda: [pl.read_parquet(f, columns=names) for f in files]
    from foxhunt_ray.config import load_config
    from foxhunt_ray.data import inspection, schema

    pa.set_cpu_count(1)
    config = load_config(None, {"data.path": str(where)})
    if arm == "foxhunt read":
        return lambda: schema.read_market(config)
    return lambda: inspection.inspect(config)


class _PrivatePeak:
    """Most private memory of this process inside the block, above ``before`` [bytes]."""

    def __init__(self, before: int) -> None:
        self._before, self.bytes, self._over = before, 0, threading.Event()

    def __enter__(self) -> _PrivatePeak:
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(0.005):
            self.bytes = max(self.bytes, _private() - self._before)


def _private() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(x.split()[1]) for x in lines if x.startswith(("Private_Clean", "Private_Dirty")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arm", choices=ARMS, required=True)
    parser.add_argument("--where", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(_run_arm(options.arm, options.where, options.repeats)))

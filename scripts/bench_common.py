"""What the loader's benchmarks share: the market, the config, clocks, and rounds of arms."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from foxhunt_ray.config import Config, load_config
from foxhunt_ray.data.schema import Bars, Market

Figures = dict[str, float]
Arm = Callable[[int], Figures]  # number of the repeat -> what was measured

_STEP_NS = 60 * 10**9
_SESSION, _BREAK = 1380, 60  # bars of a session, missing bars after it
_TICKS = os.sysconf("SC_CLK_TCK")


def bench_config(options: Namespace, values: Mapping[str, object] | None = None) -> Config:
    """F plain columns as inputs, the next log return as target; ``values`` are dotted paths on top."""
    plain = {
        "features.groups": [],
        "features.columns": ["c??"],
        "target.kind": "log_return",
        "data.context_length": options.length,
        "data.stride": options.stride,
        "train.batch_size": options.batch,
    }
    return load_config(None, plain | dict(values or {}))


def bench_market(rows: int, features: int, symbols: int, *, gaps: bool = True) -> Market:
    """One-minute bars of independent symbols: F columns of noise and a random walk as the price.

    Args:
        rows: of all symbols together.
        features: columns c00, c01, ... of noise.
        symbols: how many.
        gaps: an hour without bars after each session of 23 hours.
    """
    random = np.random.default_rng(0)
    count = rows // symbols
    row = np.arange(count, dtype=np.int64)
    stamps = (row + _BREAK * (row // _SESSION) if gaps else row) * _STEP_NS
    bars = []
    for number in range(symbols):
        columns = {f"c{k:02}": random.standard_normal(count) for k in range(features)}
        columns["close"] = 100 * np.exp(np.cumsum(random.standard_normal(count) * 1e-4))
        bars.append(Bars(f"S{number:02}", stamps, columns))
    return Market(tuple(bars))


def cpu_clock() -> Callable[[], float]:
    """A function that tells the CPU seconds since now of this process and of those below it.

    All threads count, and Ray's processes and a loader's workers, these in ticks of 10 ms, unless they have
    ended by then.
    """
    own, before = time.process_time(), _ticks_below(os.getpid())

    def spent() -> float:
        now = _ticks_below(os.getpid())
        ticks = sum(count - before.get(pid, 0) for pid, count in now.items())
        return time.process_time() - own + ticks / _TICKS

    return spent


def private_bytes() -> int:
    """Memory of this process that no other one maps (USS)."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(x.split()[1]) for x in lines if x.startswith(("Private_Clean", "Private_Dirty")))


def rounds(arms: Mapping[str, Arm], options: Namespace, cold: Sequence[str] = ()) -> dict[str, list[Figures]]:
    """What each arm measured in each round; arms take turns, so that all see the same machine.

    A first round warms up, but for the arms in ``cold``; with ``--quick`` there is none.
    """
    runs: dict[str, list[Figures]] = {name: [] for name in arms}
    for repeat in range(1 if options.quick else 0, options.repeats + 1):
        for name, arm in arms.items():
            if repeat:
                runs[name].append(arm(repeat))
            elif name not in cold:
                arm(repeat)
    return runs


def summary(results: Sequence[Figures]) -> Figures:
    """Median of each figure over the rounds, and its spread (largest - smallest)."""
    found: Figures = {}
    for key in results[0]:
        values = [r[key] for r in results]
        found[key] = _short(statistics.median(values))
        found[f"{key}_spread"] = _short(max(values) - min(values))
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _ticks_below(root: int) -> dict[int, int]:
    """User and system time of each live process below ``root``, by its number."""
    found: dict[int, tuple[int, int]] = {}  # parent, ticks
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    below: dict[int, int] = {}
    parents = {root}
    while parents:
        parents = {pid for pid, (parent, _) in found.items() if parent in parents}
        below |= {pid: found[pid][1] for pid in parents}
    return below

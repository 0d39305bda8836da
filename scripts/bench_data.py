"""What the loader delivers, beside other loaders and the memory's own speed, and what a run feels of it.

Arms run in turn in one process and are repeated; the first round warms up. Each prints one JSON line with the
median and the spread (largest - smallest) of its figures; a table of the bars follows. CPU time is that of
this process and of all processes below it.

    python scripts/bench_data.py [--rows 400000] [--features 16] [--length 64] [--batch 256] [--quick]
    python scripts/bench_data.py --sweep  # other lengths, widths, batches and strides
    python scripts/bench_data.py --device cuda  # where windows are gathered, and a real step
    python scripts/bench_data.py --ingest [--rows 4000000]  # reading, beside pyarrow, pandas, polars
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench_bars import BARS, DEVICE_BARS, table
from bench_common import Arm, Figures, bench_config, bench_market, rounds, summary

from foxhunt_ray import cluster
from foxhunt_ray.data.survey import Survey, survey_market

_SPARE_STORE_BYTES = 300_000_000  # windows that the rivals on Ray keep there
_COLD = ("trials",)  # new processes each time: nothing to warm up


def main() -> None:
    """Run what the options ask for."""
    options = _options()
    if options.ingest:
        from bench_ingest import measure

        measure(options.rows, options.repeats, {"commit": _commit()})
        return
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            print("torch sees no CUDA device here; leave out --device cuda", file=sys.stderr)
            raise SystemExit(2)
    config = bench_config(options)
    cluster.prepare_environment(config)
    found = survey_market(config, bench_market(options.rows, options.features, options.symbols))
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.connect(config, data_bytes=found.nbytes + _SPARE_STORE_BYTES),
    ):
        _run(found, options, folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = (("features", 16), ("length", 64), ("batch", 256), ("stride", 1), ("symbols", 4))
    for name, default in sizes:
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("rows", "repeats", "batches"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--seconds", type=float, help="of reading, an arm and round")
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ingest", action="store_true", help="measure reading instead")
    parser.add_argument("--sweep", action="store_true", help="measure other sizes instead")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all of it runs")
    options = parser.parse_args()
    options.rows = options.rows or (4_000_000 if options.ingest else 20_000 if options.quick else 400_000)
    options.repeats = options.repeats or (5 if options.ingest else 1 if options.quick else 3)
    options.batches = options.batches or (10 if options.quick else 100)
    options.seconds = options.seconds or (0.05 if options.quick else 0.5)
    return options


def _run(found: Survey, options: argparse.Namespace, folder: str) -> None:
    import torch

    torch.set_num_threads(1)
    about = _about(options)
    if options.sweep:
        from bench_sweep import SWEEP_HEAD, sweep_arms, sweep_cases, sweep_row

        rows = [SWEEP_HEAD]
        for case, sizes in sweep_cases(options):
            runs = rounds(sweep_arms(sizes), sizes)
            _print_lines(runs, {"case": case} | about | {"config": vars(sizes)})
            rows.append(sweep_row(case, runs))
        print("\n" + "\n".join(rows))
        return
    if options.device == "cuda":
        from bench_device import device_arms

        arms, bars = device_arms(found, options), DEVICE_BARS
    else:
        arms, bars = _arms(found, options, folder), BARS
    runs = rounds(arms, options, _COLD)
    _print_lines(runs, about | {"windows": sum(map(len, found.ends("train")))})
    print("\n" + table(bars, runs))


def _print_lines(runs: dict[str, list[Figures]], about: dict[str, Any]) -> None:
    for name, results in runs.items():
        print(json.dumps({"arm": name, **summary(results), **about}), flush=True)


def _arms(found: Survey, options: argparse.Namespace, folder: str) -> dict[str, Arm]:
    from bench_loaders import throughput_arms
    from bench_stalls import early_breaks, first_batches, resuming, stall_arms
    from bench_trials import order_arm, trials

    from foxhunt_ray.data import prepare

    direct = bench_config(options, {"loader.memory_frac": 0.0, "loader.cache_dir": folder})
    prepared = prepare(found.config, found)
    raw = options.rows * (8 + 4 * options.features + 4 * len(found.config.target.horizons))
    store: Figures = {
        "over_raw": prepared.nbytes / raw,
        "over_inputs": prepared.nbytes / (options.rows * 4 * options.features),
        "store_mb": prepared.nbytes / 1e6,
    }
    return {
        **throughput_arms(prepared, prepare(direct, replace(found, config=direct)), found, options),
        "first batches through Ray": partial(first_batches, found, found.config, options),
        "first batches direct": partial(first_batches, replace(found, config=direct), direct, options),
        "store": lambda repeat: store,
        **stall_arms(prepared, options),
        "early breaks": partial(early_breaks, prepared, options),
        "resuming": partial(resuming, prepared, options),
        "order": order_arm(options),
        "trials": partial(trials, prepared, options),
    }


def _about(options: argparse.Namespace) -> dict[str, Any]:
    import ray
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__, "ray": ray.__version__}
    return {
        "commit": _commit(),
        "versions": versions,
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, {_processor()}",
        "config": vars(options),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.partition(": ")[2] for x in lines if x.startswith("model name")), "unknown processor")


def _commit() -> str:
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    main()

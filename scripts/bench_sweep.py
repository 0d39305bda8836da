"""``bench_data.py --sweep``: ours, torch's DataLoader and a plain copy, over sizes of windows and batches."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from bench_common import Arm, Figures, bench_config, bench_market
from bench_loaders import check_same_windows, copies, flat_rows, measure, own_batches, per_item

from foxhunt_ray.data import prepare
from foxhunt_ray.data.survey import survey_market

SWEEP_HEAD = "| size | ours [windows/s] | over DataLoader per item | over memcpy |\n|---|---|---|---|"
_VARIED = {
    "length": (32, 64, 128, 256, 512),
    "features": (8, 16, 64),
    "stride": (8,),
    "batch": (32, 1024),
}
_OURS, _ITEM, _COPY = "ours through Ray", "DataLoader per item, 0 workers", "memcpy"


def sweep_cases(options: Namespace) -> Iterator[tuple[str, Namespace]]:
    """The sizes as the options give them, then with one of them changed; with ``--quick`` few of these."""
    yield "as given", options
    for name, values in _VARIED.items():
        for value in values[:1] if options.quick else values:
            if value != getattr(options, name):
                yield f"{name} {value}", Namespace(**{**vars(options), name: value})


def sweep_arms(options: Namespace) -> dict[str, Arm]:
    """The three loaders for the sizes in ``options``."""
    config = bench_config(options)
    found = survey_market(config, bench_market(options.rows, options.features, options.symbols))
    prepared = prepare(config, found)
    flat = flat_rows(prepared, found)
    check_same_windows(prepared, flat, options)
    loaders = {
        _OURS: own_batches(prepared, depth=0, options=options),
        _ITEM: per_item(flat, options, workers=0),
        _COPY: copies(options),
    }
    return {name: functools.partial(measure, x, seconds=options.seconds) for name, x in loaders.items()}


def sweep_row(case: str, runs: Mapping[str, Sequence[Figures]]) -> str:
    """The line of the table: medians of ours and of its ratios within rounds."""
    ours = [figures["windows_per_s"] for figures in runs[_OURS]]
    item, copy = (
        median(a / figures["windows_per_s"] for a, figures in zip(ours, runs[name], strict=True))
        for name in (_ITEM, _COPY)
    )
    return f"| {case} | {median(ours):.4g} | {item:.3g} | {copy:.3g} |"

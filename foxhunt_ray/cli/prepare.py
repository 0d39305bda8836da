"""``prepare``: data written once in the canonical form. No Ray, no torch."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foxhunt_ray.cli.check import account_lines
from foxhunt_ray.cli.options import overrides
from foxhunt_ray.cli.progress import reading_progress
from foxhunt_ray.config import load_config, parse_duration
from foxhunt_ray.data.aggregate import market_bars
from foxhunt_ray.data.findings import require_none_refused
from foxhunt_ray.data.output import require_out
from foxhunt_ray.data.rewrite import write_canonical
from foxhunt_ray.data.schema import scan_market

# The settings that say what a row becomes; those of windows may change afterwards.
_READING = {"timezone", "stamp", "dates", "symbols", "time_column", "symbol_column", "wide", "price_scale"}
_READING |= {"missing_columns", "duplicates", "skip_bad"}


def prepare(options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Read PATH as ``check`` does and write it to OUT; the same call again goes on where one was cut off."""
    config = load_config(options.config, overrides(options))
    out, every = Path(options.out), parse_duration(options.bars) if options.bars else 0
    require_out(out, config.data.paths)
    with reading_progress() as progress:
        market = scan_market(config, whole=True, events=bool(every), on_progress=progress)
    stream = sys.stderr if options.json else sys.stdout
    made = market_bars(market, every) if every and not market.refusals else market
    for line in account_lines(market.files, made.findings):
        print(line, file=stream, flush=True)
    require_none_refused(market.refusals)
    runs = {symbol: origin.runs() for symbol, origin in market.origins.items()}
    manifest = write_canonical(
        made,
        out,
        runs=runs,
        config_summary=config.data.model_dump(mode="json", include=set(_READING))
        | {"bars": options.bars or ""},
        paths=config.data.paths,
        rows_in=market.rows_read,
    )
    _say(manifest, out, as_json=options.json)
    return 0


def _say(manifest: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(manifest))
        return
    totals = {name: f"{count:,}" for name, count in manifest["totals"].items()}
    rows = f"{totals['rows_in']} rows in, {totals['rows_dropped']} dropped, {totals['rows_out']} out"
    print(f"{out}: {totals['symbols']} symbols, {rows}")

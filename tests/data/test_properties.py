"""Odd frames of every kind come out complete, in canonical order, and equal to an independent reading.

Types, units, zones, order, repeats, missing values, row groups and layouts are drawn; pandas reads the same
frame, and every row is either there or counted.
"""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Market, scan_market

HOUR = 3600 * 10**9
START = 1_583_020_800 * 10**9  # 2020-03-01
ZONED = [None, "UTC", "America/New_York", "Asia/Kolkata"]
TIMES = [*(("timestamp", u, z) for u in ("s", "ms", "us", "ns") for z in ZONED)]
TIMES += [("epoch", unit, None) for unit in ("s", "ms", "us", "ns")] + [("text", "ISO", None)]
VALUES = ["float64", "float32", "int32", "uint64", "decimal", "text", "dictionary", "bool", "null"]
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def stamps(ns: np.ndarray, kind: tuple[str, str, str | None]) -> Any:
    what, unit, zone = kind
    if what == "timestamp":
        return pa.array(ns // UNITS[unit], pa.timestamp(unit, zone))
    if what == "epoch":
        return pa.array(ns // UNITS[unit])
    return pa.array([str(t).replace("T", " ") for t in ns.astype("M8[ns]").astype("M8[s]")])


def values(numbers: np.ndarray, gone: np.ndarray, kind: str) -> tuple[Any, np.ndarray]:
    """An arrow column of small numbers, and what it means as float64."""
    wanted = np.where(gone, np.nan, numbers.astype(float))
    plain = [None if g else int(n) for n, g in zip(numbers, gone, strict=True)]
    if kind == "decimal":
        given = [None if p is None else decimal.Decimal(p) / 8 for p in plain]
        return pa.array(given, pa.decimal128(12, 4)), wanted / 8
    if kind == "text":
        return pa.array(["NA" if p is None else f"{p}.5" for p in plain]), wanted + 0.5
    if kind == "dictionary":
        return pa.array(plain, pa.float64()).dictionary_encode(), wanted
    if kind == "bool":
        return pa.array([None if p is None else bool(p % 2) for p in plain]), wanted % 2
    if kind == "null":
        return pa.nulls(len(plain)), np.full(len(plain), np.nan)
    return pa.array(plain, getattr(pa, kind)()), wanted


@st.composite
def frames(draw: Any) -> dict[str, Any]:
    n = draw(st.integers(1, 40))
    rows = st.lists(st.integers(0, 30), min_size=n, max_size=n)
    return {
        "hours": np.array(draw(rows)),
        "symbol": np.array(draw(st.lists(st.sampled_from(["A", "000660"]), min_size=n, max_size=n))),
        "order": draw(st.sampled_from(["ascending", "descending", "any"])),
        "time": draw(st.sampled_from(TIMES)),
        "kinds": draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4)),
        "missing": draw(st.integers(0, 2**16)),
        "layout": draw(st.sampled_from(["long", "hive", "files"])),
        "group": draw(st.integers(1, 50)),
        "codec": draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        "repeats": draw(st.integers(0, 5)),
    }


def build(frame: dict[str, Any]) -> tuple[pa.Table, pd.DataFrame]:
    """The table to be written, and the frame that it stands for; a stamp of a symbol has one content."""
    hours, symbol = frame["hours"], frame["symbol"]
    order = np.arange(len(hours))
    if frame["order"] != "any":
        order = np.argsort(hours, kind="stable")[:: -1 if frame["order"] == "descending" else 1]
    order = np.concatenate([order, order[: frame["repeats"]]])
    hours, symbol = hours[order], symbol[order]
    key = hours * 2 + (symbol == "A")
    columns: dict[str, Any] = {"ts": stamps(START + hours * HOUR, frame["time"]), "symbol": pa.array(symbol)}
    wanted = {"symbol": symbol, "ts": START + hours * HOUR}
    for number, kind in enumerate(frame["kinds"]):
        gone = (frame["missing"] * (key + 3) >> number) % 5 == 0
        columns[f"x{number}"], wanted[f"x{number}"] = values(key * (number + 1), gone, kind)
    return pa.table(columns), pd.DataFrame(wanted)


def written(frame: dict[str, Any], folder: Path) -> tuple[Market, pd.DataFrame]:
    table, wanted = build(frame)
    options = {"row_group_size": frame["group"], "compression": frame["codec"], "write_page_checksum": True}
    if frame["layout"] == "long":
        pq.write_table(table, folder / "all.parquet", **options)
    for symbol in ["A", "000660"] if frame["layout"] != "long" else []:
        mask = pa.array(wanted["symbol"] == symbol)
        part = table.filter(mask).drop_columns("symbol")
        home = folder / (f"symbol={symbol}" if frame["layout"] == "hive" else ".")
        home.mkdir(exist_ok=True)
        if part.num_rows:
            pq.write_table(part, home / f"{symbol}.parquet", **options)
    zone = "" if frame["time"][2] or frame["time"][0] == "epoch" else "UTC"
    config = load_config(None, {"data.path": str(folder), "data.timezone": zone})
    return scan_market(config), wanted


@settings(max_examples=150, deadline=None)
@given(frame=frames())
def test_every_row_comes_out_in_order_with_the_values_of_pandas_or_is_counted(
    tmp_path_factory: pytest.TempPathFactory, frame: dict[str, Any]
) -> None:
    market, wanted = written(frame, tmp_path_factory.mktemp("odd"))
    text = [k for k in frame["kinds"] if k == "text"]
    # A column of nothing but missing codes is no number.
    assume(not text or any(f.status == "read" for f in market.files))
    # Rows drawn at random may look like bars of two intervals.
    assert [str(f) for f in market.refusals if not f.text.startswith("bars of")] == []
    kept = wanted.drop_duplicates().sort_values(["symbol", "ts"])
    assert len(wanted) == market.rows_read == len(kept) + sum(market.dropped.values())
    assert [b.symbol for b in market.bars] == sorted(set(wanted["symbol"]))
    for bars in market.bars:
        mine = kept[kept["symbol"] == bars.symbol]
        assert (np.diff(bars.ts_event) > 0).all()
        np.testing.assert_array_equal(bars.ts_event, mine["ts"])
        for name, column in bars.columns.items():
            np.testing.assert_array_equal(column, mine[name])


@settings(max_examples=40, deadline=None)
@given(
    frame=frames().filter(lambda f: f["layout"] == "long" and f["time"][0] == "timestamp" and f["time"][2])
)
def test_polars_reads_the_same(tmp_path_factory: pytest.TempPathFactory, frame: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("odd")
    market, _ = written(frame | {"kinds": ["float64", "int32"]}, folder)
    table = pl.read_parquet(folder / "all.parquet").unique().sort("symbol", "ts")
    for bars in market.bars:
        mine = table.filter(pl.col("symbol") == bars.symbol)
        np.testing.assert_array_equal(bars.ts_event, mine["ts"].dt.epoch("ns").to_numpy())
        for name in ("x0", "x1"):
            theirs = mine[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            np.testing.assert_array_equal(bars.columns[name], theirs)

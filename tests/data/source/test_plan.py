"""What becomes of each file, and which columns of large data are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.discover import FileEntry, discover
from foxhunt_ray.data.schema import scan_market
from foxhunt_ray.data.source import plan
from foxhunt_ray.data.source.layout import read_layouts
from foxhunt_ray.errors import DamagedFileError, DataError

ENTRIES = [FileEntry("a", "read", rows=5), FileEntry("b", "refused", "zero bytes", damaged=True)]


@pytest.mark.parametrize(("skip", "status"), [(False, "refused"), (True, "skipped")])
def test_damaged_files_are_passed_over_only_when_asked_for(skip: bool, status: str) -> None:
    account = plan.Account(ENTRIES, skip_bad=skip)
    account.refuse("a", DamagedFileError("a: torn"))
    assert [e.status for e in account.entries] == [status, status]
    assert [e.reason for e in account.entries] == [("damaged: " * skip) + r for r in ("torn", "zero bytes")]
    assert account.readable() == []


def test_a_question_is_refused_though_damage_is_passed_over() -> None:
    account = plan.Account(ENTRIES[:1], skip_bad=True)
    account.refuse("a", DataError("a: which column?"))
    assert [(e.status, e.reason, e.rows) for e in account.entries] == [("refused", "which column?", 0)]


def flip(path: Path, column: str) -> None:
    """Change a byte in the first page of a column, past its header; the footer stays whole."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = group.column([group.column(i).path_in_schema for i in range(group.num_columns)].index(column))
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + chunk.total_compressed_size // 2] ^= 255
    path.write_bytes(data)


def prices(path: Path, **columns: Any) -> Path:
    """Hourly bars of whole prices in one page a column, each with a checksum."""
    stamps = pa.array(np.arange(50) * 3600 * 10**9, pa.timestamp("ns", "UTC"))
    table = pa.table({"ts": stamps, "close": np.arange(100, 150)} | columns)
    pq.write_table(table, path, use_dictionary=False, write_page_checksum=True)
    return path


@pytest.mark.parametrize(("skip", "status"), [(False, "refused"), (True, "skipped")])
def test_a_file_whose_integer_prices_are_damaged_is_refused_alone(
    tmp_path: Path, skip: bool, status: str
) -> None:
    prices(tmp_path / "A.parquet")
    flip(prices(tmp_path / "B.parquet"), "close")
    market = scan_market(load_config(None, {"data.path": str(tmp_path), "data.skip_bad": skip}))
    assert [(e.status, "cannot be decoded" in e.reason) for e in market.files] == [
        ("read", False),
        (status, True),
    ]
    assert [b.symbol for b in market.bars] == ["A"]
    assert bool(market.refusals) == (not skip)


def test_integer_prices_that_nothing_can_be_read_of_are_integers_all_the_same(tmp_path: Path) -> None:
    flip(prices(tmp_path / "A.parquet"), "close")
    config = load_config(None, {"data.path": str(tmp_path), "data.price_scale": 100.0})
    market = scan_market(config)
    assert [e.status for e in market.files] == ["refused"] and not market.bars
    assert not any("price_scale is not used" in note for note in market.notes)


def test_a_second_time_column_that_is_damaged_is_not_compared(tmp_path: Path) -> None:
    stamps = pa.array(np.arange(50) * 3600 * 10**9, pa.timestamp("ns", "UTC"))
    file = prices(tmp_path / "A.parquet", timestamp=stamps)
    assert any(
        "agrees with" in note for note in scan_market(load_config(None, {"data.path": str(file)})).notes
    )
    flip(file, "ts")
    market = scan_market(load_config(None, {"data.path": str(file)}))
    assert [e.status for e in market.files] == ["read"] and not market.refusals
    assert not any("agrees with" in note for note in market.notes)


def bars(path: Path, n: int = 50) -> Path:
    columns = {f"c{i}": np.arange(float(n)) + i for i in range(20)}
    stamps = pa.array(np.arange(n) * 3600 * 10**9, pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ts": stamps, "close": np.ones(n), "volume": np.ones(n), **columns}), path)
    return path


def test_large_data_are_read_for_the_columns_that_a_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bars(tmp_path / "A.parquet")
    config = load_config(
        None,
        {"data.path": str(file), "features.columns": ["c1*"], "target.kind": "column", "target.column": "c3"},
    )
    assert len(scan_market(config).bars[0].columns) == 22
    monkeypatch.setattr(plan, "_ALL_COLUMNS_BYTES", 1000)
    market = scan_market(config)
    wanted = {"close", "volume", "c1", "c3", *(f"c1{i}" for i in range(10))}
    assert market.bars[0].columns.keys() == wanted
    assert any("8 of 22 columns are not read" in note for note in market.notes)
    assert len(scan_market(config, whole=True).bars[0].columns) == 22


def test_integer_prices_are_sampled_without_their_missing_values(tmp_path: Path) -> None:
    stamps = pa.array(np.arange(3) * 10**9, pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ts": stamps, "close": pa.array([5, None, 7])}), tmp_path / "A.parquet")
    layouts, _ = read_layouts(discover([str(tmp_path)]), load_config())
    assert {name: found.tolist() for name, found in plan.price_samples(layouts).items()} == {"close": [5, 7]}

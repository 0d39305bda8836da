"""What the columns of a file mean, once a schema, and which files cannot be understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.discover import FileEntry, discover
from foxhunt_ray.data.source.layout import Layout, read_layout, read_layouts
from foxhunt_ray.errors import DamagedFileError, DataError

STAMPS = pa.array([0, 3600 * 10**9], pa.timestamp("ns", "UTC"))


def write(path: Path, metadata: dict[str, str] | None = None, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


def bars(path: Path, metadata: dict[str, str] | None = None, **columns: Any) -> Path:
    return write(path, metadata, ts=STAMPS, **{"close": [1.0, 2.0], **columns})


def read(path: Path, **data: Any) -> list[Layout]:
    layouts, refused = read_all(path, **data)
    assert not refused
    return layouts


def read_all(path: Path, **data: Any) -> tuple[list[Layout], list[tuple[FileEntry, DataError]]]:
    config = load_config(None, {"data.path": str(path), **{f"data.{k}": v for k, v in data.items()}})
    return read_layouts([e for e in discover(config.data.paths) if e.status == "read"], config)


def sources(layouts: list[Layout]) -> list[tuple[str, str]]:
    return [(x.symbol or x.symbol_column, x.symbol_source) for x in layouts]


def findings(layouts: list[Layout]) -> list[str]:
    return [str(f) for x in layouts for f in x.findings]


def test_binary_prices_are_told_of_once_for_all_files_of_a_schema(real_data: Path, tmp_path: Path) -> None:
    quotes = pq.read_table(real_data / "nautilus_64bit" / "quotes.parquet")
    for name in ("a", "b"):
        pq.write_table(quotes, tmp_path / f"{name}.parquet")
    pq.write_table(quotes, tmp_path / "c.parquet", compression="none")
    assert findings(read(tmp_path)) == [
        f"{tmp_path}/a.parquet: binary columns bid_price, ask_price, bid_size, ask_size are read as fixed "
        "point x1e9, as Nautilus writes it (EUR/USD.SIM, 5 decimal places)"
    ]


def test_the_first_source_of_a_symbol_that_applies_is_used_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "symbol=HIVE"
    column = bars(folder / "COLUMN.parquet", {"symbol": "META"}, ticker=["A", "B"], permno=[1, 2])
    assert sources(read(column)) == [("ticker", "column ticker")]
    assert sources(read(column, symbol_column="permno")) == [("permno", "column permno")]
    assert sources(read(bars(folder / "x.parquet", {"symbol": "META"}))) == [("HIVE", "folder names")]
    meta = bars(tmp_path / "m" / "ONE.parquet", {"symbol": "META"})
    assert sources(read(meta)) == [("META", "metadata symbol")]
    assert sources(read(bars(tmp_path / "f" / "ONE_1h.parquet"))) == [("ONE", "file names")]
    bars(tmp_path / "p" / "000660" / "1h.parquet")
    assert sources(read(tmp_path / "p")) == [("000660", "folder names")]


def test_a_hive_key_can_be_named_as_the_symbol_column(tmp_path: Path) -> None:
    bars(tmp_path / "venue_code=X1" / "part-0.parquet")
    assert sources(read(tmp_path, symbol_column="venue_code")) == [("X1", "folder names")]


def test_files_that_are_not_understood_are_collected_and_the_others_read(tmp_path: Path) -> None:
    bars(tmp_path / "A.parquet")
    for name in ("B", "C"):
        write(tmp_path / f"{name}.parquet", close=[1.0])
    table = pa.Table.from_arrays([STAMPS, pa.array([1.0, 2.0]), pa.array([1.0, 2.0])], ["ts", "x", "x"])
    pq.write_table(table, tmp_path / "D.parquet")
    layouts, refused = read_all(tmp_path)
    assert [x.symbol for x in layouts] == ["A"]
    assert [Path(entry.path).stem for entry, _ in refused] == ["B", "C", "D"]
    assert all(str(error).startswith(entry.path) for entry, error in refused)
    with pytest.raises(DataError, match=r"B.parquet: no time column"):
        read_layout(refused[0][0], load_config(None, {}))


def test_a_file_that_has_become_unreadable_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "A.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedFileError, match=r"A.parquet: its data cannot be decoded"):
        read_layout(FileEntry(str(tmp_path / "A.parquet"), "read", rows=1), load_config(None, {}))


def test_a_schema_is_understood_once_whatever_the_files_own_metadata(tmp_path: Path) -> None:
    for at in range(30):
        frame = pd.DataFrame({"ts": STAMPS.to_pandas(), "close": [1.0, 2.0], "note": ["1", "2"]})
        frame.index = pd.RangeIndex(at, at + 2)
        frame.to_parquet(tmp_path / f"S{at}.parquet")
    layouts = read(tmp_path)
    assert len(layouts) == 30
    assert all(x.roles is layouts[0].roles and x.types is layouts[0].types for x in layouts)
    assert len({x.symbol for x in layouts}) == 30


def test_schemas_of_different_precision_are_understood_apart(tmp_path: Path) -> None:
    for name in ("5", "8"):
        bars(tmp_path / f"{name}.parquet", {"price_precision": name, "instrument_id": f"S{name}"})
    first, second = read(tmp_path)
    assert first.roles is not second.roles
    assert (first.symbol, second.symbol) == ("S5", "S8")


def test_what_a_schema_shows_is_said_once(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write(tmp_path / f"{name}.parquet", ts=STAMPS, **{s: [1.0, 2.0] for s in ("AAPL", "MSFT", "SPY")})
    assert len(findings(read(tmp_path))) == 1
    (note,) = findings(read(tmp_path, wide="symbols"))
    assert note == f"{tmp_path}/x.parquet: columns AAPL, MSFT, SPY: 3 symbols from wide column names"


def test_a_table_as_yahoo_sends_it_is_read_by_symbol(tmp_path: Path) -> None:
    columns = pd.MultiIndex.from_product([["Close", "Open"], ["GOOGL", "AAPL"]], names=["Price", "Ticker"])
    index = pd.DatetimeIndex(["2020-01-01", "2020-01-02"], name="Date")
    frame = pd.DataFrame(np.ones((2, 4)), index=index, columns=columns)
    frame.to_parquet(tmp_path / "index.parquet")
    frame.reset_index().to_parquet(tmp_path / "flat.parquet")
    flat, indexed = read(tmp_path)
    assert (flat.times, indexed.times) == (("('Date', '')",), ("Date",))
    assert flat.time_kind == "timestamp"
    for one in (flat, indexed):
        assert one.melt == {
            s: {"close": f"('Close', '{s}')", "open": f"('Open', '{s}')"} for s in ("GOOGL", "AAPL")
        }
        assert (one.symbol, one.symbol_column, one.symbol_source) == ("", "", "wide column names")
    wanted = read(tmp_path / "flat.parquet", time_column="('Date', '')")
    assert wanted[0].times == ("('Date', '')",)


def test_a_symbol_level_of_the_index_is_no_time(tmp_path: Path) -> None:
    index = pd.MultiIndex.from_tuples(
        [("AAPL", pd.Timestamp("2020-01-01")), ("B", pd.Timestamp("2020-01-01"))]
    )
    pd.DataFrame({"close": [1.0, 2.0]}, index=index).to_parquet(tmp_path / "x.parquet")
    (found,) = read(tmp_path)
    assert (found.symbol_column, found.times) == ("__index_level_0__", ("__index_level_1__",))
    assert list(found.roles.values) == ["close"]


def test_joined_files_and_mixed_intervals_are_found_over_all_files(tmp_path: Path) -> None:
    for name in ("A_1h_2023", "A_1h_2024", "B_1h", "B_1d"):
        bars(tmp_path / f"{name}.parquet")
    joined, mixed = findings(read(tmp_path))
    assert joined == "4 files joined to 2 symbols (A, B); endings like _1h_2023 removed"
    assert mixed.startswith(f"{tmp_path}/B_1h.parquet: 1h bars of B here, but 1d bars of it in")


def test_a_glob_and_a_single_file_have_the_folder_before_the_wildcard_as_root(tmp_path: Path) -> None:
    for folder in ("aapl", "msft"):
        bars(tmp_path / folder / "1h.parquet")
    assert [x.symbol for x in read(tmp_path / "*" / "1h.parquet")] == ["aapl", "msft"]
    assert [x.symbol for x in read(tmp_path / "aapl" / "1h.parquet")] == ["1h"]


def test_real_files_state_their_symbols(real_data: Path) -> None:
    quotes = read(real_data / "nautilus_64bit")
    assert [x.symbol for x in quotes] == ["ADABTC.BINANCE", "EUR/USD.SIM"]
    spark = read(real_data / "us_equity_daily_spark")
    assert [x.symbol for x in spark] == ["AAPL", "AIG", "BAC", "GOOG", "IBM", "IWM", "QQQ", "SPY"]
    snapshots = read(real_data / "binance_snapshots")
    assert [x.symbol for x in snapshots] == ["ETHUSDT"] * 3 + [""] * 8
    assert findings(snapshots) == ["3 files of ETHUSDT joined; endings like _1h_20250628_000741 removed"]

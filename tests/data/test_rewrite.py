"""Prepared files hold every bit of what was read, and a call that was cut short is gone on with."""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass
from pathlib import Path

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from foxhunt_ray.config import Config
from foxhunt_ray.data.discover import UNFINISHED, FileEntry, discover
from foxhunt_ray.data.findings import note
from foxhunt_ray.data.output import MANIFEST, require_out
from foxhunt_ray.data.rewrite import PROVENANCE, write_canonical
from foxhunt_ray.data.schema import Bars, Market, read_market
from foxhunt_ray.errors import CheckpointError, ConfigError, DataError

SYMBOLS = ("BTC/USD", "EUR/USD.SIM", "a b", "_x", ".h", "..", "ü%", "brk", "BRK")
START = 1_700_000_000 * 10**9


class Stopped(Exception):
    """As if the process had been killed."""


@dataclass(frozen=True)
class Rows:
    path: str
    source_row: int
    step: int
    rows: int


@dataclass(frozen=True)
class Case:
    market: Market
    runs: dict[str, list[Rows]]
    folder: Path

    def write(self, out: Path, **more) -> dict:
        settings = {"path": str(self.folder), "bars": ""}
        return write_canonical(self.market, out, **({"runs": self.runs, "config_summary": settings} | more))


def bars_of(symbol: str, n: int, seed: int = 0) -> Bars:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(2, n))
    values[rng.random((2, n)) < 0.1] = np.nan
    ts = START + np.cumsum(rng.integers(1, 10**11, n))
    return Bars(symbol, ts, {"close": values[0], "My Column": values[1]})


def case_of(folder: Path, symbols=SYMBOLS, n: int = 50) -> Case:
    folder.mkdir()
    bars, files, runs = [], [], {}
    for at, symbol in enumerate(symbols):
        path = folder / f"{at}.parquet"
        path.write_bytes(b"x" * (10 + at))
        bars.append(bars_of(symbol, n + at, at))
        files.append(FileEntry(str(path), "read", rows=n + at + 1))
        runs[symbol] = [Rows(str(path), n - 1, -1, n), Rows(str(path), n, 1, at)][: 2 if at else 1]
    files.append(FileEntry(str(folder / "notes.txt"), "skipped", "not parquet by its name"))
    market = Market(tuple(bars), tuple(files), (note("time: column t"),), {"exact duplicate": len(symbols)})
    return Case(market, runs, folder)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return case_of(tmp_path / "source")


def assert_same(path: Path, bars: Bars) -> None:
    table = pq.read_table(path, page_checksum_verification=True)
    assert table.column_names == ["ts_event", *bars.columns]
    assert str(table.schema.field("ts_event").type) == "timestamp[ns, tz=UTC]"
    assert table.schema.metadata[b"symbol"].decode() == bars.symbol
    assert table.schema.metadata[b"foxhunt"] == b"1"
    assert table.column("ts_event").cast("int64").to_numpy().tobytes() == bars.ts_event.tobytes()
    for name, values in bars.columns.items():
        assert table.column(name).null_count == 0
        assert table.column(name).to_numpy().tobytes() == np.ascontiguousarray(values).tobytes()


def contents(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in out.iterdir() if p.name != MANIFEST}


def stop_after(count: int):
    seen: list[str] = []

    def on_symbol(symbol: str) -> None:
        seen.append(symbol)
        if len(seen) == count:
            raise Stopped

    return on_symbol


def test_every_file_gives_back_the_bits_and_the_exact_symbol(case: Case, tmp_path: Path) -> None:
    manifest = case.write(tmp_path / "out")
    assert [e["symbol"] for e in manifest["symbols"]] == list(SYMBOLS)
    for entry, bars in zip(manifest["symbols"], case.market.bars, strict=True):
        assert_same(tmp_path / "out" / entry["file"], bars)
        assert entry["rows"] == len(bars.ts_event) and entry["columns"] == list(bars.columns)


@settings(max_examples=20, deadline=None)
@given(values=npst.arrays(np.uint64, st.integers(1, 40)))
def test_any_bits_of_a_float_survive(tmp_path_factory, values) -> None:
    folder = tmp_path_factory.mktemp("bits")
    bars = Bars(
        "X", np.arange(len(values)), {"a": values.view(np.float64), "b": values[::-1].view(np.float64)}
    )
    rows = {"X": [Rows("f", 0, 1, len(values))]}
    write_canonical(Market((bars,)), folder, runs=rows, config_summary={}, rows_in=len(values))
    assert_same(folder / "X.parquet", bars)


def test_readers_see_every_symbols_file_and_nothing_else(case: Case, tmp_path: Path) -> None:
    manifest = case.write(tmp_path / "out")
    found = discover([str(tmp_path / "out")])
    assert {Path(e.path).name for e in found if e.status == "read"} == {
        e["file"] for e in manifest["symbols"]
    }
    names = [e["file"].casefold() for e in manifest["symbols"]]
    assert len(set(names)) == len(SYMBOLS) and not any(n.startswith((".", "_")) for n in names)


def test_the_reader_gives_back_what_was_prepared(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "out")
    market = read_market(Config.model_validate({"data": {"path": str(tmp_path / "out")}}))
    wanted = {b.symbol: b for b in case.market.bars}
    assert {b.symbol for b in market.bars} == wanted.keys()
    for bars in market.bars:
        np.testing.assert_array_equal(bars.ts_event, wanted[bars.symbol].ts_event)
        assert bars.columns.keys() == wanted[bars.symbol].columns.keys()
        for name, values in bars.columns.items():
            np.testing.assert_array_equal(values, wanted[bars.symbol].columns[name])


def test_large_data_are_cut_into_row_groups(tmp_path: Path) -> None:
    bars = bars_of("X", 150_000)
    bars = Bars("X", bars.ts_event, {n: np.column_stack([v, v])[:, 0] for n, v in bars.columns.items()})
    rows = {"X": [Rows("f", 0, 1, 150_000)]}
    write_canonical(Market((bars,)), tmp_path / "out", runs=rows, config_summary={}, rows_in=150_000)
    assert_same(tmp_path / "out" / "X.parquet", bars)
    metadata = pq.read_metadata(tmp_path / "out" / "X.parquet")
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert [g.num_rows for g in groups] == [65_536, 65_536, 18_928]
    assert groups[1].column(0).statistics.min.value == int(bars.ts_event[65_536])
    assert groups[0].column(1).statistics is None and metadata.row_group(0).sorting_columns


def test_the_manifest_accounts_for_every_row_and_file(case: Case, tmp_path: Path) -> None:
    manifest = case.write(tmp_path / "out")
    assert manifest == json.loads((tmp_path / "out" / MANIFEST).read_text())
    kept = sum(len(b.ts_event) for b in case.market.bars)
    assert manifest["totals"] == {
        "rows_in": kept + len(SYMBOLS), "rows_dropped": len(SYMBOLS), "rows_kept": kept, "rows_out": kept,
        "symbols": len(SYMBOLS),
    }  # fmt: skip
    assert [s["status"] for s in manifest["sources"]] == ["read"] * len(SYMBOLS) + ["skipped"]
    assert manifest["sources"][2]["size"] == 12 and manifest["sources"][-1]["size"] is None
    assert manifest["findings"] == ["time: column t"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(
        [MANIFEST, PROVENANCE, *(e["file"] for e in manifest["symbols"])]
    )


def test_provenance_leads_every_row_back_to_its_file(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "out")
    lines = pq.read_table(tmp_path / "out" / PROVENANCE).to_pylist()
    wanted = [
        (symbol, run.path, run.source_row + i * run.step)
        for symbol, runs in case.runs.items() for run in runs for i in range(run.rows)
    ]  # fmt: skip
    found = [
        (x["symbol"], x["source"], x["source_row"] + i * x["step"]) for x in lines for i in range(x["rows"])
    ]
    assert found == wanted
    for symbol in SYMBOLS:
        of = [x for x in lines if x["symbol"] == symbol]
        assert [x["row"] for x in of] == list(np.cumsum([0, *(x["rows"] for x in of)])[:-1])


@pytest.mark.parametrize("count", [1, 4, 7])
def test_a_call_that_was_cut_short_is_gone_on_with(case: Case, tmp_path: Path, count: int) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    expected = case.write(whole)
    with pytest.raises(Stopped):
        case.write(out, on_symbol=stop_after(count))
    assert not (out / MANIFEST).exists()
    with pytest.raises(DataError, match="run the same command again"):
        discover([str(out)])
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.parquet")}
    assert len(before) == count
    (out / ".partial-brk.parquet").write_bytes(b"PAR1")  # what a kill leaves
    manifest = case.write(out)
    assert {n: (out / n).stat().st_mtime_ns for n in before} == before
    assert contents(out) == contents(whole)
    assert manifest | {"created": ""} == expected | {"created": ""}


def test_a_cut_off_line_of_the_journal_costs_that_file_only(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        case.write(out, on_symbol=stop_after(3))
    journal = out / UNFINISHED
    for cut in (5, 1):  # cut off twice
        journal.write_bytes(journal.read_bytes()[:-cut])
        with pytest.raises(Stopped):
            case.write(out, on_symbol=stop_after(4))
    case.write(out)
    case.write(tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_a_journal_without_its_first_line_starts_anew(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / UNFINISHED).write_text('{"finge')
    case.write(out)
    case.write(tmp_path / "whole")
    assert contents(out) == contents(tmp_path / "whole")


def test_a_complete_file_that_was_damaged_since_is_written_again(case: Case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        case.write(out, on_symbol=stop_after(3))
    path = out / "a%20b.parquet"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    case.write(out)
    assert_same(path, case.market.bars[2])


def test_the_same_call_on_a_finished_folder_does_nothing(case: Case, tmp_path: Path) -> None:
    first = case.write(tmp_path / "out")
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    assert case.write(tmp_path / "out", on_symbol=stop_after(1)) == first
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before


def test_a_finished_folder_that_lost_a_file_is_refused(case: Case, tmp_path: Path) -> None:
    case.write(tmp_path / "out")
    (tmp_path / "out" / "brk.parquet").unlink()
    with pytest.raises(ConfigError, match=r"brk\.parquet: is missing"):
        case.write(tmp_path / "out")


@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_or_sources_are_refused(case: Case, tmp_path: Path, finished: bool) -> None:
    out = tmp_path / "out"
    if finished:
        case.write(out)
    else:
        with pytest.raises(Stopped):
            case.write(out, on_symbol=stop_after(2))
    before = contents(out)
    with pytest.raises(ConfigError, match="other files or settings; give an empty folder"):
        case.write(out, config_summary={"path": "elsewhere"})
    (case.folder / "0.parquet").write_bytes(b"longer than it was")
    with pytest.raises(ConfigError, match="other files or settings; give an empty folder"):
        case.write(out)
    assert contents(out) == before


def test_two_calls_at_once_do_not_mix(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another `foxhunt prepare`"):
        case.write(tmp_path / "out", on_symbol=lambda _: case.write(tmp_path / "out") and None)


def test_a_folder_with_other_things_or_a_file_is_refused(case: Case, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds 0\.parquet and was not made"):
        case.write(case.folder)
    with pytest.raises(ConfigError, match="a file, expected a folder"):
        case.write(case.folder / "0.parquet")


@pytest.mark.parametrize(
    "path, out, refused",
    [
        ("data", "data/out", True),
        ("data", "data", True),
        ("data/", "data/sub/../out", True),
        ("data", "database", False),
        ("data/x.parquet", "data/out", False),
        ("data/*.parquet", "data/out", False),
        ("data/*", "data/out", True),
        ("data/**/*.parquet", "data/a/out", True),
        ("data/s*/x.parquet", "data/out", True),
        ("data/**/*.parquet", "out", False),
    ],
)
def test_a_folder_inside_what_is_read_is_refused(
    tmp_path: Path, path: str, out: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "x.parquet").touch()
    for root in ("", f"{tmp_path}/"):
        if refused:
            with pytest.raises(ConfigError, match="which is read"):
                require_out(Path(out), [root + path])
        else:
            require_out(Path(out), [root + path])


def test_missing_rows_are_refused_before_anything_is_written(case: Case, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rows were read, but"):
        case.write(tmp_path / "out", rows_in=7)
    short = {**case.runs, "a b": case.runs["a b"][:1]}
    with pytest.raises(DataError, match=r"a b: 52 rows, but the files account for 50"):
        case.write(tmp_path / "out", runs=short)
    assert not (tmp_path / "out").exists()


def test_rows_that_were_joined_to_bars_are_accounted_for_as_read(case: Case, tmp_path: Path) -> None:
    fewer = tuple(Bars(b.symbol, b.ts_event[:7], {"close": b.columns["close"][:7]}) for b in case.market.bars)
    market = Market(fewer, case.market.files, dropped=case.market.dropped)
    made = write_canonical(market, tmp_path / "out", runs=case.runs, config_summary={"bars": "1m"})
    totals = made["totals"]
    assert totals["rows_out"] == 7 * len(SYMBOLS)
    assert totals["rows_in"] == totals["rows_kept"] + totals["rows_dropped"]


def test_full_storage_is_said_and_the_call_can_be_repeated(tmp_path: Path) -> None:
    case = case_of(tmp_path / "source", ("A", "B"), 5_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="make room"):
            case.write(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in (tmp_path / "out").iterdir()] == [UNFINISHED]
    case.write(tmp_path / "out")
    case.write(tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_source_that_is_gone_is_named(case: Case, tmp_path: Path) -> None:
    (case.folder / "3.parquet").unlink()
    with pytest.raises(DataError, match=r"3\.parquet: was read but is gone"):
        case.write(tmp_path / "out")

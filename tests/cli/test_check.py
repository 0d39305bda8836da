"""``check`` accounts for every file and finding, as text and as JSON; ``prepare`` writes what it reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.cli import main

HOUR = 3600 * 10**9


def write(path: Path, n: int = 400, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    stamps = pa.array(HOUR * np.arange(n), pa.timestamp("ns", "UTC"))
    close = 100 * np.exp(np.cumsum(np.random.default_rng(0).standard_normal(n) * 1e-3))
    pq.write_table(pa.table({"ts": stamps, "close": close, **columns}), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "bars" / "A.parquet")
    write(tmp_path / "bars" / "B.parquet")
    (tmp_path / "bars" / "zero.parquet").touch()
    (tmp_path / "bars" / "notes.txt").write_text("x")
    return tmp_path / "bars"


def test_a_clean_folder_exits_with_zero_and_names_windows_per_split(folder, capsys):
    (folder / "zero.parquet").unlink()
    assert main(["check", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["read", "read", "skipped"]
    assert lines[0].endswith("A.parquet  (400 rows)")
    assert [line.split()[0] for line in lines[-3:]] == ["train", "val", "test"]
    assert all(line.split()[0] in ("note", "warning") for line in lines[3:-6])


def test_a_damaged_file_is_refused_and_passed_over_when_asked_for(folder, capsys):
    assert main(["check", str(folder)]) == 2
    assert f"refused  {folder}/zero.parquet  (zero bytes" in capsys.readouterr().out
    assert main(["check", str(folder), "--skip-bad"]) == 0
    assert f"skipped  {folder}/zero.parquet  (damaged: zero bytes" in capsys.readouterr().out


def test_several_paths_are_one_data_set(folder, capsys):
    assert main(["check", str(folder / "A.parquet"), str(folder / "B.parquet")]) == 0
    assert "2 files read, 800 rows: A B" in capsys.readouterr().out


def test_json_holds_files_findings_reading_and_data(folder, capsys):
    assert main(["check", str(folder), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "refused"
    assert {f["status"] for f in told["files"]} == {"read", "refused", "skipped"}
    assert {"level", "file", "column", "count", "text", "action"} == set(told["findings"][0])
    assert told["reading"]["time"] == [{"column": "ts", "read_as": "timestamp[ns] with zone UTC"}]
    assert told["data"]["windows"]["train"] > 0


def test_many_files_share_a_line(tmp_path, capsys):
    for number in range(120):
        write(tmp_path / f"S{number:03}.parquet")
    assert main(["check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "read     120 files  (48,000 rows; --json lists them)" in out
    assert "S000.parquet" not in out


def test_paths_and_data_together_are_refused(folder, capsys):
    assert main(["check", str(folder), "--data", str(folder)]) == 2
    assert "give the data once" in capsys.readouterr().err


def test_a_leak_is_a_warning_in_the_file_and_a_refusal_among_the_inputs(tmp_path, capsys):
    path = write(tmp_path / "a.parquet", target_5=np.random.default_rng(1).standard_normal(400))
    assert main(["check", str(path)]) == 0
    assert f"warning  {path}: target_5: looks into the future: its name" in capsys.readouterr().out
    chosen = ["--set", 'features.columns=["target_5"]']
    assert main(["check", str(path), *chosen]) == 2
    out = capsys.readouterr().out
    assert f"refusal  {path}: target_5:" in out and 'features.exclude=["target_5"]' in out
    assert main(["check", str(path), *chosen, "--set", 'features.allow_leaks=["target_5"]']) == 0


def test_features_of_the_users_own_are_inputs_unless_they_look_ahead(tmp_path, capsys):
    path = write(tmp_path / "a.parquet")
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "def good(bars):\n    return {'mine': bars.columns['close'] * 2 + bars.ts_event % 7}\n"
        "def bad(bars):\n    return {'mine': bars.columns['close'] - bars.columns['close'].mean()}\n"
    )
    assert main(["check", str(path), "--features", f"{file}:good"]) == 0
    assert " mine\n" in capsys.readouterr().out
    assert main(["check", str(path), "--features", f"{file}:bad"]) == 2
    assert "column 'mine' looks into the future" in capsys.readouterr().out
    assert main(["check", str(path), "--features", f"{file}:other"]) == 2
    assert "has no function 'other'" in capsys.readouterr().err


def test_prepare_writes_what_check_reads_and_again_does_nothing(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", str(folder), str(out)]) == 2
    assert "zero.parquet: zero bytes" in capsys.readouterr().err
    assert main(["prepare", str(folder), str(out), "--skip-bad"]) == 0
    assert f"{out}: 2 symbols, 800 rows in, 0 dropped, 800 out" in capsys.readouterr().out
    written = (out / "A.parquet").stat().st_mtime_ns
    assert main(["prepare", str(folder), str(out), "--skip-bad", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["rows_out"] == 800
    assert (out / "A.parquet").stat().st_mtime_ns == written
    assert main(["check", str(out)]) == 0


def test_an_unfinished_folder_is_refused(folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["prepare", str(folder), str(out), "--skip-bad"]) == 0
    (out / "_unfinished.json").write_text("{}")
    assert main(["check", str(out)]) == 2
    assert "`foxhunt prepare` was not finished there" in capsys.readouterr().err


def test_prepare_into_the_source_is_refused(folder, capsys):
    assert main(["prepare", str(folder), str(folder / "out")]) == 2
    assert "which is read; give an empty folder" in capsys.readouterr().err


def test_trades_become_bars(tmp_path, capsys):
    random = np.random.default_rng(0)
    ts = np.cumsum(random.integers(0, 2 * 10**9, 3000))
    table = pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("ns", "UTC")),
            "price": 100 + random.random(3000),
            "qty": random.random(3000),
        }
    )
    pq.write_table(table, tmp_path / "X.parquet")
    assert main(["check", str(tmp_path / "X.parquet")]) == 2
    assert "3,000 trades from" in capsys.readouterr().out
    assert main(["prepare", str(tmp_path / "X.parquet"), str(tmp_path / "out"), "--bars", "10s"]) == 0
    assert "3,000 events -> " in capsys.readouterr().out
    bars = pq.read_table(tmp_path / "out" / "X.parquet").to_pandas()
    trades = table.to_pandas().set_index("ts")
    wanted = trades["price"].resample("10s").ohlc().dropna()
    np.testing.assert_array_equal(bars["close"], wanted["close"])
    assert bars["volume"].sum() == pytest.approx(trades["qty"].sum())

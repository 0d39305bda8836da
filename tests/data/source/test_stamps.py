"""Which side of its bar a stamp marks, and that the notes say what was done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.cli import main
from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import scan_market

HOUR = 3600 * 10**9
STAMPS = 1_577_836_800 * 10**9 + HOUR * np.arange(50)


def source(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"ts": pa.array(STAMPS, pa.timestamp("ns", "UTC")), "close": np.arange(1.0, 51)}), path
    )
    return path


@pytest.mark.parametrize(("stamp", "moved"), [("auto", 0), ("start", 0), ("end", HOUR)])
def test_stamps_are_moved_where_they_mark_the_end_and_said_to_be_the_start_elsewhere(
    tmp_path: Path, stamp: str, moved: int
) -> None:
    file = source(tmp_path / "A.parquet")
    market = scan_market(load_config(None, {"data.path": str(file), "data.stamp": stamp}))
    np.testing.assert_array_equal(market.bars[0].ts_event, STAMPS - moved)
    assert any("moved to its start, by 1 h" in note for note in market.notes) == bool(moved)
    assert any("taken as the start of each bar" in note for note in market.notes) != bool(moved)


def test_prepared_files_hold_starts_whatever_the_config_says_and_the_notes_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["prepare", str(source(tmp_path / "in" / "A.parquet")), str(out)]) == 0
    capsys.readouterr()
    market = scan_market(load_config(None, {"data.path": str(out), "data.stamp": "end"}))
    np.testing.assert_array_equal(market.bars[0].ts_event, STAMPS)
    assert any("taken as the start of each bar" in note for note in market.notes)

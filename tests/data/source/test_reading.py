"""The rows of a file come out by symbol, in whatever portions it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foxhunt_ray.config import Config, load_config
from foxhunt_ray.data.discover import discover
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source import reading
from foxhunt_ray.data.source.layout import read_layout

N, NAMES = 1000, ("close", "volume", "a", "b")


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    random = np.random.default_rng(0)
    stamps = pd.to_datetime(np.sort(random.choice(10 * N, N, replace=False)) * 60 * 10**9, utc=True)
    frame = pd.DataFrame({"ts": stamps, "symbol": random.choice(list("ABCDEFG"), N)})
    for name in NAMES:
        frame[name] = random.random(N)
    frame.to_parquet(tmp_path / "all.parquet", row_group_size=300)
    return frame


def read(folder: Path, config: Config, *symbols: str, columns: tuple[str, ...] = NAMES) -> reading.Reading:
    (entry,) = discover([str(folder)])
    wanted = reading.Wanted(frozenset(symbols), frozenset(columns), 1.0)
    return reading.read_file(read_layout(entry, config), config, wanted, Scratch())


@pytest.mark.parametrize("nbytes", [1, 2400, 4800, 5000, 10**9])
def test_every_symbol_has_its_rows_whatever_the_portion(
    table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    monkeypatch.setattr(reading, "_READ_BYTES", nbytes)
    found = read(tmp_path, load_config())
    assert found.symbols == found.pieces.keys() == set("ABCDEFG")
    for symbol, piece in found.pieces.items():
        rows = table[table["symbol"] == symbol]
        assert list(piece.columns) == list(NAMES)
        for name in NAMES:
            np.testing.assert_array_equal(piece.columns[name], rows[name])


def test_only_what_is_wanted_is_kept(table: pd.DataFrame, tmp_path: Path) -> None:
    found = read(tmp_path, load_config(), "B", "D", columns=("close", "a"))
    assert found.symbols == set("ABCDEFG")
    assert {s: list(p.columns) for s, p in found.pieces.items()} == {s: ["close", "a"] for s in "BD"}


@pytest.mark.parametrize("timezone", ["", "America/New_York"])
def test_stamps_with_a_zone_are_the_same_whatever_zone_is_set(
    table: pd.DataFrame, tmp_path: Path, timezone: str
) -> None:
    found = read(tmp_path, load_config(None, {"data.timezone": timezone}))
    for symbol, piece in found.pieces.items():
        stamps = table["ts"][table["symbol"] == symbol].to_numpy("M8[ns]").astype(np.int64)
        np.testing.assert_array_equal(piece.ts_event, stamps)

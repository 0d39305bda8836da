"""Trades, quotes and book events are told from bars; a column that tells sides apart is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.data.source.events import event_findings, telling_column
from foxhunt_ray.data.source.merge import Piece

SECOND = 10**9
IRREGULAR = np.cumsum(np.random.default_rng(0).integers(0, 5 * SECOND, 400))
REGULAR = 60 * SECOND * np.arange(400)


def told(columns: list[str], stamps: np.ndarray) -> str:
    found = event_findings(columns, {"X": np.asarray(stamps, np.int64)}, file="f")
    assert all(f.level == "refusal" and f.action.startswith("aggregate: `foxhunt prepare") for f in found)
    return found[0].text if found else ""


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (["price", "qty", "is_buyer_maker"], "400 trades from"),
        (["trade_id", "Price", "Quantity"], "400 trades from"),
        (["bid_price", "ask_price"], "400 quotes or book events from"),
        (["bid_px_00", "ask_px_00", "price", "size"], "400 quotes or book events from"),
    ],
)
def test_events_at_irregular_stamps_are_refused(columns: list[str], what: str) -> None:
    assert told(columns, IRREGULAR).startswith(what)
    assert told(columns, REGULAR) == ""


@pytest.mark.parametrize(
    "columns", [["open", "high", "low", "close"], ["close"], ["price"], ["bid_close", "ask_close"], ["rate"]]
)
def test_bars_and_single_series_are_no_events(columns: list[str]) -> None:
    assert told(columns, IRREGULAR) == told(columns, REGULAR) == ""


def test_ties_are_counted() -> None:
    assert "200 of them at the stamp of the one before" in told(
        ["price", "size"], np.repeat(REGULAR[:200], 2)
    )


def test_ties_among_regular_stamps_show_events() -> None:
    assert "20 of them at the stamp" in told(["price", "size"], np.sort(np.r_[REGULAR, REGULAR[:20]]))
    assert told(["price", "size"], np.sort(np.r_[REGULAR, REGULAR[:2]])) == ""


@pytest.mark.parametrize(("length", "step"), [(SECOND, "1s"), (60 * SECOND, "1m")])
def test_the_length_of_bars_that_is_offered_fits_the_span(length: int, step: str) -> None:
    stamps = IRREGULAR // SECOND * length
    (refused,) = event_findings(["price", "size"], {"X": stamps}, file="f")
    assert refused.action.endswith(f"--bars {step}`")


def test_a_column_that_tells_rows_of_one_stamp_apart_is_found(tmp_path: Path) -> None:
    n = 50
    table = pa.table(
        {
            "ts": np.repeat(REGULAR[:n], 2),
            "flag": pa.array([True] * (2 * n)),
            "price": np.arange(2.0 * n),
            "side": ["bid", "ask"] * n,
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    whole = Piece(str(tmp_path / "x.parquet"), np.repeat(REGULAR[:n], 2), {})
    assert telling_column(whole) == "side"
    part = Piece(whole.path, REGULAR[:n], {}, rows=np.arange(0, 2 * n, 2))
    assert telling_column(part) == ""  # one side only: nothing varies


def test_where_no_stamp_comes_twice_nothing_is_told_apart(tmp_path: Path) -> None:
    n = 50
    pq.write_table(pa.table({"ts": REGULAR[:n], "trades": np.arange(n) % 7}), tmp_path / "x.parquet")
    assert telling_column(Piece(str(tmp_path / "x.parquet"), REGULAR[:n], {})) == ""


def test_text_is_taken_before_numbers_that_differ_by_chance(tmp_path: Path) -> None:
    n = 50
    stamps = np.repeat(REGULAR[:n], 2)
    table = pa.table({"trades": np.arange(2 * n) % 7, "contract": ["ESZ3", "ESH4"] * n})
    for names, wanted in ((["trades", "contract"], "contract"), (["trades"], "trades")):
        pq.write_table(table.select(names), tmp_path / "x.parquet")
        assert telling_column(Piece(str(tmp_path / "x.parquet"), stamps, {})) == wanted

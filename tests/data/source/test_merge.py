"""Pieces become one series: every row is kept or counted, and equals what pandas keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.data.source.merge import Merged, Piece, merge_symbol

HOUR = 3600 * 10**9
ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from([1.0, 2.0, float("nan")])), max_size=12)
FILES = st.lists(ROWS, min_size=1, max_size=4).filter(lambda files: any(files))


def piece(name: str, made: list[tuple[int, float]], **more: object) -> Piece:
    hours, close = (list(x) for x in zip(*made, strict=True)) if made else ([], [])
    columns = {"close": np.array(close, float), "volume": np.array(hours, float)}
    return Piece(name, np.array(hours, np.int64) * HOUR, columns, **more)


def merged(pieces: list[Piece], rule: str = "refuse", **more: object) -> Merged:
    return merge_symbol("X", pieces, rule=rule, scratch=Scratch(), **more)


def frame(files: list[list[tuple[int, float]]]) -> pd.DataFrame:
    rows = [(h, c, f, i) for f, rows in enumerate(files) for i, (h, c) in enumerate(rows)]
    return pd.DataFrame(rows, columns=["hour", "close", "file", "row"]).sort_values("hour", kind="stable")


@pytest.mark.parametrize("rule", ["first", "last"])
@settings(max_examples=60, deadline=None)
@given(files=FILES)
def test_what_is_kept_equals_pandas_and_every_row_is_counted(
    rule: str, files: list[list[tuple[int, float]]]
) -> None:
    found = merged([piece(str(n), rows) for n, rows in enumerate(files)], rule)
    wanted = frame(files).drop_duplicates("hour", keep=rule)
    np.testing.assert_array_equal(found.piece.ts_event, wanted["hour"] * HOUR)
    np.testing.assert_array_equal(found.piece.columns["close"], wanted["close"])
    assert len(wanted) + sum(found.dropped.values()) == sum(map(len, files))
    distinct = frame(files).drop_duplicates(["hour", "close"])
    differing = len(distinct) - len(wanted)
    assert found.dropped.get("conflicting duplicate", 0) == differing


@settings(max_examples=60, deadline=None)
@given(files=FILES, data=st.data())
def test_the_latest_by_a_column_equals_pandas_where_a_missing_one_is_the_earliest(
    files: list[list[tuple[int, float]]], data: st.DataObject
) -> None:
    ranks = [
        data.draw(st.lists(st.sampled_from([1.0, 2.0, np.nan]), min_size=len(f), max_size=len(f)))
        for f in files
    ]
    pieces = [piece(str(n), rows, rank=np.array(ranks[n])) for n, rows in enumerate(files)]
    found = merged(pieces, "latest_by:seen")
    wanted = frame(files).assign(
        rank=lambda f: [ranks[a][b] for a, b in zip(f["file"], f["row"], strict=True)]
    )
    wanted = wanted.sort_values(["hour", "rank"], kind="stable", na_position="first").drop_duplicates(
        "hour", keep="last"
    )
    np.testing.assert_array_equal(found.piece.columns["close"], wanted["close"])
    traced = [
        (run.path, run.source_row + run.step * i) for run in found.origin.runs() for i in range(run.rows)
    ]
    assert traced == [(str(f), r) for f, r in zip(wanted["file"], wanted["row"], strict=True)]


@settings(max_examples=60, deadline=None)
@given(
    files=st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=8), st.sets(st.sampled_from("xyz"))),
        min_size=1,
        max_size=4,
    ).filter(lambda files: any(hours for hours, _ in files)),
    rule=st.sampled_from(["refuse", "first", "last"]),
)
def test_files_that_agree_but_lack_columns_give_what_any_of_them_knows(
    files: list[tuple[list[int], set[str]]], rule: str
) -> None:
    frames = [
        pd.DataFrame({"hour": hours} | {n: np.array(hours) + ord(n) * 1.0 for n in sorted({"x", *names})})
        for hours, names in files
    ]
    pieces = [
        Piece(str(n), f["hour"].to_numpy(np.int64) * HOUR, {c: f[c].to_numpy(float) for c in f.columns[1:]})
        for n, f in enumerate(frames)
    ]
    found = merged(pieces, rule)
    wanted = pd.concat(frames).groupby("hour").last()
    for name, values in found.piece.columns.items():
        np.testing.assert_array_equal(values, wanted[name])
    assert all(f.level == "note" for f in found.findings)
    assert found.dropped.get("exact duplicate", 0) == sum(map(len, frames)) - len(wanted)
    widths = {run.path: frames[int(run.path)].shape[1] for run in found.origin.runs()}
    kept = np.repeat([widths[r.path] for r in found.origin.runs()], [r.rows for r in found.origin.runs()])
    widest = pd.concat([f.assign(width=f.shape[1]) for f in frames]).groupby("hour")["width"].max()
    np.testing.assert_array_equal(kept, widest)


@settings(max_examples=60, deadline=None)
@given(files=FILES)
def test_every_kept_row_is_traced_to_its_file_and_row(files: list[list[tuple[int, float]]]) -> None:
    found = merged([piece(str(n), rows) for n, rows in enumerate(files)], "last")
    traced = [
        (run.path, run.source_row + run.step * i) for run in found.origin.runs() for i in range(run.rows)
    ]
    wanted = frame(files).drop_duplicates("hour", keep="last")
    assert traced == [(str(f), r) for f, r in zip(wanted["file"], wanted["row"], strict=True)]


def test_rows_of_a_long_file_are_traced_to_their_numbers_there() -> None:
    one = piece("f", [(0, 1.0), (1, 2.0), (2, 3.0)], rows=np.array([4, 7, 8]))
    runs = [(r.source_row, r.step, r.rows) for r in merged([one]).origin.runs()]
    assert runs == [(4, 1, 1), (7, 1, 2)]


def test_newest_first_is_one_run_backwards() -> None:
    found = merged([piece("f", [(h, 1.0) for h in range(9, -1, -1)])])
    assert [(r.source_row, r.step, r.rows) for r in found.origin.runs()] == [(9, -1, 10)]
    assert (np.diff(found.piece.ts_event) == HOUR).all()


def test_a_series_in_order_is_passed_on_without_a_copy() -> None:
    one = piece("f", [(h, float(h)) for h in range(5)])
    found = merged([one])
    assert found.piece.ts_event is one.ts_event
    assert found.piece.columns["close"] is one.columns["close"]


def test_the_latest_by_a_column_is_kept_whatever_the_order_of_files() -> None:
    late = piece("a", [(0, 1.0), (1, 2.0)], rank=np.array([9, 9]))
    early = piece("b", [(1, 3.0), (2, 4.0)], rank=np.array([5, 5]))
    found = merged([late, early], "latest_by:seen")
    assert found.piece.columns["close"].tolist() == [1, 2, 4]
    assert found.dropped == {"conflicting duplicate": 1}
    assert [f.level for f in found.findings] == ["note"]


def test_a_rank_does_not_copy_a_series_in_order_nor_turn_events_of_one_stamp() -> None:
    one = piece("f", [(h, float(h)) for h in range(5)], rank=np.arange(5)[::-1])
    assert merged([one], "latest_by:seen").piece.columns["close"] is one.columns["close"]
    events = piece("f", [(0, 1.0), (0, 2.0)], rank=np.array([2, 1]))
    assert merged([events], "latest_by:seen", keep_ties=True).piece.columns["close"].tolist() == [1, 2]


def test_rows_that_differ_are_refused_with_stamp_value_and_both_files() -> None:
    first = piece("a", [(h, 1.0) for h in range(60)])
    second = piece("b", [(58, 1.0), (59, 7.0)])
    (question,) = merged([first, second]).findings
    assert question.level == "refusal" and question.count == 1
    assert question.text == (
        "X: 62 rows in 2 files give 60 distinct stamps; rows that repeat another exactly, dropped: 1; stamps "
        "whose rows differ: 1 (1970-01-03T11:00:00+00:00): close is 1 in a but 7 in b"
    )
    assert question.action == "set data.duplicates = first, last or latest_by:COLUMN"


def test_many_rows_that_differ_are_taken_for_interleaved_series() -> None:
    mixed = piece("a", [(h // 2, float(h)) for h in range(20)])
    assert "if contracts or sides are interleaved here" in merged([mixed]).findings[0].action
    told = merged([mixed], label=lambda: "side").findings[0].action
    assert told == "column 'side' tells them apart: set data.symbol_column = side"


def test_ties_are_kept_in_their_order_for_events() -> None:
    events = piece("a", [(1, 5.0), (0, 1.0), (1, 6.0), (1, 5.0)])
    found = merged([events], keep_ties=True)
    assert found.piece.columns["close"].tolist() == [1, 5, 6, 5]
    assert (found.dropped, found.findings) == ({}, ())


def test_a_column_that_a_file_lacks_is_no_difference_and_is_filled_from_the_other() -> None:
    full = piece("a", [(0, 1.0), (1, 2.0)])
    bare = Piece("b", np.array([1, 2]) * HOUR, {"close": np.array([2.0, 3.0])})
    for pieces in ([full, bare], [bare, full]):
        found = merged(pieces)
        assert found.dropped == {"exact duplicate": 1}
        assert found.piece.columns["close"].tolist() == [1, 2, 3]
        np.testing.assert_array_equal(found.piece.columns["volume"], [0, 1, np.nan])


def test_rows_that_differ_are_not_mixed_to_one_that_stands_in_no_file() -> None:
    full = piece("a", [(0, 1.0), (1, 2.0)])
    bare = Piece("b", np.array([1]) * HOUR, {"close": np.array([5.0])})
    found = merged([full, bare], "last")
    assert found.dropped == {"conflicting duplicate": 1}
    np.testing.assert_array_equal(found.piece.columns["close"], [1, 5])
    np.testing.assert_array_equal(found.piece.columns["volume"], [0, np.nan])
    assert merged([full, bare], "first").piece.columns["volume"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("night", "local"),
    [
        ("2023-11-05T01", True),  # New York
        ("2023-10-29T02", True),  # Berlin
        ("2006-10-29T01", True),  # New York, before 2007
        ("2023-11-05T12", False),
        ("2023-11-12T01", False),
        ("2023-10-22T01", False),
        ("2023-11-04T01", False),
    ],
)
def test_an_hour_that_comes_twice_when_clocks_go_back_asks_for_the_zone(night: str, local: bool) -> None:
    hour = int(np.datetime64(night, "h").astype(int))
    minutes = np.r_[hour * 60 - 60 : hour * 60 + 60, hour * 60 : hour * 60 + 120] * (HOUR // 60)
    one = Piece("a", minutes, {"close": np.arange(len(minutes)) * 1.0})
    (question,) = merged([one]).findings
    assert question.count == 60
    assert ("; all in the night in which clocks go back" in question.text) is local
    rules = "set data.duplicates = first, last or latest_by:COLUMN"
    assert (question.action == f"set data.timezone if the stamps are local time, else {rules}") is local


def test_every_way_out_is_named_where_two_files_differ_throughout() -> None:
    action = merged([piece("a", [(h, 1.0) for h in range(9)]), piece("b", [(h, 2.0) for h in range(9)])])
    assert action.findings[0].action.endswith("else set data.duplicates = first, last or latest_by:COLUMN")


def test_the_snapshots_keep_what_was_collected_last(real_data: Path) -> None:
    paths = sorted((real_data / "binance_snapshots").glob("production_*"))
    frames = [pd.read_parquet(p) for p in paths]
    numbers = [c for c in frames[0].columns if frames[0][c].dtype.kind in "fi"]
    pieces = [
        Piece(
            str(p),
            f["timestamp"].to_numpy().astype("M8[ns]").astype(np.int64),
            {c: f[c].to_numpy(float) for c in numbers},
            rank=f["collection_time"].to_numpy().astype(np.int64),
        )
        for p, f in zip(paths, frames, strict=True)
    ]
    (question,) = merged(pieces[::-1]).findings
    assert "800 rows in 8 files give 155 distinct stamps" in question.text
    assert "dropped: 638; stamps whose rows differ: 6 (2025-06-28T06:11:00+00:00, " in question.text
    found = merged(pieces[::-1], "latest_by:collection_time")
    assert found.dropped == {"exact duplicate": 638, "conflicting duplicate": 7}
    wanted = (
        pd.concat(frames).sort_values("collection_time", kind="stable").groupby("timestamp")[numbers].last()
    )
    for name in numbers:
        np.testing.assert_array_equal(found.piece.columns[name], wanted[name])

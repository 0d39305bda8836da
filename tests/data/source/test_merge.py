"""Pieces become one series: every row is kept or counted, and equals what pandas keeps."""

from __future__ import annotations

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

"""Files that differ: noted where it changes nothing, else refused with two files and what settles it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.config import Config, load_config
from foxhunt_ray.data.discover import discover
from foxhunt_ray.data.findings import Finding
from foxhunt_ray.data.source.columns import column_roles
from foxhunt_ray.data.source.drift import DriftPlan, drift
from foxhunt_ray.data.source.layout import Layout, read_layouts
from foxhunt_ray.data.source.timestamps import time_columns, time_kind

UTC, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
BARS = {"ts": UTC, "close": pa.float64()}


def config(**data: Any) -> Config:
    return load_config(None, {f"data.{k}": v for k, v in data.items()})


def layout(name: str, types: dict[str, Any], symbol_column: str = "") -> Layout:
    schema = pa.schema(list(types.items()))
    times = tuple(time_columns(schema, "", path=name))
    return Layout(
        path=f"{name}.parquet",
        rows=1,
        times=times,
        time_kind=time_kind(schema.field(times[0]).type),
        symbol_column=symbol_column,
        symbol="" if symbol_column else name,
        symbol_source="",
        roles=column_roles(schema, taken={*times, symbol_column}, path=name),
        types=tuple((field.name, str(field.type)) for field in schema),
    )


def compare(*types: dict[str, Any], **data: Any) -> tuple[DriftPlan, list[Finding]]:
    return drift([layout("ABCDEFG"[at], each) for at, each in enumerate(types)], config(**data))


def refusals(found: list[Finding]) -> list[str]:
    return [str(f) for f in found if f.level == "refusal"]


def test_files_that_agree_but_for_the_order_of_columns_give_no_finding() -> None:
    plan, found = compare(BARS, dict(reversed(BARS.items())), BARS)
    assert found == []
    assert plan.columns == ("close",)


def test_widening_is_one_note_a_kind() -> None:
    first = {"ts": UTC, "close": pa.float64(), "x": pa.int32(), "side": pa.string(), "end": NAIVE}
    second = {
        "ts": pa.timestamp("ns", "UTC"),
        "close": pa.float32(),
        "x": pa.float64(),
        "side": pa.dictionary(pa.int8(), pa.string()),
        "end": NAIVE,
    }
    plan, found = compare(first, second)
    assert plan.columns == ("close", "x")
    assert [str(f) for f in found] == [
        "numbers of different types are read as float64: close (double, float), x (int32, double)",
        "text is stored in different ways, which makes no difference: side (string, "
        "dictionary<values=string, indices=int8, ordered=0>)",
        "time columns of different types are read as nanoseconds: ts (timestamp[us, tz=UTC], "
        "timestamp[ns, tz=UTC])",
    ]


def test_columns_of_some_files_are_refused_with_both_files() -> None:
    plan, found = compare(BARS | {"x": pa.float64()}, BARS | {"y": pa.int64(), "z": pa.int64()}, BARS)
    assert plan.columns == ("close", "x", "y", "z")
    assert refusals(found) == [
        "B.parquet: column x missing here, in 2 of 3 files; A.parquet has it; set data.missing_columns = "
        "fill (missing values there) or drop (leave them out)",
        "A.parquet: columns y, z missing here, in 2 of 3 files; B.parquet has them; set data.missing_columns "
        "= fill (missing values there) or drop (leave them out)",
    ]


@pytest.mark.parametrize(("choice", "columns"), [("fill", ("close", "x")), ("drop", ("close",))])
def test_the_answer_fills_or_drops_and_says_so(choice: str, columns: tuple[str, ...]) -> None:
    plan, found = compare(BARS | {"x": pa.float64()}, BARS, missing_columns=choice)
    assert plan.columns == columns
    assert refusals(found) == []
    assert "1 of 2 files lack" in found[0].text or "missing values in 1 of 2 files" in found[0].text


names = st.sets(st.sampled_from(["close", "x", "y", "z"]))


@given(st.lists(names, min_size=1, max_size=6))
def test_columns_are_the_union_or_the_intersection_and_the_table_counts_every_file(
    held: list[set[str]],
) -> None:
    schemas = [{"ts": UTC} | dict.fromkeys(sorted(each), pa.float64()) for each in held]
    schemas = [s | {"open": pa.float64()} for s in schemas]
    filled, refused = compare(*schemas)
    dropped, _ = compare(*schemas, missing_columns="drop")
    assert set(filled.columns) == set.union(*held) | {"open"}
    assert set(dropped.columns) == set.intersection(*held) | {"open"}
    for row in filled.table:
        assert sum(row["kinds"].values()) + row["missing_in"] == len(held)
        assert set(row["examples"]) == {*row["kinds"], *(["missing"] if row["missing_in"] else [])}
    gaps = [row for row in filled.table if row["missing_in"]]
    assert bool(refusals(refused)) == bool(gaps)


def test_prices_are_the_same_in_any_spelling_but_other_columns_are_refused() -> None:
    plan, found = compare(
        BARS | {"Volume": pa.int64(), "rsi": pa.float64()}, BARS | {"volume": pa.int64(), "RSI": pa.float64()}
    )
    assert plan.columns == ("close", "volume", "rsi", "RSI")
    assert refusals(found) == [
        "B.parquet: RSI: is written 'rsi' in A.parquet: the names differ in capitals only; give them one "
        "spelling, or read them apart"
    ]


def test_two_spellings_within_one_file_are_two_columns() -> None:
    _, found = compare(BARS | {"x": pa.float64(), "X": pa.float64()}, BARS | {"x": pa.float64()})
    assert len(refusals(found)) == 1
    assert refusals(found)[0].startswith("B.parquet: column X missing here")


@pytest.mark.parametrize("zones", [(NAIVE, UTC), (UTC, UTC, NAIVE)])
def test_stamps_with_and_without_zone_are_refused_unless_the_zone_is_given(zones: tuple[Any, ...]) -> None:
    schemas = [{"ts": zone, "close": pa.float64()} for zone in zones]
    (refused,) = refusals(compare(*schemas)[1])
    naive, aware = "ABC"[zones.index(NAIVE)], "ABC"[zones.index(UTC)]
    assert refused.startswith(
        f"stamps have no time zone in {naive}.parquet (ts) but one in {aware}.parquet (ts)"
    )
    assert "set data.timezone" in refused
    assert refusals(compare(*schemas, timezone="UTC")[1]) == []


@pytest.mark.parametrize("dtype", [pa.string(), pa.int64(), pa.date32()])
def test_stamps_of_different_kinds_are_refused(dtype: Any) -> None:
    _, found = compare({"date": dtype, "close": pa.float64()}, BARS)
    (refused,) = refusals(found)
    assert "in A.parquet (date) but a timestamp in B.parquet (ts)" in refused


def test_stamps_under_different_names_are_noted() -> None:
    _, found = compare(BARS, BARS, {"open_time": UTC, "close": pa.float64()})
    assert [str(f) for f in found] == ["the stamp is column ts in 2 of 3 files, open_time in 1 of 3 files"]


def test_a_symbol_column_of_some_files_is_refused() -> None:
    long = layout("A", BARS | {"symbol": pa.string()}, "symbol")
    _, found = drift([long, layout("B", BARS), layout("C", BARS)], config())
    assert refusals(found) == [
        "A.parquet has the symbol in column 'symbol', B.parquet has no such column, like 2 of 3 files; add "
        "it there, or read them apart"
    ]


def test_text_against_numbers_is_refused_but_not_an_empty_column() -> None:
    _, found = compare(BARS | {"x": pa.float64()}, BARS | {"x": pa.binary()})
    assert refusals(found) == [
        "B.parquet: x: holds binary here but double in A.parquet; write one kind, or read them apart"
    ]
    plan, found = compare(BARS | {"x": pa.null()}, BARS | {"x": pa.binary()})
    assert plan.columns == ("close",)
    assert refusals(found) == []


def test_many_files_of_few_schemas_are_counted_by_file() -> None:
    layouts = [layout(f"S{at}", BARS if at % 3 else BARS | {"x": pa.float64()}) for at in range(300)]
    plan, found = drift(layouts, config())
    assert {row["column"]: row["missing_in"] for row in plan.table} == {"ts": 0, "close": 0, "x": 200}
    assert len(found) == 1 and found[0].count == 200


def test_wide_files_of_different_tickers_agree(tmp_path: Path) -> None:
    for name, symbols in (("x", "AB"), ("y", "ABC")):
        columns = {f"{f}_{s}": [1.0] for s in symbols for f in ("Close", "Open")}
        pq.write_table(pa.table({"ts": pa.array([0], UTC), **columns}), tmp_path / f"{name}.parquet")
    both = config(path=str(tmp_path))
    plan, found = drift(read_layouts(discover(both.data.paths), both)[0], both)
    assert (plan.columns, found) == (("close", "open"), [])


def test_the_real_snapshots_name_which_file_lacks_what(real_data: Path) -> None:
    one = config(path=str(real_data / "binance_snapshots"))
    layouts, _ = read_layouts(discover(one.data.paths), one)
    plan, found = drift(layouts, one)
    symbol, missing = refusals(found)
    assert "production_ETHUSDT_1m_20250628_141159.parquet has the symbol in column 'symbol'" in symbol
    assert "/ETHUSDT.parquet: columns quote_asset_volume, number_of_trades, taker_buy" in missing
    assert "missing here, in 1 of 11 files" in missing and "ETHUSDT_1h_20250628_000741.parquet has" in missing
    table = {row["column"]: row for row in json.loads(json.dumps(plan.table))}
    assert {
        name: table[name]["missing_in"] for name in ("close", "ignore", "interval", "collection_time")
    } == {
        "close": 0,
        "ignore": 9,
        "interval": 3,
        "collection_time": 3,
    }


def test_real_quotes_and_bars_differ_in_columns(real_data: Path) -> None:
    one = config(path=str(real_data / "nautilus_64bit"))
    _, found = drift(read_layouts(discover(one.data.paths), one)[0], one)
    assert [Path(f.file).name for f in found] == ["quotes.parquet", "bars.parquet"]

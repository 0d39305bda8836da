"""Any layout that is understood becomes one canonical form; every other one is refused by file and column."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Bars, Market, read_market
from foxhunt_ray.errors import DataError

HOUR = 3600 * 10**9
START = 1_600_000_000 * 10**9 // HOUR * HOUR


def stamps(count: int, first: int = 0) -> Any:
    return pa.array(START + HOUR * np.arange(first, first + count), pa.timestamp("ns", "UTC"))


def write(path: Path, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def read(path: Path, **data: Any) -> Market:
    return read_market(
        load_config(None, {"data.path": str(path), **{f"data.{k}": v for k, v in data.items()}})
    )


def column(market: Market, name: str, symbol: int = 0) -> list[float]:
    return market.bars[symbol].columns[name].tolist()


def symbols(market: Market) -> list[str]:
    return [bars.symbol for bars in market.bars]


# Layouts


def test_a_part_of_bars_shares_the_memory_of_the_whole() -> None:
    whole = Bars("A", np.arange(5), {"close": np.arange(5.0)})
    part = whole.part(1, 3)
    assert part.symbol == "A" and part.ts_event.tolist() == [1, 2]
    assert part.columns["close"].tolist() == [1, 2]
    assert np.shares_memory(part.columns["close"], whole.columns["close"])
    del part.columns["close"]
    assert "close" in whole.columns


def test_one_file_a_symbol_takes_the_symbol_from_the_name(tmp_path: Path) -> None:
    for name in ("B", "A"):
        write(tmp_path / f"{name}.parquet", ts=stamps(2), close=[1.0, 2.0])
    market = read(tmp_path)
    assert symbols(market) == ["A", "B"]
    assert "symbols: 2 from file names: A, B" in market.notes


def test_hive_folders_name_symbols_and_their_files_are_joined(tmp_path: Path) -> None:
    write(tmp_path / "symbol=A" / "year=1" / "part-0.parquet", ts=stamps(2, 2), close=[3.0, 4.0])
    write(tmp_path / "symbol=A" / "year=2" / "part-0.parquet", ts=stamps(2), close=[1.0, 2.0])
    market = read(tmp_path)
    assert symbols(market) == ["A"]
    assert column(market, "close") == [1, 2, 3, 4]
    assert (np.diff(market.bars[0].ts_event) == HOUR).all()


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("name", ["symbol", "Ticker", "instrument"])
def test_a_symbol_column_tells_interleaved_rows_apart(tmp_path: Path, dtype: Any, name: str) -> None:
    ts = stamps(2).take(pa.array([0, 0, 1, 1]))
    file = write(
        tmp_path / "x.parquet",
        **{name: pa.array(list("BABA"), dtype), "ts": ts, "close": [1.0, 2.0, 3.0, 4.0]},
    )
    market = read(file)
    assert symbols(market) == ["A", "B"]
    assert (column(market, "close", 0), column(market, "close", 1)) == ([2, 4], [1, 3])


def test_the_config_names_symbol_and_time_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(2), end=stamps(2, 1), permno=[7, 8], close=[1.0, 2.0])
    market = read(file, symbol_column="permno", time_column="end")
    assert symbols(market) == ["7", "8"]
    assert [b.ts_event.tolist() for b in market.bars] == [[START + HOUR], [START + 2 * HOUR]]
    assert list(market.bars[0].columns) == ["close"]


def test_only_the_symbols_asked_for_are_kept(tmp_path: Path) -> None:
    for name in ("A", "B", "C"):
        write(tmp_path / f"{name}.parquet", ts=stamps(1), close=[1.0])
    assert symbols(read(tmp_path, symbols=["C", "A"])) == ["A", "C"]


def test_a_file_of_a_symbol_not_asked_for_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", ts=stamps(1), close=[1.0])
    write(tmp_path / "B.parquet", ts=stamps(1), other=[1.0])
    assert symbols(read(tmp_path, symbols=["A"])) == ["A"]


def test_an_unknown_symbol_is_refused_with_near_names(tmp_path: Path) -> None:
    write(tmp_path / "EURUSD.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(DataError, match=r"no symbol 'EURUSB' \(data.symbols\); did you mean EURUSD\?"):
        read(tmp_path, symbols=["EURUSB"])


@pytest.mark.parametrize("names", [("part-0", "part-1"), ("2023", "2024"), ("2024-01-01", "2024-01-02")])
def test_names_of_parts_and_dates_are_no_symbols(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        write(tmp_path / f"{name}.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(DataError, match=rf"{names[0]}.parquet: neither a column.*symbol=NAME"):
        read(tmp_path)


def test_folders_name_symbols_where_file_names_cannot(tmp_path: Path) -> None:
    for folder in ("AAPL", "MSFT"):
        write(tmp_path / folder / "1h.parquet", ts=stamps(1), close=[1.0])
    assert symbols(read(tmp_path)) == ["AAPL", "MSFT"]


def test_one_name_in_two_folders_is_not_taken_for_one_symbol(tmp_path: Path) -> None:
    for folder in ("yahoo", "polygon"):
        write(tmp_path / folder / "AAPL.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(
        DataError, match=r"polygon/AAPL.parquet: .*yahoo/AAPL.parquet has the same name.*symbol=NAME"
    ):
        read(tmp_path)


def test_monthly_files_are_joined_and_that_is_said(tmp_path: Path) -> None:
    for month in (1, 2):
        write(tmp_path / f"BTC-1m-2024-0{month}.parquet", ts=stamps(1, month), close=[1.0])
    market = read(tmp_path)
    assert symbols(market) == ["BTC"]
    assert any("2 files of BTC joined" in note for note in market.notes)


@pytest.mark.parametrize("names", [["A", None], ["A", ""]])
def test_rows_without_a_symbol_are_refused(tmp_path: Path, names: list[str | None]) -> None:
    file = write(tmp_path / "x.parquet", symbol=names, ts=stamps(2), close=[1.0, 2.0])
    with pytest.raises(DataError, match=r"x.parquet: symbol: 1 of 2 rows have no symbol"):
        read(file)


def test_a_named_symbol_column_must_exist_and_hold_names(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(DataError, match=r"no column 'sym' \(data.symbol_column\); its columns are ts, close"):
        read(file, symbol_column="sym")
    with pytest.raises(DataError, match=r"'close' \(data.symbol_column\) holds double, not names"):
        read(file, symbol_column="close")


# Columns


def test_names_of_prices_and_volume_are_normalised_and_others_kept(tmp_path: Path) -> None:
    names = ["Open", "HIGH", "Low", "Close", "Adj Close", "Volume", "Bid Close", "RSI_14", "asks[0].price"]
    file = write(tmp_path / "x.parquet", Date=stamps(1), **{name: [1.0] for name in names})
    expected = ["open", "high", "low", "close", "Adj Close", "volume", "bid_close", "RSI_14", "asks[0].price"]
    assert list(read(file).bars[0].columns) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None], pa.int64()), [1, np.nan]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array([0.5, None], pa.float32()), [0.5, np.nan]),
        (pa.array([np.float16(0.5), None], pa.float16()), [0.5, np.nan]),
        (pa.array([True, None]), [1, np.nan]),
        (pa.array([decimal.Decimal("1.25"), None], pa.decimal128(18, 4)), [1.25, np.nan]),
        (pa.array([decimal.Decimal("1.25"), None], pa.decimal256(50, 4)), [1.25, np.nan]),
        (pa.array([2.5, 2.5]).dictionary_encode(), [2.5, 2.5]),
        (pa.nulls(2), [np.nan, np.nan]),
    ],
)
def test_numbers_of_every_type_become_float64(tmp_path: Path, values: Any, expected: list[float]) -> None:
    found = read(write(tmp_path / "x.parquet", ts=stamps(2), close=values)).bars[0].columns["close"]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, expected)


def test_infinite_values_are_missing_and_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(3), close=[1.0, np.inf, -np.inf], f=[np.inf, 1.0, 1.0])
    market = read(file)
    np.testing.assert_array_equal(column(market, "close"), [1, np.nan, np.nan])
    assert "infinite values read as missing: close 2, f 1" in market.notes


def test_columns_that_are_no_numbers_are_left_out_by_name(tmp_path: Path) -> None:
    file = write(
        tmp_path / "x.parquet",
        ts=stamps(1),
        close=[1.0],
        side=["B"],
        levels=[[1.0]],
        __index_level_0__=[0],
        blob=pa.array([b"12345678"], pa.binary(8)),
    )
    market = read(file)
    assert list(market.bars[0].columns) == ["close"]
    left_out = "side (text), levels (list<element: double>), __index_level_0__ (row numbers), "
    assert f"columns left out: {left_out}blob (fixed_size_binary[8])" in market.notes


def test_a_price_that_is_no_number_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(1), Close=["n/c"])
    with pytest.raises(
        DataError, match=r"x.parquet: price column 'Close' holds .*, not numbers; write prices"
    ):
        read(file)


def test_two_columns_of_one_meaning_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(1), Close=[1.0], close=[2.0])
    with pytest.raises(DataError, match=r"x.parquet: columns 'Close' and 'close' both mean 'close'"):
        read(file)


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([stamps(1), pa.array([1.0]), pa.array([2.0])], ["ts", "close", "close"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet: column 'close' stands there 2 times"):
        read(tmp_path / "x.parquet")


def test_fixed_point_prices_are_scaled_and_that_is_said(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", ts=stamps(1), close=[3_972_400], volume=[1])
    assert column(read(file, price_scale=1.0), "close") == [3_972_400]
    market = read(file)
    assert (column(market, "close"), column(market, "volume")) == ([397.24], [1])
    assert any("x.parquet: integer prices (close) are read as fixed point" in note for note in market.notes)


def test_columns_without_values_or_without_change_are_named(tmp_path: Path) -> None:
    write(
        tmp_path / "A.parquet", ts=stamps(2), close=[1.0, 2.0], size=[0, 0], gone=pa.nulls(2), half=[1.0, 2.0]
    )
    write(
        tmp_path / "B.parquet",
        ts=stamps(2),
        close=[1.0, 2.0],
        size=[0, 0],
        gone=pa.nulls(2),
        half=pa.nulls(2),
    )
    notes = read(tmp_path).notes
    assert "columns without any value: gone, half (of B)" in notes
    assert "columns that never change: size = 0" in notes


# Order and repeats


def test_newest_first_is_sorted_and_said(tmp_path: Path) -> None:
    market = read(write(tmp_path / "x.parquet", ts=stamps(3)[::-1], close=[3.0, 2.0, 1.0]))
    assert column(market, "close") == [1, 2, 3]
    assert "order: the file is newest first; rows sorted by time" in market.notes


def test_exact_duplicates_are_dropped_and_counted(tmp_path: Path) -> None:
    for folder, first in (("a=1", 0), ("a=2", 2)):
        values = np.arange(first, first + 3, dtype=float)
        write(tmp_path / folder / "X.parquet", ts=stamps(3, first), close=values, f=values * np.nan)
    market = read(tmp_path)
    assert column(market, "close") == [0, 1, 2, 3, 4]
    assert market.dropped == {"exact duplicate": 1}
    told = "X: 6 rows in 2 files give 5 distinct stamps; rows that repeat another exactly, dropped: 1"
    assert told in market.notes


def test_rows_that_disagree_are_refused_with_symbol_stamp_and_both_files(tmp_path: Path) -> None:
    for folder, last in (("a=1", 2.0), ("a=2", 3.0)):
        close = [*np.ones(98), last]
        write(tmp_path / folder / "X.parquet", ts=stamps(99), close=close, volume=np.ones(99))
    stamp = "2020-09-17T14:00:00"
    expected = rf"stamps whose rows differ: 1 \({stamp}\S*\): close is 2 in .*a=1/X.parquet but 3 in .*a=2/X"
    with pytest.raises(DataError, match=expected):
        read(tmp_path)


def test_interleaved_trades_are_recognised(tmp_path: Path) -> None:
    ts = pa.concat_arrays([stamps(5), stamps(5)])
    file = write(tmp_path / "x.parquet", ts=ts, price=np.arange(10.0))
    with pytest.raises(
        DataError, match=r"stamps whose rows differ: 5 .*if contracts or sides.*data.symbol_column"
    ):
        read(file)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, 20)), min_size=1, max_size=40))
def test_every_row_is_kept_or_counted_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]
) -> None:
    symbol, hour = zip(*rows, strict=True)
    close = [ord(s) * 100.0 + h for s, h in rows]
    ts = pa.array(START + HOUR * np.array(hour), pa.timestamp("ns", "UTC"))
    market = read(write(tmp_path_factory.mktemp("x") / "x.parquet", symbol=symbol, ts=ts, close=close))
    found = [
        (b.symbol, (t - START) // HOUR, c)
        for b in market.bars
        for t, c in zip(b.ts_event.tolist(), b.columns["close"].tolist(), strict=True)
    ]
    assert found == sorted({(s, h, ord(s) * 100.0 + h) for s, h in rows})
    assert len(rows) == len(found) + sum((market.dropped or {}).values())


# Drift between files


def test_widening_of_numbers_is_no_drift(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", ts=stamps(1), Close=pa.array([1], pa.int32()))
    write(tmp_path / "B.parquet", close=pa.array([1.5], pa.float32()), time=stamps(1))
    assert [column(read(tmp_path), "close", i) for i in (0, 1)] == [[1], [1.5]]


def test_different_columns_are_refused_with_both_files(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", ts=stamps(1), close=[1.0], x=[1.0])
    write(tmp_path / "B.parquet", ts=stamps(1), close=[1.0], y=[1.0], x=["text"])
    expected = (
        r"A.parquet: column y missing here, in 1 of 2 files; .*B.parquet has it; set data.missing_columns"
    )
    with pytest.raises(DataError, match=expected):
        read(tmp_path)


def naive(path: Path) -> None:
    write(path, ts=pa.array([START], pa.timestamp("ns")), close=[1.0])


def test_stamps_with_and_without_zone_are_refused_with_both_files(tmp_path: Path) -> None:
    naive(tmp_path / "A.parquet")
    write(tmp_path / "B.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(DataError, match=r"no time zone in .*A.parquet \(ts\) but one in .*B.parquet \(ts\)"):
        read(tmp_path)


def test_a_named_zone_settles_stamps_with_and_without(tmp_path: Path) -> None:
    naive(tmp_path / "A.parquet")
    write(tmp_path / "B.parquet", ts=stamps(1), close=[1.0])
    market = read(tmp_path, timezone="Asia/Tokyo")
    assert [int(b.ts_event[0]) for b in market.bars] == [START - 9 * HOUR, START]


def test_text_against_timestamps_is_refused_with_both_files(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", date=["2020-01-01"], close=[1.0])
    write(tmp_path / "B.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(
        DataError, match=r"a text in .*A.parquet \(date\) but a timestamp in .*B.parquet \(ts\)"
    ):
        read(tmp_path)


def test_a_symbol_column_in_only_some_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", ts=stamps(1), close=[1.0], symbol=["A"])
    write(tmp_path / "B.parquet", ts=stamps(1), close=[1.0])
    with pytest.raises(DataError, match=r"A.parquet has the symbol in column 'symbol', .*B.parquet has no"):
        read(tmp_path)


def test_each_file_keeps_its_own_epoch_unit(tmp_path: Path) -> None:
    for name, ticks in (("A", 10**3), ("B", 10**6)):
        write(tmp_path / f"{name}.parquet", open_time=[START // 10**9 * ticks], close=[1.0])
    market = read(tmp_path)
    assert [int(b.ts_event[0]) for b in market.bars] == [START, START]
    read_as = "time: column open_time, ms since 1970 UTC; taken as the start of each bar (data.stamp)"
    assert f"{read_as} (1 of 2 files)" in market.notes


# Notes on time, and refusals


def test_the_zone_of_naive_stamps_is_stated(tmp_path: Path) -> None:
    naive(tmp_path / "A.parquet")
    assumed = (
        "time: column ts, timestamp[ns] without zone, read as UTC; set data.timezone if it is local time"
    )
    side = "; taken as the start of each bar (data.stamp)"
    assert read(tmp_path).notes[0] == assumed + side
    given_zone = "time: column ts, timestamp[ns] without zone, read as Asia/Tokyo"
    assert read(tmp_path, timezone="Asia/Tokyo").notes[0] == given_zone + side


def test_a_zone_that_is_not_needed_is_said(tmp_path: Path) -> None:
    write(tmp_path / "A.parquet", ts=stamps(1), close=[1.0])
    assert (
        "data.timezone is not used: the stamps carry their zone"
        in read(tmp_path, timezone="Asia/Tokyo").notes
    )


def test_refused_files_stop_the_reading_and_are_named(tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", ts=stamps(1), close=[1.0])
    for name in "abcde":
        (tmp_path / f"{name}.parquet").touch()
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    lines = str(caught.value).split("\n")
    assert [line.split(":")[0] for line in lines] == [str(tmp_path / f"{n}.parquet") for n in "abc"]
    assert lines[-1].endswith("(and 2 more: see `foxhunt check`)")


def test_a_damaged_page_is_refused_by_its_checksum(tmp_path: Path) -> None:
    table = pa.table({"ts": stamps(1000), "close": np.random.default_rng(0).normal(size=1000)})
    file = tmp_path / "x.parquet"
    pq.write_table(
        table,
        file,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
        write_statistics=False,
    )
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"x.parquet: its data cannot be decoded \(.*CRC"):
        read(file)


def test_int96_stamps_beyond_nanoseconds_are_refused_not_wrapped(tmp_path: Path) -> None:
    table = pa.table({"ts": pa.array([4 * 10**18 // 10**3 * 5], pa.timestamp("us")), "close": [1.0]})
    pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(DataError, match=r"x.parquet: ts: 2603.* in row 0 lies outside"):
        read(tmp_path)


def test_a_wide_table_keeps_its_columns(tmp_path: Path) -> None:
    market = read(write(tmp_path / "w.parquet", Date=stamps(2), AAPL=[1.0, 2.0], MSFT=[3.0, 4.0]))
    assert list(market.bars[0].columns) == ["AAPL", "MSFT"]


def test_a_symbol_that_is_rarely_traded_in_one_file_keeps_all_its_rows(tmp_path: Path) -> None:
    minute = 60 * 10**9
    for number, (step, count) in enumerate(((1, 100), (5, 30))):
        busy, quiet = minute * np.arange(100), minute * step * np.arange(count)
        ts = START + number * 24 * HOUR + np.concatenate([busy, quiet])
        write(
            tmp_path / f"d{number}.parquet",
            ts=pa.array(ts, pa.timestamp("ns", "UTC")),
            symbol=["P"] * 100 + ["Q"] * count,
            close=np.ones(len(ts)),
        )
    market = read(tmp_path)
    assert [len(b.ts_event) for b in market.bars] == [200, 130]
    assert market.rows_read == 330 and not market.dropped

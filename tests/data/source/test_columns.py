"""What each column of a file is by name, type and first values; a price that cannot be read is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.data.source.columns import Roles, column_roles, is_id
from foxhunt_ray.data.source.numbers import to_values
from foxhunt_ray.errors import DataError

F64 = pa.float64()


def named(*names: str) -> dict[str, str]:
    """Name used inside to name in the file, of float columns with these names."""
    return column_roles(pa.schema([(name, F64) for name in names]), taken=(), path="f.parquet").values


def roles(metadata: Any = None, **columns: Any) -> Roles:
    """Roles of a table of these columns, judged by its first rows."""
    arrays = {k: v if isinstance(v, pa.Array) else pa.array(v) for k, v in columns.items()}
    table = pa.table(arrays, metadata=metadata)
    return column_roles(table.schema, taken=(), path="f.parquet", head=lambda names: table.select(names))


def binary(width: int = 8) -> Any:
    return pa.array([bytes(width)], pa.binary(width))


# Names


def test_usual_names_become_one_spelling_and_others_stay() -> None:
    names = ["Open", "HIGH", "Low ", "close", "Volume", "Bid Close", "ask-size", "BID_PX_00", "Ask_Price"]
    expected = ["open", "high", "low", "close", "volume", "bid_close", "ask_size", "bid_px_00", "ask_price"]
    assert named(*names) == dict(zip(expected, names, strict=True))
    own = ["Adj Close", "RSI_14", "asks[0].price", "VWAP", "Volume USD", "$factor"]
    assert named(*own) == {name: name for name in own}


def test_short_names_of_vendors_are_known_where_all_four_are_there() -> None:
    short = {
        "open": "o",
        "high": "h",
        "low": "l",
        "close": "c",
        "volume": "v",
        "vwap": "vw",
        "trade_count": "n",
    }
    assert named(*short.values()) == short
    for others in (["o", "h", "c"], ["O", "H", "L", "C", "V"], ["o", "h", "l", "c", "Close"]):
        assert set(short.values()) & set(others) == set(short.values()) & set(named(*others).values())
        assert "open" not in named(*others)


def test_last_is_the_close_of_bars_without_one() -> None:
    assert named("Open", "Last") == {"open": "Open", "close": "Last"}
    assert set(named("Close", "Last")) == {"close", "Last"}
    assert set(named("o", "h", "l", "c", "last")) == {"open", "high", "low", "close", "last"}
    assert set(named("bid", "ask", "last")) == {"bid", "ask", "last"}  # of quotes, the mid is the price


def test_names_of_qlib_lose_their_sign() -> None:
    assert named("$open", "$close", "$volume", "$factor") == {
        "open": "$open",
        "close": "$close",
        "volume": "$volume",
        "$factor": "$factor",
    }


@pytest.mark.parametrize("pair", [("Close", "close"), ("close", "$close"), ("Last", "last")])
def test_two_columns_of_one_meaning_are_refused_by_both_names(pair: tuple[str, str]) -> None:
    with pytest.raises(DataError, match=r"f.parquet: columns .* both mean 'close'") as caught:
        named(*pair)
    assert all(repr(name) in str(caught.value) for name in pair)


def test_taken_columns_and_row_numbers_are_no_values() -> None:
    schema = pa.schema([("ts", pa.int64()), ("Unnamed: 0", pa.int64()), ("close", F64)])
    found = column_roles(schema, taken={"ts"}, path="f.parquet")
    assert (found.values, found.left_out) == ({"close": "close"}, ("Unnamed: 0 (row numbers)",))


# Types


def test_the_kind_of_a_column_follows_its_type_and_meaning() -> None:
    found = roles(
        open=[1],
        close=[1.5],
        high=pa.array([1]).dictionary_encode(),
        low=pa.array([1]).cast(pa.decimal128(20, 0)),
        bid=pa.nulls(1),
        volume=[5],
        bid_price=binary(8),
        ask_size=binary(16),
        text=["1.5"],
        maker=["True"],
    )
    assert found.kinds == {
        "open": "integer price",
        "close": "price",
        "high": "integer price",
        "low": "price",
        "bid": "price",
        "volume": "number",
        "bid_price": "fixed price",
        "ask_size": "fixed size",
        "text": "text",
        "maker": "bool",
    }
    assert found.integer_prices == ("open", "high")
    assert found.left_out == ()


def test_more_prices_are_scaled_with_the_others_under_their_own_name() -> None:
    found = roles(**{"Adj Close": [1], "vwap": [1], "bid_px_01": [1], "ask_price_5": [1], "ema": [1]})
    assert found.integer_prices == ("Adj Close", "vwap", "bid_px_01", "ask_price_5")


def test_binary_of_other_names_is_read_only_with_the_vendor_s_metadata() -> None:
    assert roles(blob=binary()).left_out == ("blob (fixed_size_binary[8])",)
    for key in ("price_precision", "instrument_id", "bar_type"):
        assert roles({key: "5"}, blob=binary(), digest=binary(32)).kinds == {"blob": "fixed price"}


@pytest.mark.parametrize("column", [binary(12), pa.array([b"1.5"])])
def test_other_binary_prices_and_sizes_are_refused_and_other_columns_left_out(column: Any) -> None:
    for name in ("close", "volume", "size"):
        with pytest.raises(DataError, match=rf"column '{name}' holds binary.*export as float or decimal"):
            roles(**{name: column})
    assert roles(x=column).left_out == (f"x ({column.type})",)


def test_a_price_of_another_type_is_refused() -> None:
    with pytest.raises(DataError, match=r"f.parquet: price column 'Close' holds list.*, not numbers"):
        roles(Close=[[1.0]])
    assert roles(levels=[[1.0]], when=pa.array([0], pa.date32())).values == {}


# Text


def test_first_values_are_asked_for_once_and_only_for_text() -> None:
    asked: list[Sequence[str]] = []
    table = pa.table({"close": ["1.5"], "x": [1.0], "side": ["B"], "trade_id": ["7"], "z": ["."]})

    def head(names: Sequence[str]) -> Any:
        asked.append(names)
        return table.select(names)

    column_roles(table.schema, taken=(), path="f.parquet", head=head)
    assert asked == [["close", "side", "z"]]
    column_roles(table.select(["x"]).schema, taken=(), path="f.parquet", head=head)
    assert len(asked) == 1


def test_text_that_is_no_number_is_left_out_and_said() -> None:
    found = roles(
        side=["B"], code=["005930"], total=["1,234.5"], empty=pa.nulls(1, pa.string()), order_id=["7"]
    )
    phrases = (
        "side (text)",
        "code (text)",
        "total (text with commas in its numbers)",
        "empty (text)",
        "order_id (id)",
    )
    assert found.left_out == phrases


def test_a_price_of_text_must_be_numbers() -> None:
    assert roles(close=["1.5", "-"]).kinds == {"close": "text"}
    assert roles(close=pa.nulls(1, pa.string())).kinds == {"close": "text"}
    with pytest.raises(DataError, match=r"price column 'close' holds text such as 'n/c', not numbers; write"):
        roles(close=["1.5", "n/c"])
    with pytest.raises(DataError, match=r"price column 'close' holds text, not numbers; write"):
        roles(close=["true"])
    with pytest.raises(DataError, match=r"price column 'close' holds text, not numbers; write"):
        column_roles(pa.schema([("close", pa.string())]), taken=(), path="f.parquet")


@pytest.mark.parametrize("value", ["1,234.50", "-12,5", "1.234,5", "1,234,567"])
@pytest.mark.parametrize("name", ["close", "Volume"])
def test_commas_in_prices_and_volumes_are_refused(name: str, value: str) -> None:
    with pytest.raises(
        DataError, match=rf"f.parquet: column '{name}' holds text such as '{value}'.*separators"
    ):
        roles(**{name: ["1.5", value]})


# Ids


def test_ids_and_flags_are_numbers_that_are_named_apart() -> None:
    ids = ["id", "trade_id", "Order ID", "instrument_id", "rtype", "flags", "sequence", "depth", "ignore"]
    found = roles(**{name: [1] for name in [*ids, "bid", "solid", "number_of_trades", "size"]})
    assert [name for name in found.values if is_id(name)] == ids
    assert set(ids) < set(found.values)


# Real files


def test_roles_of_real_quotes_and_order_books(real_data: Path) -> None:
    schema = pq.read_schema(real_data / "nautilus_64bit" / "bars.parquet")
    found = column_roles(schema, taken={"ts_event", "ts_init"}, path="f")
    prices = dict.fromkeys(["open", "high", "low", "close"], "fixed price")
    assert found.kinds == {**prices, "volume": "fixed size"}
    book = pq.read_table(real_data / "databento_mbp1_es.parquet")
    found = column_roles(book.schema, taken={"ts_event", "ts_recv", "symbol"}, path="f", head=book.select)
    ids = [name for name in found.values if is_id(name)]
    assert ids == ["rtype", "publisher_id", "instrument_id", "depth", "flags", "sequence"]
    assert found.left_out == ("action (text)", "side (text)")
    assert {"bid_px_00", "ask_px_00", "bid_sz_00", "price", "size"} < found.values.keys() - set(ids)


def test_booleans_of_real_trades_are_numbers(real_data: Path) -> None:
    trades = pq.read_table(real_data / "binance_trades_arrow_2020.parquet")
    found = column_roles(trades.schema, taken={"timestamp"}, path="f", head=trades.select)
    assert found.kinds["buyer_maker"] == "bool"
    assert [name for name in found.values if is_id(name)] == ["trade_id"]
    values, counts = to_values(trades.column("buyer_maker"), kind="bool", where="f: buyer_maker")
    assert values.sum() == trades.column("buyer_maker").to_pylist().count("True")
    assert counts == {}

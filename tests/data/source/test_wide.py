"""Tables with a column for each symbol, told from others by the names of their columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.data.source.wide import Wide, find_wide, flat_names, melted_roles

US = pa.timestamp("us")
FORMS = ["('{f}', '{s}')", "('{s}', '{f}')", "{f}_{s}", "{s}_{f}", "{s}:{f}", "{f}.{s}", "{f} {s}"]


def schema(*names: str, dtype: Any = None) -> Any:
    return pa.schema([("Date", US), *((name, dtype or pa.float64()) for name in names)])


def wide(*names: str, choice: str = "auto") -> Wide | None:
    return find_wide(schema(*names), taken=["Date"], choice=choice)


def grid(form: str, fields: list[str], symbols: list[str]) -> list[str]:
    return [form.format(f=f, s=s) for f in fields for s in symbols]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("symbols", [["AAPL"], ["AAPL", "BRK.B", "^GSPC"]])
def test_names_of_two_levels_are_taken_apart_without_a_question(form: str, symbols: list[str]) -> None:
    fields = ["Close", "Open", "Volume", "Adj Close"]
    names = grid(form, fields, symbols)
    found = wide(*names)
    assert found and found.finding.level == "note"
    assert found.melt == {s: {f: form.format(f=f, s=s) for f in fields} for s in symbols}
    several = f"{len(symbols)} symbol{'s' * (len(symbols) > 1)} from wide column names"
    assert found.finding.text.endswith(several)
    melt, roles = melted_roles(schema(*names), found, taken=["Date"], path="x", head=None)
    canonical = {"Close": "close", "Open": "open", "Volume": "volume", "Adj Close": "Adj Close"}
    assert melt == {s: {canonical[f]: form.format(f=f, s=s) for f in fields} for s in symbols}
    assert (roles.values, roles.left_out) == (melt[symbols[0]], ())


def test_a_pair_of_currencies_may_stand_in_a_name_of_two_levels() -> None:
    found = wide("BTC_USDT_close", "BTC_USDT_open", "ETH_USDT_close", "ETH_USDT_open")
    assert found and list(found.melt) == ["BTC_USDT", "ETH_USDT"]


@pytest.mark.parametrize(
    "names",
    [
        ("open", "high", "low", "close", "AAPL", "MSFT", "SPY"),
        ("bid_open", "bid_close", "ask_open", "ask_close"),
        ("BID_OPEN", "BID_CLOSE", "ASK_OPEN", "ASK_CLOSE"),
        ("OPEN_TIME", "CLOSE_TIME"),
        ("close_1", "close_2", "open_1", "open_2"),
        ("volume", "Volume USD", "Volume BTC"),
        ("AAPL", "MSFT"),
        ("rsi_14", "macd", "signal", "ATR"),
        ("Close_A", "Open_A", "Close_B"),
    ],
)
def test_other_tables_are_not_wide(names: tuple[str, ...]) -> None:
    assert wide(*names) is None


def test_columns_named_like_tickers_are_a_question() -> None:
    found = wide("AAPL", "BRK.B", "BTC/USDT", "rate")
    assert found and not found.melt
    assert found.finding.level == "refusal"
    assert found.finding.sentence == (
        "3 columns look like prices of 3 symbols (AAPL, BRK.B, BTC/USDT); set data.wide = symbols (each "
        "column becomes the close of a symbol) or features (columns of one symbol; then set target.price)"
    )


def test_the_answer_makes_symbols_or_features_of_the_columns() -> None:
    names = ("AAPL", "MSFT", "SPY", "rate")
    found = wide(*names, choice="symbols")
    assert found and found.melt == {s: {"close": s} for s in names[:3]}
    _, roles = melted_roles(schema(*names), found, taken=["Date"], path="x", head=None)
    assert roles.left_out == ("rate (of no one symbol)",)
    features = wide(*names, choice="features")
    assert features and not features.melt and features.finding.level == "note"


def test_two_columns_or_small_letters_are_symbols_where_the_user_says_so() -> None:
    found = wide("btc", "eth", choice="symbols")
    assert found and found.melt == {"btc": {"close": "btc"}, "eth": {"close": "eth"}}
    assert wide("open", "close", choice="symbols") is None


def test_one_price_of_several_symbols_is_a_question() -> None:
    found = wide("AAPL_Close", "MSFT_Close", "SPY_Close")
    assert found and found.finding.level == "refusal"


def test_further_columns_belong_to_a_single_symbol_but_are_a_question_beside_several() -> None:
    found = wide("Close_A", "Open_A", "rate")
    assert found
    melt, _ = melted_roles(schema("Close_A", "Open_A", "rate"), found, taken=["Date"], path="x", head=None)
    assert melt == {"A": {"close": "Close_A", "open": "Open_A", "rate": "rate"}}
    several = wide("Close_A", "Open_A", "Close_B", "Open_B", "rate")
    assert several and several.finding.level == "refusal"


def test_a_name_of_two_levels_with_one_empty_is_flat() -> None:
    assert flat_names(schema("('Date', '')", "('', 'x')", "('Close', 'A')", "plain")) == {
        "('Date', '')": "Date",
        "('', 'x')": "x",
    }


def test_the_real_wide_table_is_a_question_about_20_symbols(real_data: Path) -> None:
    found = find_wide(
        pq.read_schema(real_data / "sp500_20_close_wide.parquet"), taken=["Date"], choice="auto"
    )
    assert found and found.finding.text.startswith("20 columns look like prices of 20 symbols (AAPL, AMD,")


@pytest.mark.parametrize("name", ["spy_daily_ta_features", "googl_yahoo_daily", "databento_mbp1_es"])
def test_real_tables_of_one_symbol_are_not_wide(real_data: Path, name: str) -> None:
    assert find_wide(pq.read_schema(real_data / f"{name}.parquet"), taken=[], choice="auto") is None

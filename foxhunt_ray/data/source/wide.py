"""Wide tables: a column for each symbol, or for each symbol and field, recognised by column names alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, refusal
from foxhunt_ray.data.source.columns import ROW_NUMBERS, Head, Roles, column_roles, plain

_BARS = ("open", "high", "low", "close", "price")
_PRICES = {"bid", "ask", "adj_close", "last", "vwap", "mid", *_BARS} | {
    f"{side}_{part}" for side in ("bid", "ask") for part in _BARS
}
_FIELDS = _PRICES | {
    *("volume", "dividends", "stock_splits", "capital_gains", "turnover", "amount", "quote_volume"),
    *("trade_count", "number_of_trades", "bid_size", "ask_size", "open_interest"),
}
# In capitals these look like tickers beside a price: BID_OPEN, CLOSE_TIME, CLOSE_LAST.
_NO_TICKERS = {"BID", "ASK", "MID", "ADJ", "TIME", "DATE", "PRICE", "LAST", "PREV", "NEXT", "USD"} | {
    name.upper() for name in _FIELDS
}
_TICKER = re.compile(r"(?=.*[A-Z]|\d{4})[A-Z0-9^][A-Z0-9.\-/^=]{0,11}")
_PAIR = re.compile(r"\(\s*(['\"])(.*?)\1,\s*(['\"])(.*?)\3\s*\)")  # a pandas column of two levels, as text
_Grid = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Wide:
    """A wide table.

    Attributes:
        melt: symbol to field as written (``Close``) to column; empty while the user has to decide.
        finding: what is done with the table, or the question.
    """

    melt: Mapping[str, Mapping[str, str]]
    finding: Finding


def flat_names(schema: Any) -> dict[str, str]:
    """Columns whose two-level name has one empty level, by that name: ``('Date', '')`` is Date."""
    names = {}
    for raw in schema.names:
        pair = _PAIR.fullmatch(raw)
        if pair and not (pair[2] and pair[4]):
            names[raw] = pair[2] or pair[4]
    return names


def find_wide(schema: Any, *, taken: Collection[str], choice: str) -> Wide | None:
    """The wide table that a schema is, or None.

    Args:
        schema: arrow schema of the file.
        taken: columns of time, which are no symbols.
        choice: ``data.wide``.
    """
    numbers = {f.name: f.type for f in schema if f.name not in taken and _is_number(f)}
    grid = _complete(_grid(numbers)) or _tickers(numbers)
    if not grid and choice == "symbols" and len(numbers) > 1 and not _has_prices(numbers):
        grid = {name: {"close": name} for name in numbers}
    if not grid:
        return None
    columns = [raw for fields in grid.values() for raw in fields.values()]
    shown = f"{len(columns)} columns ({listed(columns)})"
    if choice == "features":
        return Wide({}, note(f"{shown} are read as features of one symbol (data.wide)"))
    prices = [name for name in next(iter(grid.values())) if plain(name) in _PRICES]
    rest = [name for name in numbers if name not in columns]
    if choice == "symbols" or (len(prices) > 1 and not (rest and len(grid) > 1)):
        symbols = "1 symbol" if len(grid) == 1 else f"{len(grid)} symbols"
        return Wide(grid, note(f"columns {listed(columns)}: {symbols} from wide column names"))
    question = refusal(
        f"{len(columns)} columns look like prices of {len(grid)} symbols ({listed(list(grid))})",
        action="set data.wide = symbols (each column becomes the close of a symbol) or features (columns of "
        "one symbol; then set target.price)",
    )
    return Wide({}, question)


def melted_roles(
    schema: Any, wide: Wide, *, taken: Collection[str], path: str, head: Head | None
) -> tuple[_Grid, Roles]:
    """Symbol to name used inside to column, and the roles of the first symbol's columns.

    Args:
        schema: arrow schema of the file.
        wide: what ``find_wide`` made of it.
        taken: columns of time.
        path: the file, for messages.
        head: gives the first rows of the columns named, for those that belong to no symbol.

    Raises:
        DataError: a price that is not a number, or two columns of one symbol that mean the same.
    """
    melt: _Grid = {}
    each: list[Roles] = []
    for symbol, fields in wide.melt.items():
        part = pa.schema([schema.field(raw).with_name(name) for name, raw in fields.items()], schema.metadata)
        each.append(column_roles(part, taken=(), path=path))
        melt[symbol] = {name: fields[written] for name, written in each[-1].values.items()}
    inside = {raw for fields in wide.melt.values() for raw in fields.values()}
    others = column_roles(schema, taken={*taken, *inside}, path=path, head=head)
    left_out = tuple(f"{name} (of no one symbol)" for name in others.values)
    if len(melt) == 1:
        melt = {symbol: fields | others.values for symbol, fields in melt.items()}
        left_out = ()
    first = each[0]
    roles = replace(
        first,
        values=next(iter(melt.values())),
        left_out=(*first.left_out, *others.left_out, *left_out),
        integer_prices=tuple(dict.fromkeys(name for roles in each for name in roles.integer_prices)),
        kinds=others.kinds | first.kinds if len(melt) == 1 else first.kinds,
    )
    return melt, roles


def _is_number(field: Any) -> bool:
    kinds = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
    return plain(field.name) not in ROW_NUMBERS and any(is_kind(field.type) for is_kind in kinds)


def _has_prices(names: Collection[str]) -> bool:
    return any(plain(name) in _PRICES | {"volume", "bid_px_00", "ask_px_00"} for name in names)


def _grid(names: Collection[str]) -> _Grid:
    """Symbol to field to column of the names that hold both, unless a price stands there on its own."""
    grid: _Grid = {}
    if _has_prices(names):
        return grid
    for raw in names:
        for name, symbol in _splits(raw):
            grid.setdefault(symbol, {})[name] = raw
            break
    return grid


def _splits(raw: str) -> Iterator[tuple[str, str]]:
    """Every way in which a column's name is a field and a symbol."""
    if pair := _PAIR.fullmatch(raw):
        for name, symbol in ((pair[2], pair[4]), (pair[4], pair[2])):
            if plain(name) in _FIELDS and symbol:
                yield name, symbol
        return
    for separator in re.finditer(r"[_:. ]", raw):
        left, right = raw[: separator.start()], raw[separator.end() :]
        for name, symbol in ((left, right), (right, left)):
            if plain(name) in _FIELDS and _is_ticker(symbol.replace("_", "-")):
                yield name, symbol


def _complete(grid: _Grid) -> _Grid:
    """A grid in which every symbol has the same fields, a price among them; else nothing."""
    fields = {frozenset(of) for of in grid.values()}
    if len(fields) != 1:
        return {}
    prices = [name for name in fields.pop() if plain(name) in _PRICES]
    return grid if len(prices) > 1 or (prices and len(grid) > 2) else {}


def _tickers(numbers: Mapping[str, Any]) -> _Grid:
    """The close of each symbol, if most of the numbers are floats under the names of tickers."""
    found = [name for name, dtype in numbers.items() if _is_ticker(name) and not pa.types.is_integer(dtype)]
    if len(found) < 3 or 2 * len(found) <= len(numbers) or _has_prices(numbers):
        return {}
    return {name: {"close": name} for name in found}


def _is_ticker(name: str) -> bool:
    return _TICKER.fullmatch(name) is not None and name not in _NO_TICKERS

"""What the columns of a file are by name and type: prices and other numbers, or left out and why.

Names of prices and volumes become one lower-case spelling; all other names stay as they are. A price that is
not a number is refused, because leaving it out would only show much later as a missing price.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from foxhunt_ray.data.source.numbers import FIXED_DIGITS, Kind, judge_text
from foxhunt_ray.errors import DataError

_BARS = ("open", "high", "low", "close")
_PRICES = {"bid", "ask", "bid_px_00", "ask_px_00"} | {
    prefix + part for prefix in ("", "bid_", "ask_") for part in (*_BARS, "price")
}
_SIZES = {"volume", "bid_size", "ask_size", "bid_sz_00", "ask_sz_00"}
# These keep the file's spelling, but their values are read as prices and sizes are.
_MORE_PRICES = re.compile(r"adj_?close|vwap|(bid|ask)_(px|price)_\d+")
_MORE_SIZES = re.compile(r"size|quantity|(bid|ask)_(sz|size)_\d+")
_SHORT = {"o": "open", "h": "high", "l": "low", "c": "close", "v": "volume", "vw": "vwap", "n": "trade_count"}
_IDS = re.compile(
    r"(.*_)?ids?|(trade|order)id|rtype|flags|seq|sequence|seq_?num|sequence_number|depth|ignore|uuid"
)
_FIXED_METADATA = (b"price_precision", b"instrument_id", b"bar_type")
ROW_NUMBERS = frozenset({"index", "level_0", "unnamed:_0", "__index_level_0__"})

Head = Callable[[Sequence[str]], Any]
_Texts = Mapping[str, tuple[Kind | None, str]]


def plain(name: str) -> str:
    """A column name in lower case with underscores, for comparison with the usual names."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_text(dtype: Any) -> bool:
    """Whether values of this arrow type are text, dictionary-encoded or not."""
    dtype = _value_type(dtype)
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(dtype) for is_kind in kinds)


@dataclass(frozen=True)
class Roles:
    """What is done with the columns of a file that are neither time nor symbol.

    Attributes:
        values: name used inside to name in the file, of every numeric column.
        left_out: a phrase for each other column.
        integer_prices: prices of integer type, which are often fixed-point numbers; names used inside.
        kinds: name used inside to how its values are to be read, for ``to_values``.
    """

    values: dict[str, str]
    left_out: tuple[str, ...]
    integer_prices: tuple[str, ...]
    kinds: dict[str, Kind] = field(default_factory=dict)


def column_roles(schema: Any, *, taken: Collection[str], path: str, head: Head | None = None) -> Roles:
    """The role of every column of an arrow schema but the ``taken`` ones, which are time or symbol.

    Args:
        schema: the file's arrow schema, with its metadata.
        taken: names in the file of the columns that are not looked at.
        path: the file, for messages.
        head: gives the first rows of the columns named as an arrow table; called at most once, and only for
            text columns, which are left out without it.

    Raises:
        DataError: a price that is not a number, or two columns that mean the same; names ``path``.
    """
    fields = [f for f in schema if f.name not in taken]
    names = _names([f.name for f in fields])
    texts = _judged([f.name for f in fields if is_text(f.type) and not _is_no_data(f.name)], head)
    fixed = any(key in (schema.metadata or {}) for key in _FIXED_METADATA)
    values: dict[str, str] = {}
    kinds: dict[str, Kind] = {}
    left_out: list[str] = []
    for one in fields:
        name = names[one.name]
        kind, why = _kind(one, name, texts=texts, fixed=fixed, path=path)
        if kind is None:
            left_out.append(f"{one.name} ({why})")
            continue
        if name in values:
            raise DataError(
                f"{path}: columns {values[name]!r} and {one.name!r} both mean {name!r}; "
                "rename or remove one of them"
            )
        values[name], kinds[name] = one.name, kind
    integers = tuple(name for name, kind in kinds.items() if kind == "integer price")
    return Roles(values, tuple(left_out), integers, kinds)


def _names(raw: Sequence[str]) -> dict[str, str]:
    """The name used inside for every name in the file."""
    names = {name: _usual(name) for name in raw}
    # In capitals these letters are tickers; beside whole words they are something else.
    if {"o", "h", "l", "c"} <= names.keys() and not set(_BARS) & set(names.values()):
        names |= {short: name for short, name in _SHORT.items() if short in names}
    known = set(names.values())
    if "close" not in known and not any(name.startswith("bid") for name in known & _PRICES):
        names |= {name: "close" for name in raw if plain(name) == "last"}
    return names


def _usual(name: str) -> str:
    word = plain(name).removeprefix("$")  # qlib's sign for a field
    return word if word in _PRICES | _SIZES else name


def is_market_data(name: str) -> bool:
    """Whether a name used inside is that of a price, a size or a volume."""
    return _is_price(name) or _is_size(name)


def is_id(name: str) -> bool:
    """Whether a column is by its name an id, a flag or a counter, and no market data."""
    return _IDS.fullmatch(plain(name)) is not None


def _is_price(name: str) -> bool:
    return name in _PRICES or _MORE_PRICES.fullmatch(plain(name)) is not None


def _is_size(name: str) -> bool:
    return name in _SIZES or _MORE_SIZES.fullmatch(plain(name)) is not None


def _is_no_data(name: str) -> bool:
    return plain(name) in ROW_NUMBERS or is_id(name)


def _judged(names: Sequence[str], head: Head | None) -> _Texts:
    if not names or head is None:
        return {}
    table = head(names)
    return {name: judge_text(table.column(name)) for name in names}


def _kind(column: Any, name: str, *, texts: _Texts, fixed: bool, path: str) -> tuple[Kind | None, str]:
    """How the values of an arrow field are read, or None and why they are left out."""
    dtype = _value_type(column.type)
    price, size = _is_price(name), _is_size(name)
    if plain(name) in ROW_NUMBERS:
        return None, "row numbers"
    if is_text(dtype):
        return _text_kind(column.name, price=price, size=size, texts=texts, path=path)
    if pa.types.is_fixed_size_binary(dtype) and dtype.byte_width in FIXED_DIGITS and (price or size or fixed):
        return ("fixed size" if size else "fixed price"), ""
    if _is_number(dtype):
        if not price:
            return "number", ""
        return ("integer price" if pa.types.is_integer(dtype) else "price"), ""
    if price or (size and _is_binary(dtype)):
        found = f"binary values ({dtype})" if _is_binary(dtype) else str(dtype)[:40]
        what = "price" if price else "size"
        raise DataError(
            f"{path}: {what} column {column.name!r} holds {found}, not numbers; export as float or decimal"
        )
    return None, str(column.type)[:40]


def _text_kind(raw: str, *, price: bool, size: bool, texts: _Texts, path: str) -> tuple[Kind | None, str]:
    kind, odd = texts.get(raw, (None, "text"))
    if kind == "text" or (kind == "bool" and not price):
        return kind, ""
    if price and not odd and kind is None:
        return "text", ""  # no value in the first rows
    commas = re.fullmatch(r"[+-]?[\d.]*\d,\d[\d.,]*", odd.strip()) is not None
    if commas and (price or size):
        raise DataError(
            f"{path}: column {raw!r} holds text such as {odd!r}; write numbers with a decimal point and "
            "without thousands separators"
        )
    if price:
        such = f" such as {odd[:40]!r}" if raw in texts and odd else ""
        raise DataError(
            f"{path}: price column {raw!r} holds text{such}, not numbers; write prices as float or decimal"
        )
    if _is_no_data(raw):
        return None, "id"
    return None, "text with commas in its numbers" if commas else "text"


def _value_type(dtype: Any) -> Any:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _is_binary(dtype: Any) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(is_kind(dtype) for is_kind in kinds)


def _is_number(dtype: Any) -> bool:
    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,  # a column without a single value
    )
    return any(is_kind(dtype) for is_kind in kinds)

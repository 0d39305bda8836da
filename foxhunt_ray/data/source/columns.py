"""What the columns of a file are by name and type: prices and other numbers, or left out and why.

Names of prices and volumes become one lower-case spelling; all other names stay as they are. A price that is
not a number is refused, because leaving it out would only show much later as a missing price.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.errors import DataError

_PRICES = {"bid", "ask"} | {
    prefix + part for prefix in ("", "bid_", "ask_") for part in ("open", "high", "low", "close", "price")
}
_CANONICAL = _PRICES | {"volume", "bid_size", "ask_size"}
ROW_NUMBERS = frozenset({"index", "level_0", "unnamed:_0", "__index_level_0__"})


def plain(name: str) -> str:
    """A column name in lower case with underscores, for comparison with the usual names."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_text(dtype: Any) -> bool:
    """Whether values of this arrow type are text, dictionary-encoded or not."""
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(dtype) for is_kind in kinds)


@dataclass(frozen=True)
class Roles:
    """What is done with the columns of a file that are neither time nor symbol.

    Attributes:
        values: name used inside to name in the file, of every numeric column.
        left_out: a phrase for each other column.
        integer_prices: prices of integer type, which are often fixed-point numbers.
    """

    values: dict[str, str]
    left_out: tuple[str, ...]
    integer_prices: tuple[str, ...]


def column_roles(schema: Any, *, taken: Collection[str], path: str) -> Roles:
    """The role of every column of an arrow schema but the ``taken`` ones, which are time or symbol.

    Raises:
        DataError: a price that is not a number, or two columns that mean the same; names ``path``.
    """
    values: dict[str, str] = {}
    left_out: list[str] = []
    for field in schema:
        name = _canonical(field.name)
        if field.name in taken:
            continue
        if plain(name) in ROW_NUMBERS:
            left_out.append(f"{name} (row numbers)")
        elif _is_number(field.type):
            if name in values:
                raise DataError(
                    f"{path}: columns {values[name]!r} and {field.name!r} both mean {name!r}; "
                    "rename or remove one of them"
                )
            values[name] = field.name
        elif name in _PRICES:
            raise DataError(
                f"{path}: price column {field.name!r} holds {_type_name(field.type)}, not numbers; "
                "write prices as float or decimal"
            )
        else:
            left_out.append(f"{field.name} ({_type_name(field.type)})")
    fixed = (n for n, raw in values.items() if n in _PRICES and pa.types.is_integer(schema.field(raw).type))
    return Roles(values, tuple(left_out), tuple(fixed))


def to_float64(column: Any) -> tuple[NDArray[np.float64], int]:
    """Values of an arrow column as float64 [n], NaN where missing or infinite, and how many were infinite."""
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    infinite = np.isinf(values)
    count = int(infinite.sum())
    return (np.where(infinite, np.nan, values) if count else values), count


def _canonical(name: str) -> str:
    return plain(name) if plain(name) in _CANONICAL else name


def _is_number(dtype: Any) -> bool:
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,  # a column without a single value
    )
    return any(is_kind(dtype) for is_kind in kinds)


def _type_name(dtype: Any) -> str:
    return "text" if is_text(dtype) else str(dtype)[:40]

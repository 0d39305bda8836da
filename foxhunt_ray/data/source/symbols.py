"""Whose rows these are: the symbol of each row by a column, a hive folder, or the file's name.

A file name is believed only where it can name a symbol: ``part-0`` and ``2024`` cannot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.source.columns import is_text, plain
from foxhunt_ray.errors import DataError

_NAMES = (
    *("symbol", "ticker", "sym", "tic", "instrument", "instrument_id", "code", "asset", "pair", "contract"),
    *("security", "ric", "isin", "stock", "name"),
)
_PART_NAME = re.compile(r"(part|chunk|file|data)[-_.]?\d.*|data|(19|20)\d\d([-_.]?\d\d){0,2}", re.IGNORECASE)
_REMEDY = "name data.symbol_column, or put the files of one symbol under a folder symbol=NAME"


def symbol_column(schema: Any, wanted: str, *, path: str) -> str:
    """The column of an arrow schema that holds the symbol; empty if there is none.

    Args:
        schema: arrow schema of the file.
        wanted: ``data.symbol_column``; empty = find it.
        path: the file, for messages.

    Raises:
        DataError: ``wanted`` does not exist or cannot hold names.
    """
    if wanted:
        if wanted not in schema.names:
            raise DataError(
                f"{path}: no column {wanted!r} (data.symbol_column); its columns are {listed(schema.names)}"
            )
        dtype = schema.field(wanted).type
        if not (is_text(dtype) or pa.types.is_integer(dtype)):
            raise DataError(f"{path}: column {wanted!r} (data.symbol_column) holds {dtype}, not names")
        return wanted
    found = [f.name for f in schema if is_text(f.type) and plain(f.name) in _NAMES]
    return min(found, key=lambda name: _NAMES.index(plain(name)), default="")


def file_symbol(path: str) -> str:
    """The symbol that a file's name stands for: the name without folder and suffix."""
    return os.path.basename(path).rsplit(".", 1)[0]


def ends_in_date(symbol: str) -> bool:
    """Whether a name ends as those of monthly or daily files do: ``BTCUSDT-1m-2024-01``."""
    return re.search(r"[-_.](19|20)\d\d[-_.]?\d\d([-_.]?\d\d)?([-_T]\d{4,6})?$", symbol) is not None


def require_symbol_names(paths: Sequence[str]) -> None:
    """Refuse files whose names cannot be symbols; one file alone may have any name.

    Raises:
        DataError: all names are those of parts or dates, or one name stands in several folders.
    """
    if len(paths) > 1 and all(_PART_NAME.fullmatch(file_symbol(p)) for p in paths):
        raise DataError(
            f"{paths[0]}: neither a column, a folder nor its name says which symbol it holds; {_REMEDY}"
        )
    first: dict[str, str] = {}
    for path in paths:
        other = first.setdefault(file_symbol(path), path)
        if _home(other) != _home(path):
            raise DataError(
                f"{other} and {path}: the same name in two folders, but is it one symbol? {_REMEDY}"
            )


def rows_by_symbol(column: Any, *, where: str) -> dict[str, NDArray[np.int64]]:
    """Row numbers (int64, ascending) of each symbol in an arrow column.

    Raises:
        DataError: a row without a symbol; ``where`` names file and column.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    nameless = encoded.null_count
    if not nameless and "" in names:
        nameless = int((encoded.indices.to_numpy() == names.index("")).sum())
    if nameless:
        raise DataError(f"{where}: {nameless} of {len(encoded)} rows have no symbol; fill or remove them")
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)}


def _home(path: str) -> list[str]:
    """Folders of a path but the hive ones, which part a symbol's files by year and the like."""
    return [part for part in os.path.dirname(path).split(os.sep) if "=" not in part]

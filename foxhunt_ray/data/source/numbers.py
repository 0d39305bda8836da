"""A column of any physical type as float64, NaN where nothing is known, with a count of what was changed.

Each piece of a column is converted by itself, so a value means the same whatever else the file holds. Codes
such as -99.99 or -9999 stay as they are: some markets do trade there, and a price is only used above 0.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foxhunt_ray.errors import DataError

Kind = Literal["number", "price", "integer price", "fixed price", "fixed size", "text", "bool"]
# Bytes of a binary fixed-point number to its decimal places, as Nautilus writes it.
FIXED_DIGITS = {8: 9, 16: 16}

_Values = tuple[NDArray[np.float64], dict[str, int]]
_EXACT = 2**53  # up to here every whole number is a float64
_I64 = np.iinfo(np.int64)
_EMPTY_LEVEL = 9_999_999_999  # LOBSTER's price where the book has no such level
_UNDEFINED = (_I64.max / 1e9, 2.0**63, _EMPTY_LEVEL, -_EMPTY_LEVEL)  # the same, once they were made floats
# Not an arrow array, because making one loads pandas, which most runs do not need.
_CODES = ["", ".", "na", "n/a", "#n/a", "nan", "<na>", "null", "none", "-", "--"]
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity)$"


def to_values(column: Any, *, kind: Kind, where: str) -> _Values:
    """Values of an arrow column or a part of one, and how many were changed, by reason.

    Args:
        column: arrow array or chunked array of n values, dictionary-encoded or not.
        kind: as ``column_roles`` found it; integer prices are not divided by their scale here.
        where: file and column, for messages.

    Returns:
        float64 [n], NaN where missing, perhaps read-only; counts of "infinite", "sentinel" (a vendor's mark
        for no value) and "missing code" (text), all of which became NaN, and of "rounded" (integers beyond
        2^53 that float64 cannot hold exactly).

    Raises:
        DataError: text that is neither a number nor a usual mark for a missing value.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    counts: Counter[str] = Counter()
    parts = []
    for chunk in chunks:
        values, changed = _converted(_decoded(chunk), kind, where)
        values, odd = _finite(values, price=kind == "price")
        parts.append(values)
        counts.update(changed)
        counts.update(odd)
    joined = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])
    return joined, dict(+counts)


def judge_text(column: Any) -> tuple[Literal["text", "bool"] | None, str]:
    """Whether all values of a text column are numbers ("text") or true and false ("bool"); else an odd one.

    Marks for missing values do not count; a column of nothing else gives None and "". Digits that begin with
    a needless 0, such as 005930, are a code and no number.
    """
    chunks = [_text(_decoded(chunk)) for chunk in column.chunks]
    values = pc.unique(pa.chunked_array(chunks, pa.large_string()))
    plain = _normal(values)
    values, plain = values.filter(plain.is_valid()), plain.drop_null()
    if not len(plain):
        return None, ""
    if pc.all(pc.is_in(plain, value_set=pa.array(["true", "false"], plain.type))).as_py():
        return "bool", ""
    numbers = pc.and_not(pc.match_substring_regex(plain, _NUMBER), pc.match_substring_regex(plain, r"^-?0\d"))
    odd = values.filter(pc.invert(numbers))
    return (None, odd[0].as_py()) if len(odd) else ("text", "")


def _decoded(array: Any) -> Any:
    if not pa.types.is_dictionary(array.type):
        return array
    values = array.dictionary
    return (_text(values) if pa.types.is_string_view(values.type) else values).take(array.indices)


def _converted(array: Any, kind: Kind, where: str) -> _Values:
    if kind == "text":
        return _from_text(_text(array), where)
    if kind == "bool":
        return _from_truth(_text(array), where)
    if pa.types.is_fixed_size_binary(array.type):
        return _from_binary(array, size=kind == "fixed size")
    if pa.types.is_decimal(array.type):
        return _from_decimal(array), {}
    if pa.types.is_integer(array.type) and array.type.bit_width == 64:
        return _from_integers(array, price=kind == "integer price")
    return array.cast(pa.float64()).to_numpy(zero_copy_only=False), {}


def _finite(values: NDArray[np.float64], *, price: bool) -> _Values:
    limit = min(_UNDEFINED[:3])
    if not len(values) or not (np.fmax.reduce(values) >= limit or np.fmin.reduce(values) <= -limit):
        return values, {}
    infinite = np.isinf(values)
    sentinel = np.isin(values, _UNDEFINED) & price
    counts = {"infinite": int(infinite.sum()), "sentinel": int(sentinel.sum())}
    return np.where(infinite | sentinel, np.nan, values), counts


def _from_integers(array: Any, *, price: bool) -> _Values:
    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    span = pc.min_max(array).as_py()
    limit = _EMPTY_LEVEL if price else _EXACT + 1
    if span["min"] is None or -limit < span["min"] <= span["max"] < limit:
        return values, {}
    marks = [_I64.max, np.iinfo(np.uint64).max] if array.type == pa.uint64() else [_I64.max, _I64.min]
    if price:
        marks += [_EMPTY_LEVEL] if array.type == pa.uint64() else [_EMPTY_LEVEL, -_EMPTY_LEVEL]
    raw = array.fill_null(0).to_numpy()
    sentinel = np.logical_or.reduce([raw == mark for mark in marks])  # np.isin would sort
    large = raw[(np.abs(values) >= _EXACT) & ~sentinel]
    # A float64 keeps the leading 53 bits: it is exact where all bits behind them are 0.
    behind = np.frexp(large.astype(np.float64))[1] - 53
    lost = large & ((np.ones_like(large) << behind.astype(large.dtype)) - 1)
    counts = {"sentinel": int(sentinel.sum()), "rounded": int(np.count_nonzero(lost))}
    return np.where(sentinel, np.nan, values), counts


def _from_binary(array: Any, *, size: bool) -> _Values:
    width, missing = array.type.byte_width, _missing(array)
    if missing.all():
        return np.full(len(array), np.nan), {}
    words = np.frombuffer(array.buffers()[1], "<i8", len(array) * width // 8, array.offset * width)
    if width == 16:
        pairs = words.reshape(-1, 2)
    else:
        pairs = np.stack([words, np.zeros_like(words) if size else words >> 63], axis=1)
    low, high = pairs[:, 0], pairs[:, 1]
    if size:  # unsigned: the largest value, which has every bit set, means undefined
        sentinel = (low == -1) & (high == (-1 if width == 16 else 0))
    elif width == 16:
        sentinel = ((low == -1) & (high == _I64.max)) | ((low == 0) & (high == _I64.min))
    else:
        sentinel = (low == _I64.max) | (low == _I64.min)
    values = _scaled(pairs, FIXED_DIGITS[width], missing=sentinel | missing)
    return values, {"sentinel": int((sentinel & ~missing).sum())}


def _from_decimal(array: Any) -> NDArray[np.float64]:
    missing = _missing(array)
    if not pa.types.is_decimal128(array.type) or missing.all():
        return _by_text(array)
    words = np.frombuffer(array.buffers()[1], "<i8", len(array) * 2, array.offset * 16)
    return _scaled(words.reshape(-1, 2), array.type.scale, missing=missing)


def _missing(array: Any) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return missing


def _scaled(pairs: NDArray[np.int64], digits: int, *, missing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Integers of 128 bits (low and high word, [n, 2]) by 10^digits, rounded once; NaN where missing."""
    low, high = np.ascontiguousarray(pairs.T)
    wide = (high != low >> 63) | (low > _EXACT) | (low < -_EXACT)
    if not 0 <= digits <= 22:  # no such power of ten is a float64, so the quotient would be rounded twice
        wide = np.ones_like(wide)
    values: NDArray[np.float64] = low / 10.0 ** min(max(digits, 0), 22)
    if missing.any():
        values[missing] = np.nan
        wide &= ~missing
    if wide.any():
        rest = [None, pa.py_buffer(np.ascontiguousarray(pairs[wide]))]
        values[wide] = _by_text(pa.Array.from_buffers(pa.decimal128(38, digits), int(wide.sum()), rest))
    return values


def _by_text(decimals: Any) -> NDArray[np.float64]:
    # Arrow's own cast is off by a bit in up to a third of long decimals; its parser of text rounds exactly.
    values: NDArray[np.float64] = decimals.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _text(array: Any) -> Any:
    return array.cast(pa.large_string())


def _normal(text: Any) -> Any:
    """Text in lower case, without blanks around it; null where it is a mark for a missing value."""
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(text))
    missing = pc.is_in(plain, value_set=pa.array(_CODES, plain.type))
    return pc.if_else(missing, pa.scalar(None, plain.type), plain)


def _from_text(text: Any, where: str) -> _Values:
    try:
        values = text.cast(pa.float64())
    except pa.ArrowInvalid:
        plain = _normal(text)
        try:
            values = plain.cast(pa.float64())
        except pa.ArrowInvalid:  # the slow way, which can say what is wrong and takes a sign +
            _require(pc.match_substring_regex(plain, _NUMBER), text, "numbers", where)
            values = pc.replace_substring(plain, "+", "", max_replacements=1).cast(pa.float64())
    found = values.to_numpy(zero_copy_only=False)
    return found, {"missing code": int(np.isnan(found).sum()) - text.null_count}


def _from_truth(text: Any, where: str) -> _Values:
    plain = _normal(text)
    true = pc.equal(plain, "true")
    _require(pc.or_(true, pc.equal(plain, "false")), text, "true or false", where)
    return true.cast(pa.float64()).to_numpy(zero_copy_only=False), {
        "missing code": plain.null_count - text.null_count
    }


def _require(fits: Any, text: Any, wanted: str, where: str) -> None:
    odd = text.filter(pc.invert(fits))
    if len(odd):
        value = odd[0].as_py()
        advice = "write numbers without thousands separators" if "," in value else f"write {wanted} only"
        raise DataError(
            f"{where}: {len(odd)} of {len(text)} values, such as {value[:40]!r}, are not {wanted}, unlike "
            f"the rows looked at first; {advice}, or take the column out of the file"
        )

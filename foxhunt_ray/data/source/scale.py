"""What a unit of an integer or binary price is worth, by its values, the vendor's layout or the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.findings import Finding, note, refusal, warning
from foxhunt_ray.data.source.columns import Roles
from foxhunt_ray.data.source.numbers import FIXED_DIGITS, Kind

_BILLIONTHS = 1e9  # Databento
_TEN_THOUSANDTHS = 1e4  # LEAN, ITCH, LOBSTER
_LARGE = 50_000  # a share price that whole units seldom reach
_MOST = 0.9
_UNDEFINED = 9_999_999_999  # LOBSTER's price of an empty level; Databento's is the largest int64


def price_scale(samples: Mapping[str, NDArray[np.int64]], *, option: float) -> tuple[float, list[Finding]]:
    """The divisor of integer prices, and what is to be said about it.

    Args:
        samples: name of a price to its values as they stand in the files, int64 [n]; no missing values.
            Take rows of every file: one scale holds for all of them.
        option: ``data.price_scale``; 0 = as the values show it.

    Returns:
        The divisor, 1 where there is nothing to scale or nothing was decided, and at most one finding: a note
        or a warning that states the divisor, or a refusal that asks for it.
    """
    values = np.concatenate([np.empty(0, np.int64), *samples.values()])
    values = np.sort(values[(values > 0) & (values != np.iinfo(np.int64).max) & (values != _UNDEFINED)])
    if not len(values):
        unused = note("data.price_scale is not used: no price is an integer")
        return option or 1.0, [unused] if option and not samples else []
    typical, count = int(values[len(values) // 2]), len(values)
    named = f"integer prices ({', '.join(samples)})"
    if option:
        return option, [note(f"{named} are {_as_read(option, typical)}, by data.price_scale", count=count)]
    scale = _shown_by(values, typical)
    if scale == 1:
        return 1.0, [note(f"{named} are read as whole units: a typical one is {typical:,}", count=count)]
    if scale:
        action = "set data.price_scale = 1 if they are whole units"
        return scale, [warning(f"{named} are {_as_read(scale, typical)}", count=count, action=action)]
    question = f"{named}: whole units or fixed point? A typical value is {typical:,}"
    return 1.0, [refusal(question, count=count, action="set data.price_scale, such as 10000, or 1")]


def mixed_prices(kinds: Mapping[str, Mapping[str, Kind]], *, scale: float, option: float) -> list[Finding]:
    """A refusal for every price that is a fixed-point integer in some files and a plain number in others.

    Args:
        kinds: file to ``Roles.kinds`` of it.
        scale: divisor of the integers, by ``price_scale``; 1 = whole units, which mix with anything.
        option: ``data.price_scale``; anything but 0 says what the integers are, so that nothing is refused.
    """
    if option or scale == 1:
        return []
    integers: dict[str, str] = {}
    others: dict[str, str] = {}
    for file, of in kinds.items():
        for name, kind in of.items():
            if kind == "integer price":
                integers.setdefault(name, file)
            elif kind != "number":
                others.setdefault(name, file)
    return [
        refusal(
            f"an integer that looks like fixed point x{scale:,.0f} here, but no integer in {others[name]}",
            file=file,
            column=name,
            action=f"set data.price_scale = {scale:.0f} if the integers are fixed point, or 1 if not",
        )
        for name, file in integers.items()
        if name in others
    ]


def binary_prices(roles: Roles, schema: Any, *, path: str) -> Finding | None:
    """How the binary prices and sizes of a file are read, or None where it has none.

    Args:
        roles: of the file's columns.
        schema: its arrow schema; the metadata that Nautilus writes are quoted.
        path: the file.
    """
    names = [name for name, kind in roles.kinds.items() if kind in ("fixed price", "fixed size")]
    if not names:
        return None
    dtype = schema.field(roles.values[names[0]]).type
    width = getattr(dtype, "value_type", dtype).byte_width
    metadata = {k.decode(): v.decode(errors="replace") for k, v in (schema.metadata or {}).items()}
    told = [metadata["instrument_id"]] if "instrument_id" in metadata else []
    told += [f"{metadata['price_precision']} decimal places"] if "price_precision" in metadata else []
    by = f" ({', '.join(told)})" if told else ""
    layout = f"fixed point x1e{FIXED_DIGITS[width]}, as Nautilus writes it"
    return note(f"binary columns {', '.join(names)} are read as {layout}{by}", file=path)


def _as_read(scale: float, value: int) -> str:
    read = f"{value / scale:,.10g}"
    return f"read as fixed point x{scale:,.10g}: {read} instead of {value:,}"


def _shown_by(values: NDArray[np.int64], typical: int) -> float:
    """The divisor that integers above 0 show by their size and their last digits; 0 = they do not show it."""
    if typical < _LARGE:
        return 1.0
    # Prices in cents x10,000 end in two zeros, and nine in ten not in three; whole large prices and
    # billionths of five decimals end in more.
    in_cents = _divisible(values, 100) >= _MOST > _divisible(values, 1000)
    if typical >= _BILLIONTHS:
        return 0.0 if in_cents else _BILLIONTHS
    return _TEN_THOUSANDTHS if in_cents else 0.0


def _divisible(values: NDArray[np.int64], by: int) -> float:
    return float(np.mean(values % by == 0))

"""What an integer price is worth: shown by the values and said, given, or asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.findings import Finding
from foxhunt_ray.data.source.columns import column_roles
from foxhunt_ray.data.source.scale import binary_prices, mixed_prices, price_scale


def scale_of(values: Any, option: float = 0.0) -> tuple[float, Finding]:
    scale, findings = price_scale({"close": np.array(values, np.int64)}, option=option)
    (finding,) = findings
    return scale, finding


def cents(middle: float, count: int = 2000) -> Any:
    """Prices in cents around a middle one."""
    return np.rint(middle * np.exp(np.random.default_rng(0).normal(0, 0.1, count)) * 100).astype(np.int64)


def test_real_share_prices_times_ten_thousand_are_recognised(real_data: Path) -> None:
    table = pq.read_table(real_data / "us_equity_hourly_long.parquet")
    names = ["open", "high", "low", "close"]
    for rows in (len(table), 1000):
        samples = {name: table.column(name).to_numpy()[:rows] for name in names}
        scale, (finding,) = price_scale(samples, option=0.0)
        assert (scale, finding.level, finding.count) == (10_000, "warning", 4 * rows)
        assert finding.text.startswith(
            f"integer prices ({', '.join(names)}) are read as fixed point x10,000: "
        )
        assert finding.action == "set data.price_scale = 1 if they are whole units"


def test_the_warning_shows_a_value_before_and_after() -> None:
    scale, finding = scale_of([3_972_400] * 3)
    assert scale == 10_000
    assert finding.text.endswith("x10,000: 397.24 instead of 3,972,400")


@pytest.mark.parametrize("middle", [7.0, 55.0, 400.0, 90_000.0])
def test_prices_in_cents_times_ten_thousand_are_recognised(middle: float) -> None:
    assert scale_of(cents(middle) * 100)[0] == 10_000


@pytest.mark.parametrize(("middle", "digits"), [(1.12, 5), (42_000.0, 2), (5500.25, 0), (150.0, 9)])
def test_billionths_are_recognised(middle: float, digits: int) -> None:
    prices = middle * np.exp(np.random.default_rng(0).normal(0, 0.01, 1000))
    ticks = np.rint(prices * 10**digits).astype(np.int64) * 10 ** (9 - digits)
    scale, finding = scale_of(ticks)
    assert (scale, finding.level) == (1e9, "warning")
    assert "x1,000,000,000: " in finding.text


@pytest.mark.parametrize("values", [[1, 2, 3], [49_999] * 3, [4300]])
def test_small_integers_are_whole_units(values: list[int]) -> None:
    scale, finding = scale_of(values)
    assert (scale, finding.level) == (1, "note")
    assert (
        f"are read as whole units: a typical one is {values[0 if len(values) == 1 else 1]:,}" in finding.text
    )


@pytest.mark.parametrize(
    "values",
    [
        [15_234_567, 15_234_568],  # nothing but its size
        [150_234_000, 150_235_000],  # coins in won: whole, and quoted in thousands
        [650_120_000, 650_130_000],  # billionths below 1
        cents(600_000.0) * 100,  # the dearest share, ten thousandths as large as billionths
    ],
)
def test_what_the_values_do_not_show_is_asked(values: Any) -> None:
    scale, finding = scale_of(values)
    assert (scale, finding.level) == (1, "refusal")
    typical = int(np.sort(values)[len(values) // 2])
    assert finding.text == (
        f"integer prices (close): whole units or fixed point? A typical value is {typical:,}"
    )
    assert finding.action == "set data.price_scale, such as 10000, or 1"


@pytest.mark.parametrize("option", [1.0, 100.0, 10_000.0, 2.5])
def test_the_option_decides_and_is_stated(option: float) -> None:
    scale, finding = scale_of([15_234_567], option)
    assert (scale, finding.level) == (option, "note")
    assert finding.text.endswith("by data.price_scale")


def test_marks_for_no_price_do_not_count() -> None:
    marks = [2**63 - 1, 9_999_999_999, -9_999_999_999, 0, -1, -(2**63)]
    assert scale_of(marks * 5 + [3_972_400])[0] == 10_000
    assert scale_of(marks * 5 + [3_972_400])[1].count == 1
    assert price_scale({"close": np.array(marks)}, option=0.0) == (1, [])


def test_without_integer_prices_only_an_unused_option_is_said() -> None:
    assert price_scale({}, option=0.0) == (1, [])
    _, (finding,) = price_scale({}, option=100.0)
    assert finding.text == "data.price_scale is not used: no price is an integer"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.randoms())
def test_the_scale_depends_on_the_values_alone(values: list[int], random: Any) -> None:
    mixed = random.sample(values, len(values))
    one = price_scale({"a": np.array(values, np.int64)}, option=0.0)
    assert price_scale({"a": np.array(mixed, np.int64)}, option=0.0) == one
    cut = len(values) // 2
    two = {"a": np.array(mixed[:cut], np.int64), "b": np.array(mixed[cut:], np.int64)}
    assert price_scale(two, option=0.0)[0] == one[0]


# Files that differ

KINDS: Any = {
    "a": {"close": "integer price", "volume": "number", "open": "integer price"},
    "b": {"close": "integer price", "volume": "number", "open": "integer price"},
    "c": {"close": "price", "volume": "text", "open": "integer price"},
    "d": {"close": "fixed price"},
}


def test_fixed_point_in_some_files_and_floats_in_others_are_refused_with_one_of_each() -> None:
    (finding,) = mixed_prices(KINDS, scale=10_000, option=0.0)
    assert str(finding) == (
        "a: close: an integer that looks like fixed point x10,000 here, but no integer in c; "
        "set data.price_scale = 10000 if the integers are fixed point, or 1 if not"
    )
    assert finding.level == "refusal"


def test_whole_units_and_a_given_scale_mix_with_floats() -> None:
    assert mixed_prices(KINDS, scale=1, option=0.0) == []
    assert mixed_prices(KINDS, scale=10_000, option=10_000.0) == []


# Binary


def test_the_layout_of_real_binary_prices_is_stated(real_data: Path) -> None:
    path = real_data / "nautilus_64bit" / "quotes.parquet"
    schema = pq.read_schema(path)
    roles = column_roles(schema, taken={"ts_event", "ts_init"}, path="f")
    finding = binary_prices(roles, schema, path="f")
    assert finding is not None
    assert str(finding) == (
        "f: binary columns bid_price, ask_price, bid_size, ask_size are read as fixed point x1e9, "
        "as Nautilus writes it (EUR/USD.SIM, 5 decimal places)"
    )
    plain = pq.read_schema(real_data / "fx_hourly" / "EURUSD.parquet")
    assert binary_prices(column_roles(plain, taken={"time"}, path="f"), plain, path="f") is None

"""A column is named in full or by a glob."""

from __future__ import annotations

import pytest

from foxhunt_ray.data.globs import fits


@pytest.mark.parametrize(
    ("name", "patterns", "wanted"),
    [
        ("rsi_14", ("rsi_14",), True),
        ("rsi_14", ("macd", "rsi_*"), True),
        ("rsi_14", ("RSI_*",), False),
        ("rsi_14", ("rsi",), False),
        ("asks[0].price", ("asks[0].price",), True),
        ("asks[0].price", ("asks[[]0].*",), True),
        ("rsi_14", (), False),
    ],
)
def test_a_name_fits_itself_and_globs_of_its_own_capitals(name: str, patterns: tuple[str], wanted: bool):
    assert fits(name, *patterns) is wanted

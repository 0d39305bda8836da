"""The price is the close, else the mid of bid and ask; what is not above 0 is missing."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_ray.data.prices import ohlc, price_series
from foxhunt_ray.data.schema import Bars
from foxhunt_ray.errors import DataError


def bars(**columns: list[float]) -> Bars:
    arrays = {name: np.array(values, float) for name, values in columns.items()}
    return Bars("AAA", np.arange(2) * 10**9, arrays)


def test_auto_prefers_the_close_and_says_so():
    b = bars(close=[1, 2], bid_close=[3, 3], ask_close=[5, 5])
    assert price_series(b, "auto")[0].tolist() == [1, 2]
    values, phrase = price_series(b, "mid")
    assert values.tolist() == [4, 4] and phrase == "mid of bid_close and ask_close"


@pytest.mark.parametrize(
    ("bid", "ask"), [("bid_close", "ask_close"), ("bid", "ask"), ("bid_px_00", "ask_px_00")]
)
def test_quotes_without_a_close_give_the_mid(bid, ask):
    assert price_series(bars(**{bid: [1, 3], ask: [3, 5]}), "auto")[0].tolist() == [2, 4]


def test_any_column_can_be_the_price():
    assert price_series(bars(Last=[7, 8]), "Last")[0].tolist() == [7, 8]


def test_a_side_or_price_that_is_not_above_zero_is_missing():
    assert np.isnan(price_series(bars(close=[0, -1]), "close")[0]).all()
    assert np.isnan(price_series(bars(bid=[0, 1], ask=[2, -3]), "auto")[0]).all()
    assert np.isnan(ohlc(bars(bid_high=[0, 1], ask_high=[2, -3]), "high")).all()


def test_open_high_low_are_columns_or_mids_or_absent():
    assert ohlc(bars(high=[1, 2]), "high").tolist() == [1, 2]
    assert ohlc(bars(bid_low=[1, 2], ask_low=[3, 4]), "low").tolist() == [2, 3]
    assert ohlc(bars(bid_low=[1, 2]), "low") is None


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("auto", "a close column, or bid and ask, found volume"),
        ("mid", "bid and ask columns"),
        ("x", "is 'x'"),
    ],
)
def test_a_price_that_is_not_there_is_refused_with_the_columns(price, message):
    with pytest.raises(DataError, match=f"AAA.*{message}"):
        price_series(bars(volume=[1, 2]), price)

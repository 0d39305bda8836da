"""Events and bars become longer bars as pandas resamples them, and nothing looks ahead."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from foxhunt_ray.data import aggregate as module
from foxhunt_ray.data.aggregate import aggregate_bars, market_bars
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.errors import ConfigError, DataError

SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
START = 1_700_000_000 * SECOND


def bars_of(ts, **columns) -> Bars:
    return Bars("X", np.array(ts, np.int64), {n: np.array(v, np.float64) for n, v in columns.items()})


def random_trades(seed: int, n: int, *, missing: float = 0.2, gaps: float = 0.05) -> Bars:
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 3 * SECOND, n) // SECOND * SECOND
    steps[rng.random(n) < gaps] += 5 * MINUTE
    price = np.where(rng.random(n) < missing, np.nan, 100 + rng.normal(size=n))
    size = np.where(rng.random(n) < missing, np.nan, rng.integers(0, 9, n))
    return bars_of(START + np.cumsum(steps), price=price, size=size)


def resampled(bars: Bars, price: np.ndarray, every: int) -> pd.DataFrame:
    """The oracle: pandas, and only the intervals that hold a row."""
    index = pd.to_datetime(bars.ts_event, utc=True)
    groups = pd.Series(price, index).resample(
        pd.Timedelta(every, "ns"), closed="left", label="left", origin="epoch"
    )
    table = pd.DataFrame(
        {"open": groups.first(), "high": groups.max(), "low": groups.min(), "close": groups.last()}
    )
    table["count"] = groups.size()
    if "size" in bars.columns:
        sizes = pd.Series(bars.columns["size"], index).resample(
            pd.Timedelta(every, "ns"), closed="left", label="left", origin="epoch"
        )
        table["volume"] = sizes.sum(min_count=1)
    return table[table["count"] > 0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 300),
    every=st.sampled_from([SECOND // 2, SECOND, MINUTE, HOUR, DAY, 7 * DAY]),
    block=st.sampled_from([1, 7, 64, 2**20]),
)
def test_trades_become_the_bars_that_pandas_makes(seed, n, every, block):
    trades = random_trades(seed, n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_ROWS", block)
        made = aggregate_bars(trades, every)
    wanted = resampled(trades, trades.columns["price"], every)
    assert list(made.columns) == ["open", "high", "low", "close", "volume", "trades"]
    np.testing.assert_array_equal(made.ts_event, wanted.index.as_unit("ns").asi8)
    for name in ("open", "high", "low", "close", "volume"):
        np.testing.assert_array_equal(made.columns[name], wanted[name].to_numpy(np.float64))
    np.testing.assert_array_equal(made.columns["trades"], wanted["count"].to_numpy(np.float64))
    assert made.columns["trades"].sum() == n


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 200))
def test_bars_of_bars_are_the_bars_made_at_once(seed, n):
    trades = random_trades(seed, n, gaps=0)
    at_once = aggregate_bars(trades, HOUR)
    in_steps = aggregate_bars(aggregate_bars(trades, MINUTE), HOUR)
    np.testing.assert_array_equal(in_steps.ts_event, at_once.ts_event)
    assert in_steps.columns.keys() == at_once.columns.keys()
    for name, values in at_once.columns.items():
        np.testing.assert_array_equal(in_steps.columns[name], values)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 200), share=st.floats(0, 1))
def test_a_bar_does_not_change_with_what_comes_after_it(seed, n, share):
    trades = random_trades(seed, n)
    whole = aggregate_bars(trades, MINUTE)
    cut = START + int(share * (trades.ts_event[-1] - START)) // MINUTE * MINUTE
    rows = int(np.searchsorted(trades.ts_event, cut // MINUTE * MINUTE))
    part = Bars("X", trades.ts_event[:rows], {n: v[:rows] for n, v in trades.columns.items()})
    made = aggregate_bars(part, MINUTE)
    assert (whole.ts_event[len(made.ts_event) :] >= cut // MINUTE * MINUTE).all()
    np.testing.assert_array_equal(made.ts_event, whole.ts_event[: len(made.ts_event)])
    for name, values in made.columns.items():
        np.testing.assert_array_equal(values, whole.columns[name][: len(values)])


def test_a_row_at_the_end_of_a_bar_belongs_to_the_next():
    made = aggregate_bars(bars_of([0, MINUTE - 1, MINUTE], price=[1, 2, 3]), MINUTE)
    assert made.ts_event.tolist() == [0, MINUTE]
    assert made.columns["close"].tolist() == [2, 3]


def test_intervals_without_a_row_have_no_bar():
    made = aggregate_bars(bars_of([0, 10 * MINUTE], price=[1, 2]), MINUTE)
    assert made.ts_event.tolist() == [0, 10 * MINUTE]


def test_rows_before_1970_are_floored_to_the_start_of_their_bar():
    made = aggregate_bars(bars_of([-1, 0], price=[1, 2]), MINUTE)
    assert made.ts_event.tolist() == [-MINUTE, 0]


def test_rows_of_one_stamp_count_in_their_order():
    made = aggregate_bars(bars_of([5, 5, 5], price=[2, 1, 3], qty=[1, 1, 1]), SECOND)
    assert [made.columns[n][0] for n in ("open", "high", "low", "close", "volume", "trades")] == [
        2,
        3,
        1,
        3,
        3,
        3,
    ]


@pytest.mark.parametrize("bid, ask", [("bid_px_00", "ask_px_00"), ("bid_price", "ask_price"), ("bid", "ask")])
def test_quotes_use_the_mid_and_never_the_price_of_an_order(bid, ask):
    quotes = bars_of(
        [0, 1, 2, 3],
        price=[1e6] * 4,
        size=[9.0] * 4,
        **{bid: [10, 11, np.nan, 12], ask: [12, 13, 14, 0]},
    )
    made = aggregate_bars(quotes, SECOND)
    expected = {"open": 11, "high": 12, "low": 11, "close": 12, "bid_close": 12, "ask_close": 14, "events": 4}
    assert {name: values.tolist() for name, values in made.columns.items()} == {
        name: [value] for name, value in expected.items()
    }


def test_a_bar_whose_rows_have_no_price_is_kept_without_one():
    trades = bars_of([0, MINUTE], price=[np.nan, 2], size=[np.nan, 3])
    market = market_bars(Market((trades,)), MINUTE)
    made = market.bars[0]
    assert np.isnan(made.columns["open"][0]) and np.isnan(made.columns["volume"][0])
    assert made.columns["trades"].tolist() == [1, 1]
    assert any("1 bars hold no price" in str(f) for f in market.findings)


def test_values_that_are_not_above_0_are_no_price_and_are_counted():
    market = market_bars(Market((bars_of([0, 1, 2], price=[0, -1, 5]),)), MINUTE)
    assert market.bars[0].columns["low"].tolist() == [5]
    assert [f.count for f in market.findings if "not above 0" in f.text] == [2]


def test_close_alone_is_a_price():
    made = aggregate_bars(bars_of([0, 1], close=[1, 2], Volume=[3, 4]), SECOND)
    assert {n: v.tolist() for n, v in made.columns.items()} == {
        "open": [1], "high": [2], "low": [1], "close": [2], "volume": [7], "events": [2],
    }  # fmt: skip


def test_bars_with_bid_and_ask_keep_both_sides():
    ohlc = {
        f"{side}_{part}": [1, 3, 2] for side in ("bid", "ask") for part in ("open", "high", "low", "close")
    }
    made = aggregate_bars(bars_of([0, HOUR, 2 * HOUR], **ohlc, rsi=[1, 2, 3]), DAY)
    for side in ("bid", "ask"):
        assert [made.columns[f"{side}_{p}"][0] for p in ("open", "high", "low", "close")] == [1, 3, 1, 2]
    assert "rsi" not in made.columns


def test_no_rows_give_no_bars():
    made = aggregate_bars(bars_of([], price=[], size=[]), MINUTE)
    assert len(made.ts_event) == 0 and made.ts_event.dtype == np.int64
    assert all(len(v) == 0 and v.dtype == np.float64 for v in made.columns.values())


def test_the_arrays_given_are_not_changed():
    trades, untouched = random_trades(1, 50), random_trades(1, 50)
    for values in (trades.ts_event, *trades.columns.values()):
        values.flags.writeable = False
    aggregate_bars(trades, MINUTE)
    np.testing.assert_array_equal(trades.ts_event, untouched.ts_event)
    for name, values in untouched.columns.items():
        np.testing.assert_array_equal(trades.columns[name], values)


@pytest.mark.parametrize("every", [0, -SECOND, 7 * MINUTE, 36 * HOUR])
def test_a_length_that_does_not_fit_into_days_is_refused(every):
    with pytest.raises(ConfigError, match="divides a day"):
        aggregate_bars(random_trades(0, 5), every)


def test_no_price_is_refused_in_a_sentence():
    with pytest.raises(DataError, match=r"X: no price .*found bid, size"):
        aggregate_bars(bars_of([0], bid=[1], size=[1]), MINUTE)


@pytest.mark.parametrize(
    "step, shift, every", [(HOUR, 0, 90 * MINUTE), (HOUR, 30 * MINUTE, 2 * HOUR), (HOUR, 0, MINUTE)]
)
def test_bars_that_would_reach_beyond_their_new_bar_are_refused(step, shift, every):
    ts = shift + step * np.arange(48)
    with pytest.raises(ConfigError, match="do not lie within one bar"):
        aggregate_bars(bars_of(ts, **{n: np.ones(48) for n in ("open", "high", "low", "close")}), every)


def test_a_market_says_what_was_done_and_keeps_its_account():
    book = random_trades(3, 200)
    book = Bars(
        "B",
        book.ts_event,
        {"bid": book.columns["price"], "ask": book.columns["price"] + 1, "size": book.columns["size"]},
    )
    market = Market((random_trades(2, 100), book), dropped={"exact duplicate": 3})
    made = market_bars(market, MINUTE)
    assert made.dropped == {"exact duplicate": 3}
    total = sum(len(b.ts_event) for b in made.bars)
    texts = [str(f) for f in made.findings]
    assert texts[0] == f"300 events -> {total} bars of 1 min (price, the mid of bid and ask)"
    assert any("may be incomplete" in t for t in texts)
    assert any("volume is left out" in t for t in texts)
    counted = [b.columns[n].sum() for b, n in zip(made.bars, ("trades", "events"), strict=True)]
    assert counted == [100, 200]


def test_real_trades_and_book_events_become_bars_as_pandas_makes_them(real_data: Path):
    trades = pq.read_table(real_data / "binance_trades_arrow_2020.parquet").to_pandas()
    ts = trades["timestamp"] if "timestamp" in trades else trades.index.to_series()
    ts = pd.DatetimeIndex(pd.to_datetime(ts, utc=True)).as_unit("ns").asi8
    bars = bars_of(ts, price=trades["price"].astype(float), quantity=trades["quantity"].astype(float))
    made = aggregate_bars(bars, SECOND)
    wanted = resampled(bars, bars.columns["price"], SECOND)
    assert made.columns["trades"].sum() == 2001
    for name in ("open", "high", "low", "close"):
        np.testing.assert_array_equal(made.columns[name], wanted[name])
    np.testing.assert_allclose(made.columns["volume"].sum(), bars.columns["quantity"].sum(), rtol=1e-12)

    book = pq.read_table(real_data / "databento_mbp1_es.parquet").to_pandas().reset_index()
    ts = pd.DatetimeIndex(book["ts_event"]).as_unit("ns").asi8
    order = np.argsort(ts, kind="stable")
    names = ("price", "size", "bid_px_00", "ask_px_00")
    bars = bars_of(ts[order], **{n: book[n].to_numpy(float)[order] for n in names})
    made = aggregate_bars(bars, SECOND)
    assert made.columns["high"].max() - made.columns["low"].min() < 20  # the orders' prices span 200
    assert "volume" not in made.columns

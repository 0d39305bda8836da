"""The leak guard: planted leaks are named, honest inputs are not, real columns are as known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import Config
from foxhunt_ray.data.checks.leaks import leak_findings
from foxhunt_ray.data.schema import Bars, scan_market

HOUR = 3600 * 10**9
N = 1200


def walk(seed=0, n=N):
    return 100 * np.exp(np.cumsum(np.random.default_rng(seed).normal(0, 0.01, n)))


def noise(seed=99, n=N):
    return np.random.default_rng(seed).normal(size=n)


def ahead(values, k):
    """The value of k rows later, NaN where there is none."""
    return np.concatenate([values[k:], np.full(k, np.nan)])


def filled(values):
    """Gaps at the end hidden, as ffill does."""
    last = np.flatnonzero(np.isfinite(values))[-1]
    return np.where(np.arange(len(values)) > last, values[last], values)


def rolling(values, span, centred=False):
    mean = np.convolve(values, np.ones(span) / span, mode="valid")
    before = span // 2 if centred else span - 1
    return np.concatenate([np.full(before, np.nan), mean, np.full(span - 1 - before, np.nan)])


def guard(*market: Bars, targets=(), inputs=None, allowed=(), horizons=(24,), price="auto"):
    names = {c for one in market for c in one.columns} if inputs is None else inputs
    return leak_findings(market, targets, price=price, horizons=horizons, inputs=names, allowed=allowed)


def one(values=None, name="x", *, symbol="A", seed=0, step=HOUR) -> Bars:
    columns = {"close": walk(seed)} | ({} if values is None else {name: np.asarray(values, float)})
    return Bars(symbol, np.arange(N) * step, columns)


NAMES = ["target", "target_5d", "label", "next_open", "nextOpen", "future_ret", "fwd_ret_5", "close_lead_1"]


@pytest.mark.parametrize("name", [*NAMES, "Y", "y", "&-s_close", "ret.fwd.5", "FutureReturn", "TARGET"])
def test_a_name_that_speaks_of_the_future_is_refused(name):
    (found,) = guard(one(noise(), name))
    assert (found.level, found.column) == ("refusal", name)
    assert f'features.exclude=["{name}"]' in found.action and f'allow_leaks=["{name}"]' in found.action


@pytest.mark.parametrize(
    "name",
    [
        "leading_span_a",
        "lead_span_b",
        "targeted",
        "MSW_LEAD_5",
        "leadsine",
        "futures_oi",
        "yield",
        "y2",
        "by",
        "labelled",
    ],
)
def test_a_name_that_only_sounds_like_it_is_not(name):
    assert guard(one(noise(), name)) == []


def test_a_column_whole_but_for_its_last_rows_is_refused():
    for k in (1, 3, 26):
        (found,) = guard(one(ahead(noise(), k)))
        assert found.level == "refusal" and ("last row but" if k == 1 else f"last {k} rows") in found.text


def test_missing_ends_that_have_a_reason_are_not():
    half = np.where(noise(1) > 0, noise(), np.nan)  # as one of two complementary columns
    half[-9:] = np.nan
    stopped = np.where(np.arange(N) < N // 2, noise(), np.nan)  # a source that ended
    warm = np.where(np.arange(N) < 300, np.nan, noise())
    assert guard(one(half)) == guard(one(stopped)) == guard(one(warm)) == []
    unfinished = one(ahead(noise(), 1))
    unfinished.columns["close"][-1] = np.nan
    assert guard(unfinished) == []


def test_one_last_value_that_one_of_many_symbols_lacks_is_no_leak():
    market = [one(noise(i), symbol=f"S{i}", seed=i) for i in range(8)]
    market[0].columns["x"][-1] = np.nan
    assert guard(*market) == []
    for symbol in market:
        symbol.columns["x"][-5:] = np.nan
    assert [f.column for f in guard(*market)] == ["x"]


def test_a_fit_over_the_whole_file_is_refused():
    rows = np.arange(N)
    fit = np.polyval(np.polyfit(rows, walk(), 1), rows)
    for values in (fit, fit.astype(np.float32)):
        (found,) = guard(one(values))
        assert found.level == "refusal" and "straight line over the whole file" in found.text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.arange(N), "row number"),
        (np.arange(N) * 5 + 7, "row number"),
        (N - np.arange(N), "row number"),
        (np.arange(N) / N, "row number"),
        (np.arange(N) * 3600 + 1.6e9, "the time"),
        (np.arange(N) / 24, "the time"),
    ],
)
def test_row_numbers_and_clocks_are_warnings_even_as_inputs(values, words):
    (found,) = guard(one(values))
    assert found.level == "warning" and words in found.text and "features.exclude" in found.action
    assert guard(one(values), allowed=["x"]) == []


def test_a_clock_of_bars_with_gaps_is_known_by_the_stamps():
    bars = one()
    bars.ts_event[:] = np.cumsum(np.where(np.arange(N) % 7 == 0, 60, 1)) * HOUR
    bars.columns["x"] = bars.ts_event / 1e9
    assert "it is the time" in guard(bars)[0].text


def test_an_id_that_grows_is_a_warning_and_other_counts_are_nothing():
    grows = np.cumsum(1 + np.abs(noise() * 10).astype(int))
    assert all(
        guard(one(grows, name))[0].level == "warning" for name in ("trade_id", "tradeId", "id", "sequence")
    )
    assert guard(one(grows, "total")) == guard(one(noise(), "id")) == []


def test_a_column_that_tells_the_returns_ahead_too_well_is_refused():
    price = walk()
    future = filled(ahead(np.log(price), 5) - np.log(price))
    for values in (future + 0.02 * noise(), np.sign(future), -(future**3)):
        (found,) = guard(one(values))
        assert found.level == "refusal" and "of the next 5 bars" in found.text


def test_a_centred_mean_is_known_by_its_distance_from_the_price():
    (found,) = guard(one(filled(rolling(walk(), 21, centred=True))))
    assert found.level == "refusal" and "its distance from the price" in found.text


def test_one_lucky_outlier_is_no_forecast():
    price = walk()
    price[600:] *= 3  # as a split does
    x = noise()
    x[599] = 300
    bars = one(x)
    bars.columns["close"] = price
    assert abs(np.corrcoef(x[:-1], np.diff(np.log(price)))[0, 1]) > 0.8
    assert guard(bars) == []


def test_prices_that_bounce_between_bid_and_ask_tell_their_own_next_return():
    random = np.random.default_rng(5)
    price = 100 * np.exp(np.cumsum(random.normal(0, 1e-5, N)) + 0.001 * random.choice([-1, 1], N))
    bars = one(np.diff(np.log(price), prepend=np.log(100)))
    bars.columns["close"] = price
    assert np.corrcoef(bars.columns["x"][:-1], bars.columns["x"][1:])[0, 1] < -0.4
    assert guard(bars) == []


def test_order_books_may_tell_the_next_seconds():
    price = walk()
    imbalance = filled(ahead(np.log(price), 1) - np.log(price)) + 0.02 * noise()
    assert guard(one(imbalance, step=10**9)) == []
    assert guard(one(imbalance, step=60 * 10**9)) != []


@pytest.mark.parametrize("k", [1, 7, 24])
def test_a_price_from_later_is_refused_however_its_end_is_filled(k):
    for values in (ahead(walk(), k), filled(ahead(walk(), k)), ahead(walk(), k).astype(np.float32)):
        (found,) = guard(one(values))
        assert "price of the next bar" in found.text if k == 1 else f"price of {k} bars later" in found.text


def test_the_target_itself_is_refused_under_any_name_and_scale():
    price = walk()
    squares = np.diff(np.log(price), prepend=np.nan) ** 2
    volatility = np.log(ahead(rolling(squares[1:], 24), 23))  # of the 24 returns ahead
    target = np.append(volatility, np.nan)
    (found,) = guard(one(filled(target) * 3 + 1), targets=[target])
    assert "it is the target itself" in found.text
    both = np.stack([noise(), target], axis=1)  # float64 [n, H]
    assert "it is the target itself" in guard(one(filled(target)), targets=[both])[0].text


def test_a_slow_column_may_resemble_the_later_value_of_itself():
    level = np.cumsum(np.cumsum(noise()))
    target = ahead(level, 1)
    assert np.corrcoef(level[:-1], target[:-1])[0, 1] > 0.999
    assert guard(one(level), targets=[target]) == []


def test_what_is_no_input_is_a_warning_and_what_is_allowed_a_note():
    bars = one(ahead(noise(), 3), "x_[1]")
    (warned,) = guard(bars, inputs=["close"])
    assert warned.level == "warning" and warned.action == "keep it out of features.columns"
    for globs in (["x_*"], ["x_[1]"], ["*"]):
        assert [f.level for f in guard(bars, allowed=globs)] == ["note"]


def test_a_column_with_several_signs_has_one_finding_that_says_all():
    price = walk()
    (found,) = guard(one(ahead(np.log(price), 1) - np.log(price), "next_ret"))
    for words in ("its name says 'next'", "no value in the last row", "log return of 1 bar"):
        assert words in found.text


def test_prices_without_a_price_column_are_still_guarded():
    stamps = np.arange(N) * HOUR
    assert guard(Bars("A", stamps, {"label": noise()}))[0].column == "label"
    assert guard(Bars("A", stamps, {"x": noise(), "z": noise(3)})) == []


def test_what_the_market_gives_is_passed_over():
    n = np.arange(float(N))
    columns = {"open": n + 1, "high": n + 2, "low": n + 0.5, "close": n + 1.5, "volume": ahead(n, 3)}
    columns |= {"bid_sz_00": n, "ask_close": n, "bid_size": n}
    assert guard(Bars("A", np.arange(N) * HOUR, columns)) == []


@pytest.mark.parametrize("n", [0, 1, 2, 24, 29, 30, 31, 60])
def test_short_symbols_are_no_trouble(n):
    columns = {"close": walk(n=n), "x": noise(n=n), "z": np.zeros(n), "e": np.full(n, np.nan)}
    assert guard(Bars("A", np.arange(n) * HOUR, columns), targets=[noise(3, n)]) == []


def test_huge_values_raise_no_warning():
    assert guard(one(noise() * 1e300), targets=[noise(4) * 1e300]) == []


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([250, 600, 3000]),
    lag=st.integers(1, 50),
    span=st.integers(2, 60),
)
def test_honest_inputs_are_never_refused(seed, n, lag, span):
    random = np.random.default_rng(seed)
    price = 100 * np.exp(np.cumsum(0.01 * np.clip(random.standard_t(4, n), -9, 9)))
    returns = np.diff(np.log(price), prepend=np.nan)
    columns = {
        "close": price,
        "walk": np.cumsum(random.normal(size=n)),
        "noise": random.normal(size=n),
        "mean": rolling(price, span),
        "deviation": np.log(price) - np.log(rolling(price, span)),
        "lagged": np.concatenate([np.full(lag, np.nan), price[:-lag]]),
        "returns": returns,
        "momentum": rolling(returns, span),
        "total": np.cumsum(np.abs(random.normal(size=n))),
        "rare": (random.random(n) < 0.01).astype(float),
    }
    bars = Bars("A", np.arange(n) * HOUR, columns)
    target = ahead(returns, 1)
    assert [f for f in guard(bars, targets=[target], horizons=(1, 24, 96)) if f.level == "refusal"] == []


def read(path):
    return scan_market(Config.model_validate({"data": {"path": str(path)}}), whole=True).bars


def test_exactly_the_three_columns_that_look_ahead_are_refused(real_data):
    (bars,) = read(real_data / "spy_daily_ta_features.parquet")
    assert len(bars.columns) == 230
    found = guard(bars, horizons=(1, 5, 20))
    assert {f.column for f in found} == {"ICS_26", "DPO_20", "TOS_STDEVALL_LR"}
    assert {f.level for f in found} == {"refusal"}
    texts = {f.column: f.text for f in found}
    assert "last 26 rows" in texts["ICS_26"] and "last 11 rows" in texts["DPO_20"]
    assert "-0.68 with the log return of the next 5 bars" in texts["DPO_20"]


@pytest.mark.parametrize(
    "file",
    [
        "fx_hourly",
        "us_equity_hourly_long.parquet",
        "us_equity_daily_spark",
        "es_futures_minute_contracts.parquet",
        "btc_usd_hourly_cdd.parquet",
        "btcusdt_1m_pandas3.parquet",
        "binance_snapshots/ETHUSDT_1h_20250628_000741.parquet",
        "googl_yahoo_daily.parquet",
    ],
)
def test_no_column_of_honest_real_files_is_told_of(real_data, file):
    assert guard(*read(real_data / file)) == []


@pytest.mark.parametrize(
    ("file", "price", "column"),
    [
        ("binance_trades_arrow_2020.parquet", "price", "trade_id"),
        ("databento_mbp1_es.parquet", "mid", "sequence"),
    ],
)
def test_ids_of_real_trades_and_quotes_are_warnings(real_data, file, price, column):
    found = guard(*read(real_data / file), price=price)
    assert [(f.level, f.column) for f in found] == [("warning", column)]

"""A survey counts what a run will see, and refuses with the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data import survey
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.survey import longest_context, survey_market, usual_step
from foxhunt_ray.errors import DataError

HOUR = 3600 * 10**9


def bars(symbol: str, n: int, gap_at: int | None = None) -> Bars:
    steps = np.ones(n, np.int64)
    if gap_at is not None:
        steps[gap_at] = 50
    close = 100 * np.exp(np.cumsum(np.random.default_rng(n).standard_normal(n) * 1e-2))
    return Bars(symbol, np.cumsum(steps) * HOUR, {"close": close})


def config(*more: str):
    return load_config(None, ["data.context_length=8", "target.horizon=4", *more])


def test_windows_of_one_segment_are_its_rows_less_warm_up_context_and_horizon():
    whole = config("split.train=1", "split.val=0", "split.test=0", 'features.groups=["calendar"]')
    found = survey_market(whole, Market((bars("AAA", 300),)))
    assert found.window_counts == {"train": 300 - 8 - 4 + 1, "val": 0, "test": 0}
    cut = survey_market(whole, Market((bars("AAA", 300, gap_at=100),)))
    assert cut.window_counts["train"] == (100 - 11) + (200 - 11)


def test_windows_are_counted_once_and_afresh_for_other_segments():
    whole = config("split.train=1", "split.val=0", "split.test=0", 'features.groups=["calendar"]')
    found = survey_market(whole, Market((bars("AAA", 300),)))
    assert found.window_counts is found.window_counts
    cut = replace(found.index[0], segment_first=np.array([0, 100]))
    assert replace(found, index=(cut,)).window_counts["train"] == found.window_counts["train"] - 7
    assert found.summary()["windows"] == found.window_counts


def test_the_usual_step_decides_what_a_gap_is():
    market = Market((bars("AAA", 300, gap_at=100),))
    assert usual_step(market.bars) == HOUR
    found = survey_market(config(), market)
    assert found.max_gap == HOUR * 3 // 2
    assert len(found.index[0].segment_first) == 2
    assert len(survey_market(config("data.max_gap=3d"), market).index[0].segment_first) == 1


def test_a_short_symbol_takes_no_feature_from_the_others_and_is_named():
    alone = survey_market(config(), Market((bars("AAA", 400),)))
    beside = survey_market(config(), Market((bars("AAA", 400), bars("BBB", 5))))
    assert beside.features == alone.features
    assert beside.notes[-1] == "too short for one window: BBB"
    assert not len(beside.ends("train")[1])


def test_no_training_window_is_refused_with_the_arithmetic(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    one = bars("AAA", 40)
    table = pa.table({"ts": pa.array(one.ts_event, pa.timestamp("ns", tz="UTC")), **one.columns})
    pq.write_table(table, tmp_path / "AAA.parquet")
    wanted = load_config(None, {"data.path": str(tmp_path / "AAA.parquet")})
    with pytest.raises(
        DataError,
        match=r"AAA\.parquet: .*context_length 64 \+ horizon 24 need 88 bars .* longest segment has 40",
    ):
        survey(wanted)


def test_the_longest_context_is_that_of_the_config_or_its_space():
    assert longest_context(config()) == 8
    ranged = config('search.space."data.context_length"={low=4,high=32,int=true}')
    assert longest_context(ranged) == 32
    assert longest_context(config('search.space."data.context_length"={choices=[4,6]}')) == 8


def test_the_fingerprint_is_that_of_the_rows():
    market = Market((bars("AAA", 300),))
    same = survey_market(config("seed=5"), market).fingerprint
    assert survey_market(config(), market).fingerprint == same
    market.bars[0].columns["close"][7] *= 2
    assert survey_market(config(), market).fingerprint != same


def test_ceilings_are_stated_for_the_synthetic_markets_own_target_only():
    quick = survey(load_config("quickstart")).summary()
    assert 0.1 < quick["ceilings"]["ridge"] < quick["ceilings"]["best"] < 0.6
    assert "ceilings" not in survey(load_config()).summary()


def test_val_and_test_windows_do_not_move_with_the_training_length():
    long = survey_market(
        config('search.space."data.context_length"={low=4,high=32,int=true}'), Market((bars("AAA", 400),))
    )
    for ends in (long.ends("val")[0], long.ends("test")[0]):
        assert len(ends) and (ends >= 31).all()


def test_real_fx_has_the_windows_that_its_gaps_leave(real_data):
    found = survey(load_config(None, {"data.path": str(real_data / "fx_hourly")}))
    assert found.symbols == ("EURUSD", "NZDUSD", "XAUUSD")
    assert sum(len(i.segment_first) - 1 for i in found.index) == 641 + 643 + 1524
    assert found.summary()["rows"] == 74_439 + 74_451 + 76_499

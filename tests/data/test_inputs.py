"""Inputs are what the columns allow and the config asks for; what cannot help is left out and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import load_config
from foxhunt_ray.data.features import feature_rows
from foxhunt_ray.data.inputs import Inputs, bad_rows, choose_inputs
from foxhunt_ray.data.schema import Bars, scan_market
from foxhunt_ray.errors import DataError

HOUR = 3600 * 10**9


def columns_only(table: dict[str, Any], *others: dict[str, Any], **features: Any) -> Inputs:
    """Inputs of bars that have these columns, all of them asked for."""
    made = [{k: np.array(v, float) for k, v in one.items()} for one in (table, *others)]
    every = [Bars(str(i), HOUR * np.arange(len(next(iter(one.values())))), one) for i, one in enumerate(made)]
    settings = {"features.groups": [], "features.columns": ["*"]}
    settings |= {f"features.{k}": v for k, v in features.items()}
    return choose_inputs(every, load_config(None, settings))


def told(inputs: Inputs) -> list[str]:
    return [str(f) for f in inputs.findings]


def test_the_default_takes_what_the_columns_allow_and_names_the_rest(make_bars):
    b = make_bars()
    for name in ("volume", "bid_close", "ask_close"):
        del b.columns[name]
    chosen = choose_inputs([b], load_config())
    names, notes = chosen.names, [str(f) for f in chosen.findings]
    assert "volume_24" not in names and "spread" not in names and "high_low" in names
    assert any("volume_24" in n for n in notes) and any("spread" in n for n in notes)


def test_columns_without_a_price_leave_the_calendar(make_bars):
    b = Bars("AAA", make_bars().ts_event, {"signal": make_bars().columns["signal"]})
    assert choose_inputs([b], load_config()).names == ("hour_sin", "hour_cos", "weekday_sin", "weekday_cos")


def test_a_constant_volume_is_left_out(make_bars):
    b = make_bars()
    b.columns["volume"][:] = 0
    assert "volume_24" not in choose_inputs([b], load_config()).names


def test_daily_bars_have_no_hour(make_bars):
    b = make_bars()
    daily = Bars(b.symbol, np.arange(300) * 24 * HOUR, b.columns)
    names = choose_inputs([daily], load_config()).names
    assert "hour_sin" not in names and "weekday_sin" in names


def test_columns_are_taken_by_name_and_glob_in_order(make_bars):
    config = load_config(None, ["features.groups=[]", 'features.columns=["signal", "bid_*"]'])
    assert choose_inputs([make_bars()], config).names == ("signal", "bid_close")


def test_a_glob_takes_no_ids_and_says_so_but_a_name_in_full_does(make_bars):
    b = make_bars()
    for name in ("trade_id", "flags", "sequence"):
        b.columns[name] = np.random.default_rng(len(name)).standard_normal(300)
    config = load_config(None, ["features.groups=[]", 'features.columns=["s*", "*_id", "flags", "f*"]'])
    found = choose_inputs([b], config)
    assert found.names == ("signal", "flags")
    assert told(found)[0] == (
        "ids and flags that the globs of features.columns do not take: sequence, trade_id; "
        "name one in full there if it is an input"
    )
    excluded = {"features.columns": ["*"], "features.exclude": ["sequence", "trade_id", "flags"]}
    assert not any("ids and flags" in t for t in told(choose_inputs([b], load_config(None, excluded))))


def test_a_glob_that_fits_ids_only_leaves_no_input_and_the_refusal_says_why(make_bars):
    b = make_bars()
    b.columns["trade_id"] = np.arange(300.0)
    config = load_config(None, ["features.groups=[]", 'features.columns=["trade*"]'])
    with pytest.raises(DataError, match=r"no input feature is left; ids and flags .*: trade_id"):
        choose_inputs([b], config)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('features.columns=["sginal"]', "'sginal'.*columns: .*signal"),
        ('features.groups=["volume"]', "'volume'.*do not allow"),
        ("features.groups=[]", "no input feature"),
    ],
)
def test_what_is_not_there_is_refused(make_bars, override, message):
    b = make_bars()
    del b.columns["volume"]
    with pytest.raises(DataError, match=message):
        choose_inputs([b], load_config(None, [override]))


def test_exclusions_apply_to_computed_inputs_and_columns(make_bars):
    config = load_config(None, ['features.columns=["signal"]', 'features.exclude=["return_*", "signal"]'])
    names = choose_inputs([make_bars()], config).names
    assert "volatility_6" in names and not {"return_1", "return_4", "return_24", "signal"} & set(names)


def test_an_exclusion_that_matches_nothing_is_refused(make_bars):
    with pytest.raises(DataError, match=r"features.exclude has 'sginal', but no input is called so"):
        choose_inputs([make_bars()], load_config(None, ['features.exclude=["sginal"]']))


NAN = float("nan")


def test_constant_repeated_and_mostly_missing_columns_are_left_out_and_named():
    found = columns_only(
        {
            "a": [1, 2, 3, NAN],
            "same": [1, 2, 3, NAN],
            "flat": [5, 5, 5, 5],
            "gone": [NAN, NAN, NAN, 1],
            "b": [4, 3, 2, 1],
        }
    )
    assert found.names == ("a", "b") and not found.optional
    assert told(found) == [
        "inputs that never change are left out: flat, gone",
        "inputs that repeat another one are left out: same = a",
    ]
    sparse = columns_only({"a": [1, 2, 3, 4], "gone": [NAN, NAN, 2, 1], "b": [4, 3, 2, 1]}, max_missing=0.4)
    assert sparse.names == ("a", "b")
    assert told(sparse)[0].startswith("inputs missing in more than 40% of rows are left out: gone (50%)")
    assert columns_only({"a": [1, 2, 3, 4], "gone": [NAN, NAN, 2, 1]}).names == ("a", "gone")


def test_a_column_that_is_constant_in_one_symbol_only_is_kept():
    assert columns_only({"a": [1, 1, 1]}, {"a": [2, 2, 3]}).names == ("a",)


def test_columns_that_take_turns_get_one_flag_and_cost_no_window():
    random = np.random.default_rng(0)
    up = random.random(500) < 0.5
    values = random.standard_normal(500)
    table = {
        "long": np.where(up, values, NAN),
        "other": random.standard_normal(500),
        "short": np.where(up, NAN, values),
        "holes": np.where(random.random(500) < 0.3, NAN, values),
    }
    for name in ("long", "short"):
        table[name][:10] = NAN  # a warm-up
    found = columns_only(table)
    assert found.names == ("long", "other", "short", "holes", "long_missing")
    assert found.optional == {"long", "short"}
    assert any(
        "columns that take turns, 0 where missing, with a flag: long / short" in t for t in told(found)
    )
    rows = feature_rows(Bars("0", np.arange(500) * HOUR, table), found.names, "auto")
    assert (
        bad_rows(rows, found.names, found.optional).tolist()
        == np.flatnonzero(np.isnan(table["holes"])).tolist()
    )


def test_columns_that_overlap_get_a_flag_each_and_random_holes_are_no_pair():
    random = np.random.default_rng(0)
    turn = random.random(500)
    values = random.standard_normal((2, 500))
    table = {"a": np.where(turn < 0.6, values[0], NAN), "b": np.where(turn > 0.4, values[1], NAN)}
    found = columns_only(table)
    assert found.names == ("a", "b", "a_missing", "b_missing") and found.optional == {"a", "b"}
    holes = {name: np.where(random.random(500) < 0.3, NAN, values[i]) for i, name in enumerate("ab")}
    assert columns_only(holes).names == ("a", "b")


def test_masks_are_made_of_every_column_with_a_hole_when_asked_for():
    table = {"a": [1, NAN, 3, 4], "b": [4, 3, 2, 1]}
    assert columns_only(table).names == ("a", "b")
    masked = columns_only(table, missing="mask")
    assert masked.names == ("a", "b", "a_missing") and masked.optional == {"a"}


def test_an_input_that_begins_late_is_named(make_bars):
    (late,) = columns_only({"a": [NAN] * 3 + [1, 2, 3, 4], "b": [1, 2, 3, 4, 5, 6, 7]}).findings
    assert str(late).startswith("a: its first value comes after 3 of 7 rows, and no window begins before")
    early = {"a": [NAN, 1, 2, 3, 4], "b": [5, 4, 3, 2, 1]}
    assert not columns_only(early, early).findings
    (late,) = columns_only({"a": [2, 1, 2, 3]}, {"a": [NAN] * 3 + [1]}).findings  # in a later symbol
    assert "after 3 of 8 rows" in str(late) and 'features.exclude=["a"]' in str(late)
    b = make_bars()
    b.columns["own"] = np.where(np.arange(300) < 100, NAN, b.columns["signal"])
    (late,) = choose_inputs([b], load_config(None, {"features.groups": []}), more=("own",)).findings
    assert "own: its first value comes after 100 of 300 rows" in str(late) and "exclude" not in str(late)


def test_columns_that_take_turns_do_so_in_short_symbols_and_however_unequally():
    random, tables = np.random.default_rng(0), []
    for share in (0.9,) * 8:
        first, values = random.random(100) < share, random.standard_normal(100)
        values[:10] = NAN  # a warm-up, that of every symbol
        tables.append({"a": np.where(first, values, NAN), "b": np.where(first, NAN, values)})
    found = columns_only(*tables)
    assert found.names == ("a", "b", "a_missing") and found.optional == {"a", "b"}


def test_a_column_that_is_hardly_ever_there_takes_no_turns_with_a_full_one():
    values = np.random.default_rng(0).standard_normal(1000)
    rare = np.where(np.arange(1000) % 200 == 0, values, NAN)
    found = columns_only({"a": values + 1, "rare": rare})
    assert found.names == ("a",) and not found.optional


def test_inputs_of_the_users_own_function_are_never_left_out(make_bars):
    b, n = make_bars(), 300
    b.columns["flat"], b.columns["twice"] = np.ones(n), b.columns["signal"].copy()
    b.columns["rare"] = np.where(np.arange(n) < 290, NAN, b.columns["signal"])
    own = ("flat", "twice", "rare")
    settings = {"features.groups": []}
    for columns in (["*"], ["signal"]):
        wanted = settings | {"features.columns": columns, "features.exclude": ["sig*"]}
        names = choose_inputs([b], load_config(None, wanted), more=own).names
        assert names[-3:] == own and "signal" not in names
    with pytest.raises(DataError, match=r"features.exclude has 'rare', but no input is called so"):
        choose_inputs([b], load_config(None, settings | {"features.exclude": ["rare"]}), more=own)


def test_a_mask_covers_computed_inputs_so_that_a_lost_price_costs_no_window(make_bars):
    b = make_bars()
    b.columns["close"][200] = NAN
    settings = {"features.groups": ["returns", "calendar"], "features.missing": "mask"}
    found = choose_inputs([b], load_config(None, settings))
    returns = ("return_1", "return_4", "return_24")
    assert found.optional == set(returns) and found.names[-3:] == tuple(f"{r}_missing" for r in returns)
    rows = feature_rows(b, found.names, "auto")
    assert not len(bad_rows(rows, found.names, found.optional))
    plain = choose_inputs([b], load_config(None, settings | {"features.missing": "invalidate"}))
    lost = bad_rows(feature_rows(b, plain.names, "auto"), plain.names, plain.optional)
    assert lost.tolist() == [*range(24), 200, 201, 204, 224]


def test_a_value_that_float32_cannot_hold_is_masked_too():
    masked = columns_only({"a": [1, 1e300, 3, 4], "b": [4, 3, 2, 1]}, missing="mask")
    assert masked.names == ("a", "b", "a_missing") and masked.optional == {"a"}


def test_a_column_with_the_name_of_a_flag_is_refused():
    with pytest.raises(DataError, match=r"'a_missing' is a column, and also the name of the flag"):
        columns_only({"a": [1, NAN, 3, 4], "a_missing": [4, 3, 2, 1]}, missing="mask")


def test_a_table_of_indicators_keeps_most_of_its_rows(real_data: Path):
    (spy,) = scan_market(
        load_config(None, {"data.path": str(real_data / "spy_daily_ta_features.parquet")})
    ).bars
    settings = {"features.columns": ["*"], "features.exclude": ["ICS_26", "DPO_20", "TOS_STDEVALL_LR"]}
    found = choose_inputs([spy], load_config(None, settings))
    rows = feature_rows(spy, found.names, "auto")
    assert len(rows) - len(bad_rows(rows, found.names, found.optional)) > 2500
    assert {"PSARl_0.02_0.2", "PSARs_0.02_0.2", "SUPERTl_7_3.0", "SUPERTs_7_3.0"} <= found.optional
    assert any("VFI_130" in t and "never change" in t for t in told(found))


def test_every_name_that_is_left_out_is_told():
    line = np.random.default_rng(0).standard_normal(20)
    (only,) = told(columns_only({f"c{k}": line for k in range(20)}))
    assert all(f"c{k} = c0" in only for k in range(1, 20))


def test_columns_that_differ_in_one_row_are_no_repetition():
    line = np.random.default_rng(0).standard_normal(5000)
    other = line.copy()
    other[4321] += 1
    zeros = {"zero": np.array([0.0, 1, NAN]), "minus": np.array([-0.0, 1, NAN])}
    assert columns_only({"a": line, "b": other}).names == ("a", "b")
    assert columns_only(zeros).names == ("zero",)


def test_nothing_left_is_refused_with_the_reason():
    with pytest.raises(DataError, match=r"no input feature is left; inputs that never change .*: a"):
        columns_only({"a": [1, 1, 1]})


def test_a_column_that_no_longer_has_its_counterpart_is_judged_alone():
    up = np.random.default_rng(0).random(200) < 0.3
    values = np.random.default_rng(1).standard_normal((2, 200))
    table = {"a": values[1], "long": np.where(up, values[0], NAN), "short": np.where(up, NAN, 1.0)}
    found = columns_only(table)
    assert found.names == ("a",) and not found.optional
    assert any("short" in t and "never change" in t for t in told(found))
    assert any("long (" in t and "missing in more than 50%" in t for t in told(found))


def test_two_columns_that_begin_late_are_no_pair():
    late, up = np.arange(400) > 370, np.random.default_rng(0).random(400) < 0.5
    table = {"a": np.arange(400.0), "p": np.where(late & up, 1.0 * np.arange(400), NAN)}
    table["q"] = np.where(late & ~up, 1.0 * np.arange(400), NAN)
    assert columns_only(table).names == ("a",)


def test_a_symbol_with_one_side_alone_is_used():
    up = np.random.default_rng(0).random(400) < 0.5
    values = np.random.default_rng(1).standard_normal(400)
    whole = {"long": np.where(up, values, NAN), "short": np.where(up, NAN, values)}
    rising = {"long": values[:30], "short": np.full(30, NAN)}
    found = columns_only(whole, rising)
    b = Bars("1", HOUR * np.arange(30), rising)
    rows = feature_rows(b, found.names, "auto", optional=found.optional)
    assert not len(bad_rows(rows, found.names, found.optional))
    with pytest.raises(DataError, match="'short' has no finite value"):
        feature_rows(b, found.names, "auto")


def test_a_column_called_like_a_computed_input_is_used_only_where_that_cannot_be_computed(make_bars):
    b = make_bars()
    b.columns["return_1"] = b.columns["signal"]
    found = choose_inputs([b], load_config(None, {"features.columns": ["return_1"]}))
    assert found.names.count("return_1") == 1
    assert any("called like computed inputs are not used: return_1" in t for t in told(found))
    points = Bars("AAA", b.ts_event, {"close": b.columns["close"], "spread": b.columns["volume"]})
    assert "spread" not in choose_inputs([points], load_config()).names
    named = choose_inputs([points], load_config(None, {"features.columns": ["spread"]})).names
    rows = feature_rows(points, named, "auto")
    np.testing.assert_array_equal(rows[:, named.index("spread")], b.columns["volume"].astype(np.float32))


def test_an_exclusion_may_name_what_the_bars_do_not_have_as_input(make_bars):
    b = make_bars()
    del b.columns["bid_close"]
    config = load_config(None, {"features.exclude": ["spread", "signal", "session_*"]})
    assert "return_1" in choose_inputs([b], config).names


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.9), st.floats(0.01, 0.9), st.integers(0, 2**16))
def test_independent_holes_never_make_a_pair(first, second, seed):
    random = np.random.default_rng(seed)
    shares = {"a": first, "b": second}
    table = {n: np.where(random.random(2000) < s, NAN, random.random(2000)) for n, s in shares.items()}
    assert not columns_only({**table, "c": random.random(2000)}).optional


@pytest.mark.parametrize("share", [0.02, 0.1, 0.9])
def test_turns_may_be_uneven(share):
    random = np.random.default_rng(0)
    up, values = random.random(1000) < share, random.standard_normal(1000)
    found = columns_only({"a": np.where(up, values, NAN), "b": np.where(up, NAN, values)})
    assert found.names == ("a", "b", "a_missing") and found.optional == {"a", "b"}

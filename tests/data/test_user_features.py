"""The user's own function: what it adds, and that it cannot look ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foxhunt_ray.data.schema import Bars
from foxhunt_ray.data.user_features import UserFeatures, load_user_features
from foxhunt_ray.errors import ConfigError, DataError

BARS = (
    Bars("A", np.arange(50) * 10**9, {"close": np.linspace(1, 2, 50)}),
    Bars("B", np.arange(9) * 10**9, {"close": np.linspace(3, 2, 9)}),
)


def user(tmp_path: Path, body: str) -> UserFeatures:
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy as np\ndef fn(bars):\n    close = bars.columns['close']\n    {body}\n")
    return load_user_features(f"{file}:fn")


def test_columns_are_added_to_every_symbol(tmp_path):
    mine = user(tmp_path, "return {'twice': 2 * close, 'lag': np.concatenate([[np.nan], close[:-1]])}")
    mine.require_causal(BARS)
    bars, names = mine.apply(BARS)
    assert names == ("twice", "lag")
    np.testing.assert_array_equal(bars[1].columns["twice"], 2 * BARS[1].columns["close"])
    assert "twice" not in BARS[0].columns and len(mine.digest) == 32


@pytest.mark.parametrize(
    "body",
    [
        "return {'x': np.concatenate([close[1:], [np.nan]])}",
        "return {'x': close - close.mean()}",
        "return {'x': (close - close.min()) / np.ptp(close)}",
        "return {'x': np.convolve(close, np.ones(3) / 3, 'same')}",
        "return {'x': np.where(np.arange(len(close)) == len(close) - 1, np.nan, close)}",
    ],
)
def test_a_function_that_looks_ahead_is_refused_with_column_and_stamp(tmp_path, body):
    mine = user(tmp_path, body)
    with pytest.raises(
        DataError, match=r"--features .*mine.py:fn: A: column 'x' looks into the future: .* in \d+ rows"
    ):
        mine.require_causal(BARS)


def test_a_function_that_draws_numbers_is_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"column 'x' is not deterministic: computed again it has other values in 50 rows"
    ):
        user(tmp_path, "return {'x': np.random.default_rng().random(len(close))}").require_causal(BARS)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return close", "returns ndarray, expected columns by name"),
        ("return {}", "returns dict, expected columns by name"),
        ("return {'x': close[1:]}", r"gives 'x' \[49\] values, expected 50, one a bar"),
        ("return {'x': ['a'] * len(close)}", "gives 'x' values that are not numbers"),
        ("return {'close': close}", "calls a column 'close', a name that is taken"),
        ("return {'return_1': close}", "calls a column 'return_1', a name that is taken"),
        ("return {'x': close / bars.columns['volume']}", "fails in line 4: KeyError: 'volume'"),
        ("return {bars.symbol: close}", "returns other columns than for the first symbol"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(tmp_path, body, what):
    with pytest.raises(DataError, match=what):
        user(tmp_path, body).apply(BARS)


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("mine.py", "expected FILE.py:fn"),
        ("nowhere.py:fn", "no file nowhere.py"),
        ("{}/mine.py:other", "has no function 'other'"),
        ("{}/broken.py:fn", "cannot be run: SyntaxError"),
        ("{}/mine.txt:fn", "is no Python file"),
    ],
)
def test_a_function_that_is_not_there_is_refused(tmp_path, spec, what):
    user(tmp_path, "return {}")
    (tmp_path / "broken.py").write_text("def fn(:")
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ConfigError, match=what):
        load_user_features(spec.format(tmp_path))


def test_a_look_ahead_within_the_day_is_found_though_days_divide_the_history(tmp_path):
    close = np.random.default_rng(0).standard_normal(480)
    hourly = Bars("A", np.arange(480) * 3600 * 10**9, {"close": close})
    body = "return {'x': np.array([close[t // 24 * 24 :][:24].max() for t in range(len(close))])}"
    with pytest.raises(DataError, match=r"column 'x' looks into the future"):
        user(tmp_path, body).require_causal([hourly])


def test_a_running_value_of_the_day_is_no_look_ahead(tmp_path):
    body = "return {'x': np.array([close[t // 24 * 24 : t + 1].max() for t in range(len(close))])}"
    mine = user(tmp_path, body)
    mine.require_causal(BARS)
    days = np.split(BARS[0].columns["close"], [24, 48])
    wanted = np.concatenate([np.maximum.accumulate(day) for day in days])
    np.testing.assert_array_equal(mine.apply(BARS)[0][0].columns["x"], wanted)


def test_a_column_that_only_a_long_history_has_is_refused(tmp_path):
    mine = user(tmp_path, "return {'a': close} | ({'b': close} if len(close) == 50 else {})")
    with pytest.raises(DataError, match=r"column 'b' is not always there"):
        mine.require_causal(BARS)


def test_bars_cannot_be_written_into(tmp_path):
    before = BARS[0].columns["close"].copy()
    with pytest.raises(DataError, match=r"fails in line 4: ValueError: .*read-only \(given 50 bars\)"):
        user(tmp_path, "close /= close.max(); return {'x': close}").apply(BARS)
    np.testing.assert_array_equal(BARS[0].columns["close"], before)


@pytest.mark.parametrize("values", ["close.astype(str)", "bars.ts_event.astype('M8[ns]')", "1j * close"])
def test_text_dates_and_complex_numbers_are_no_inputs(tmp_path, values):
    with pytest.raises(DataError, match="gives 'x' values that are not numbers"):
        user(tmp_path, f"return {{'x': {values}}}").apply(BARS)


def test_integers_flags_and_infinities_become_plain_numbers(tmp_path):
    body = "return {'i': np.arange(len(close)), 'b': close > 1.5, 'inf': close / (close > 1.5)}"
    mine = user(tmp_path, body)
    columns = mine.apply(BARS)[0][0].columns
    assert all(columns[name].dtype == np.float64 for name in ("i", "b", "inf"))
    assert np.isnan(columns["inf"][:25]).all() and np.isfinite(columns["inf"][25:]).all()


def test_a_failure_inside_a_library_is_told_with_the_line_of_the_file(tmp_path):
    with pytest.raises(DataError, match=r"fails in line 4: LinAlgError: Singular matrix"):
        user(tmp_path, "return {'x': np.linalg.inv(np.zeros((2, 2)))}").apply(BARS)


def test_an_edited_file_is_read_anew_and_nothing_is_left_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    first, second = (user(tmp_path, f"return {{'x': {k} * close}}").apply(BARS)[0][0] for k in (2, 3))
    np.testing.assert_array_equal(first.columns["x"] / 2 * 3, second.columns["x"])
    assert [f.name for f in tmp_path.iterdir()] == ["mine.py"]


def test_a_file_may_hold_dataclasses_and_a_failing_import_is_told_with_its_line(tmp_path):
    file = tmp_path / "mine.py"
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    head += "@dataclass\nclass K:\n    a: int\n"
    file.write_text(head + "def fn(bars):\n    return {'x': K(2).a * bars.columns['close']}\n")
    assert load_user_features(f"{file}:fn").apply(BARS)[1] == ("x",)
    file.write_text("import os\nimport no_such_module\n")
    with pytest.raises(ConfigError, match=r"cannot be run in line 2: ModuleNotFoundError: .*no_such_module"):
        load_user_features(f"{file}:fn")

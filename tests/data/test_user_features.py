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
    with pytest.raises(DataError, match=r"column 'x' is not the same when computed again"):
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

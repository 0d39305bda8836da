"""``foxhunt predict`` on data that do not fit, and after training without a search."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def trained(foxhunt, market, tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    done = foxhunt("train", "--config", tiny, "--data", market, "--out", out, "--name", "one", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"][0]["state"] == "finished"
    return out / "one"


def changed(market, folder, change):
    folder.mkdir()
    for file in market.glob("*.parquet"):
        pq.write_table(change(pq.read_table(file)), folder / f"NEW{file.name}")
    return folder


def test_symbols_that_were_not_trained_on_can_be_forecast(trained, foxhunt, market, tmp_path):
    data = changed(market, tmp_path / "new", lambda t: t)
    done = foxhunt("predict", trained, "--data", data, "--out", tmp_path / "p.parquet", "--json")
    assert done.returncode == 0, done.stderr
    found = pq.read_table(tmp_path / "p.parquet")
    assert json.loads(done.stdout)["rows"] == found.num_rows > 2000
    assert set(found["symbol"].unique().to_pylist()) == {"NEWFOX", "NEWHARE"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["gate"]), "has no column 'gate', which the model needs"),
        (lambda t: t.slice(0, 10), "no window of 16 bars in a row"),
    ],
    ids=["column", "rows"],
)
def test_data_that_do_not_fit_are_refused(trained, foxhunt, market, tmp_path, change, words):
    data = changed(market, tmp_path / "new", change)
    done = foxhunt("predict", trained, "--data", data, "--out", tmp_path / "p.parquet")
    assert done.returncode == 2 and words in done.stderr and str(data) in done.stderr
    assert not (tmp_path / "p.parquet").exists()


def test_settings_that_a_model_was_trained_with_cannot_be_changed(trained, foxhunt, market):
    done = foxhunt("predict", trained, "--data", market, "--set", "model.n_layer=2")
    assert done.returncode == 2 and "the model settings it was trained with" in done.stderr


def test_prices_of_two_horizons_are_stored_and_forecast_as_prices(foxhunt, market, tiny, tmp_path):
    given = ("--set", "target.kind=price", "--set", "target.horizon=[1,4]", "--data", market)
    done = foxhunt("train", "--config", tiny, *given, "--out", tmp_path, "--name", "two", "--json")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)["best"]["metrics"]
    assert metrics["test/skill"] == pytest.approx((metrics["test/skill_h1"] + metrics["test/skill_h4"]) / 2)
    assert 0 <= metrics["test/hit_h4"] <= 1
    out = tmp_path / "p.parquet"
    done = foxhunt("predict", tmp_path / "two", "--data", market, "--out", out)
    assert done.returncode == 0, done.stderr
    keys = ["symbol", "ts_event", "horizon"]
    found = pq.read_table(out).to_pandas()
    assert list(found) == [*keys, "prediction", "target"] and found["horizon"].dtype == np.int32
    for symbol, mine in found.groupby("symbol"):
        close = pq.read_table(market / f"{symbol}.parquet").to_pandas().set_index("ts")["close"]
        step = close.index.to_series().diff().mode()[0]
        for horizon in (1, 4):
            one = mine[mine["horizon"] == horizon].set_index("ts_event")
            later = close.index.to_series().shift(-horizon)[one.index] - one.index
            ahead = close.shift(-horizon)[one.index].where(later == horizon * step)  # no gap in between
            np.testing.assert_allclose(one["target"], ahead, rtol=1e-6)
            assert ahead.tail(horizon).isna().all() and one["prediction"].notna().all()
            assert (one["prediction"] / close[one.index] - 1).abs().max() < 0.2
    stored = pq.read_table(tmp_path / "two" / "best" / "predictions.parquet").to_pandas()
    both = pd.merge(stored, found, on=keys, suffixes=("_stored", ""))
    assert len(both) == len(stored) > 0
    np.testing.assert_allclose(both["prediction"], both["prediction_stored"], rtol=1e-6)
    np.testing.assert_array_equal(both["target"], both["target_stored"])

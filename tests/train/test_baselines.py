"""Ridge against closed forms, and the naive forecasts against their own definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foxhunt_ray.batch import Batch
from foxhunt_ray.errors import DataError
from foxhunt_ray.train.baselines import fit_ridge, score_baselines
from foxhunt_ray.train.metrics import Scores, TargetScale


def design(batches, scale, bars: int = 6):
    x = torch.cat([b.features[:, -bars:].flatten(1) for b in batches]).double().numpy()
    y = torch.cat([scale.scaled(b.targets) for b in batches]).numpy()
    return x, y


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 50.0])
def test_ridge_is_least_squares_with_a_penalty_on_all_but_the_intercept(make_batch, scale, penalty) -> None:
    train, val = [make_batch(s, windows=s + 9) for s in range(8)], [make_batch(99)]
    ridge = fit_ridge(train, val, scale=scale, penalties=(penalty,))
    x, y = design(train, scale)
    n, d = x.shape
    # A penalty is d more rows, sqrt(n p) I against 0, that do not see the intercept's column.
    rows = np.block([[x, np.ones((n, 1))], [math.sqrt(n * penalty) * np.eye(d), np.zeros((d, 1))]])
    expected = np.linalg.lstsq(rows, np.vstack([y, np.zeros((d, 2))]))[0]
    np.testing.assert_allclose(ridge.weight, expected[:-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ridge.intercept, expected[-1], rtol=1e-9, atol=1e-12)


def test_ridge_without_penalty_is_ordinary_least_squares(make_batch, scale) -> None:
    train = [make_batch(s) for s in range(10)]
    ridge = fit_ridge(train, [make_batch(99)], scale=scale, penalties=(1e-14,))
    x, y = design(train, scale)
    expected = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y)[0]
    np.testing.assert_allclose(ridge.weight, expected[:-1], atol=1e-9)


def test_the_penalty_is_the_best_of_separate_fits_on_validation(make_batch, scale) -> None:
    train, val = [make_batch(s, windows=7) for s in range(4)], [make_batch(50), make_batch(51, windows=3)]
    penalties = (1e-4, 1e-2, 0.1, 1.0, 100.0)

    def val_loss(penalty: float) -> float:
        alone, scores = fit_ridge(train, val, scale=scale, penalties=(penalty,)), Scores(scale)
        for batch in val:
            scores.add(alone.predict(batch.features), batch.targets)
        return scores.result()["loss"]

    assert fit_ridge(train, val, scale=scale, penalties=penalties).penalty == min(penalties, key=val_loss)


def test_ridge_does_not_depend_on_the_batching(make_batch, scale) -> None:
    whole = make_batch(0, windows=60)
    parts = [
        Batch(
            whole.features[i : i + 7],
            whole.targets[i : i + 7],
            whole.symbol[i : i + 7],
            whole.ts_event[i : i + 7],
        )
        for i in range(0, 60, 7)
    ]
    one, many = (fit_ridge(train, [make_batch(1)], scale=scale) for train in ([whole], parts))
    assert one.penalty == many.penalty
    torch.testing.assert_close(one.weight, many.weight, rtol=1e-10, atol=1e-12)


def test_ridge_predicts_in_target_units(make_batch, scale) -> None:
    ridge = fit_ridge(
        [make_batch(s, windows=64) for s in range(20)], [make_batch(99, windows=500)], scale=scale
    )
    test = make_batch(100, windows=2000)
    residual = ridge.predict(test.features) - test.targets
    assert residual.square().mean(0).sqrt().numpy() == pytest.approx([0.3, 0.3], rel=0.1)  # the planted noise


def test_collinear_inputs_and_fewer_windows_than_inputs_are_fitted(make_batch, scale) -> None:
    batch = make_batch(0, windows=5)
    batch.features[:, :, 1] = batch.features[:, :, 0]
    batch.features[:, :, 2] = 4.0
    assert fit_ridge([batch], [make_batch(1)], scale=scale).weight.isfinite().all()


def test_very_long_windows_use_their_latest_bars(make_batch, scale, monkeypatch) -> None:
    monkeypatch.setattr("foxhunt_ray.train.baselines._MAX_INPUTS", 7)
    train = [make_batch(s) for s in range(3)]
    ridge = fit_ridge(train, [make_batch(9)], scale=scale, penalties=(0.1,))
    cut = [Batch(b.features[:, -2:], b.targets, b.symbol, b.ts_event) for b in [*train, make_batch(9)]]
    short = fit_ridge(cut[:-1], cut[-1:], scale=scale, penalties=(0.1,))
    assert ridge.bars == 2
    assert torch.equal(ridge.predict(train[0].features), short.predict(cut[0].features))


def test_ridge_of_nothing_is_refused(make_batch, scale) -> None:
    with pytest.raises(DataError, match="no training windows"):
        fit_ridge([], [make_batch(0)], scale=scale)
    with pytest.raises(DataError, match="no validation windows"):
        fit_ridge([make_batch(0)], [], scale=scale)


def test_naive_baselines_score_their_own_forecast(make_batch, scale) -> None:
    batches = [make_batch(0), make_batch(1, windows=5)]
    ridge = fit_ridge(batches, batches, scale=scale)
    target = torch.cat([b.targets.double() for b in batches]).numpy()
    last = target + 0.25
    last[3] = np.nan
    found = score_baselines(batches, last=last, mean=(1.0, -2.0), ridge=ridge, scale=scale)
    forecasts = {"zero": 0.0, "mean": (1.0, -2.0), "last": np.where(np.isnan(last), scale.reference, last)}
    for name, forecast in forecasts.items():
        assert found[name]["mse"] == pytest.approx(np.mean((target - forecast) ** 2), rel=1e-12)
    assert list(found) == ["zero", "mean", "last", "ridge"]
    assert found["ridge"]["skill"] > 0.5
    assert math.isnan(found["zero"]["ic"])


def test_ridge_of_a_direction_regresses_the_sign_and_stays_within_it(make_batch) -> None:
    sign = TargetScale((0.0, 0.0), (1.0, 1.0), (0.0, 0.0), link="logistic", is_signed=True, horizons=(1, 2))
    batches = [make_batch(s) for s in range(8)]
    for batch in batches:
        batch.targets.sign_()
    ridge = fit_ridge(batches, batches[:1], scale=sign, penalties=(1e-14,))
    x = np.column_stack([design(batches, sign)[0], np.ones(128)])
    y = torch.cat([b.targets for b in batches]).double().numpy()
    linear = x @ np.linalg.lstsq(x, y)[0]
    found = torch.cat([ridge.predict(b.features) for b in batches]).numpy()
    assert np.abs(linear).max() > 1
    np.testing.assert_allclose(found, np.clip(linear, -1, 1), atol=1e-8)
    scores = score_baselines(batches, last=y, mean=(0.1, 0.2), ridge=ridge, scale=sign)
    assert scores["zero"]["loss"] == pytest.approx(math.log(2)) and scores["zero"]["hit"] == 0.5
    assert scores["last"]["hit"] == 1 and 0.6 < scores["ridge"]["hit"] < 1


@pytest.mark.parametrize("count", [0, 15, 17])
def test_last_values_that_do_not_match_the_windows_are_refused(make_batch, scale, count: int) -> None:
    batches = [make_batch(0)]
    ridge = fit_ridge(batches, batches, scale=scale)
    with pytest.raises(DataError, match=f"{count} last values for 16 windows"):
        score_baselines(batches, last=np.zeros((count, 2)), mean=(0.0, 0.0), ridge=ridge, scale=scale)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_ridge_on_a_gpu_agrees_with_the_cpu(make_batch, scale) -> None:
    train, val = [make_batch(s) for s in range(5)], [make_batch(9)]
    cpu = fit_ridge(train, val, scale=scale)
    gpu = fit_ridge([b.to("cuda") for b in train], [b.to("cuda") for b in val], scale=scale)
    torch.testing.assert_close(gpu.weight.cpu(), cpu.weight, rtol=1e-8, atol=1e-10)

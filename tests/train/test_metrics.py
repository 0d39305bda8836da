"""Scores against their textbook formulas, whatever the batching."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from foxhunt_ray.errors import DataError
from foxhunt_ray.train.metrics import Scores, TargetScale, evaluate, predict

SCALE = TargetScale(center=(1.0, -2.0), scale=(0.5, 3.0), reference=(1.0, 0.0))
DIRECTION = TargetScale((0.0, 0.0), (1.0, 1.0), (0.1, 0.0), link="logistic", is_signed=True, horizons=(6, 24))


def forecasts(windows: int = 200, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(7)
    target = torch.randn(windows, 2, generator=draw, dtype=torch.float64) + offset
    return 0.4 * target + torch.randn(windows, 2, generator=draw, dtype=torch.float64), target


def score(prediction: Tensor, target: Tensor, *cuts: int, scale: TargetScale = SCALE) -> dict[str, float]:
    scores = Scores(scale)
    edges = [0, *sorted(cuts), len(target)]
    for start, end in itertools.pairwise(edges):
        scores.add(prediction[start:end], target[start:end])
    return scores.result()


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_scores_equal_the_numpy_formulas(offset: float) -> None:
    prediction, target = forecasts(offset=offset)
    p, t = prediction.numpy(), target.numpy()
    error = p - t
    expected = {
        "loss": np.mean((error / SCALE.scale) ** 2),
        "skill": np.mean(1 - np.mean(error**2, 0) / np.mean((t - np.array(SCALE.reference)) ** 2, 0)),
        "ic": np.mean([np.corrcoef(p[:, h], t[:, h])[0, 1] for h in range(2)]),
        "mse": np.mean(error**2),
        "mae": np.mean(np.abs(error)),
    }
    assert score(prediction, target, 10, 50) == pytest.approx(expected, rel=1e-10)


@given(st.lists(st.integers(0, 200), max_size=6))
def test_scores_do_not_depend_on_the_batching(cuts: list[int]) -> None:
    prediction, target = forecasts()
    assert score(prediction, target, *cuts) == pytest.approx(score(prediction, target), rel=1e-12, abs=1e-12)


def test_scores_do_not_depend_on_the_order_of_windows() -> None:
    prediction, target = forecasts()
    assert score(prediction.flip(0), target.flip(0)) == pytest.approx(score(prediction, target), rel=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, 12345.678])
def test_ic_of_a_constant_forecast_is_nan_and_its_other_scores_are_not(constant: float) -> None:
    _, target = forecasts()
    scores = score(torch.full_like(target, constant), target, 3, 77)
    assert np.isnan(scores.pop("ic"))
    assert np.isfinite(list(scores.values())).all()


def test_forecasting_the_reference_has_no_skill() -> None:
    _, target = forecasts()
    reference = torch.tensor(SCALE.reference, dtype=torch.float64).expand_as(target)
    assert score(reference, target)["skill"] == 0.0


def test_skill_is_nan_where_the_reference_is_never_wrong() -> None:
    target = torch.tensor(SCALE.reference, dtype=torch.float64).expand(5, 2)
    assert np.isnan(score(target + 1, target)["skill"])


def test_windows_with_an_unknown_target_are_left_out() -> None:
    prediction, target = forecasts()
    holes = target.clone()
    holes[0, 0] = holes[120, 1] = torch.nan
    keep = ~holes.isnan().any(1)
    assert score(prediction, holes, 1, 100) == score(prediction[keep], target[keep], 99)


def test_a_forecast_that_is_not_finite_is_not_hidden() -> None:
    prediction, target = forecasts()
    prediction[3, 0] = torch.nan
    assert np.isnan(score(prediction, target)["loss"])


@pytest.mark.parametrize("targets", [torch.zeros(0, 2), torch.full((4, 2), torch.nan)])
def test_scoring_nothing_is_refused(targets: Tensor) -> None:
    with pytest.raises(DataError, match="no windows to score"):
        score(torch.zeros_like(targets), targets)


@pytest.mark.parametrize("spread", [0.0, -1.0, float("nan"), float("inf")])
def test_a_target_without_spread_is_refused(spread: float) -> None:
    with pytest.raises(DataError, match=f"target 1: its spread .* is {spread}"):
        TargetScale(center=(0.0, 0.0), scale=(1.0, spread), reference=(0.0, 0.0))


def test_scaling_and_back_is_the_identity() -> None:
    _, target = forecasts()
    torch.testing.assert_close(SCALE.in_units(SCALE.scaled(target)), target, rtol=1e-14, atol=1e-14)


def test_evaluate_scores_forecasts_in_target_units(make_batch, new_model) -> None:
    model, batches = new_model(), [make_batch(seed) for seed in range(3)]
    model.eval()
    prediction = torch.cat([SCALE.in_units(model(b.features).detach()) for b in batches])
    expected = score(prediction, torch.cat([b.targets.double() for b in batches]))
    assert evaluate(model, batches, SCALE) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_evaluate_restores_the_mode_even_when_the_batches_fail(make_batch, new_model, training: bool) -> None:
    model = new_model().train(training)

    def failing():
        yield make_batch(0)
        assert not model.training
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        evaluate(model, failing(), SCALE)
    assert model.training is training
    assert torch.is_grad_enabled()


def test_predict_gives_every_window_in_order(make_batch, new_model) -> None:
    model, batches = new_model(), [make_batch(0), make_batch(1, windows=5)]
    batches[1].targets[:] = torch.nan
    found = predict(model, batches, SCALE)
    assert found.prediction.shape == found.target.shape == (21, 2)
    assert [a.dtype for a in (found.prediction, found.target, found.symbol)] == [
        "float64",
        "float64",
        "int64",
    ]
    np.testing.assert_array_equal(found.ts_event, torch.cat([b.ts_event for b in batches]))
    np.testing.assert_array_equal(found.target, torch.cat([b.targets for b in batches]).double())
    expected = SCALE.in_units(model.eval()(batches[1].features).detach())
    np.testing.assert_array_equal(found.prediction[16:], expected)


def test_predict_keeps_nothing_of_a_buffer_that_is_refilled(make_batch) -> None:
    buffer, model = make_batch(0), nn.Sequential(nn.Flatten(), nn.Linear(18, 2))

    def refilled():
        for stamp in (1, 2):
            buffer.ts_event.fill_(stamp)
            yield buffer

    assert set(predict(model, refilled(), SCALE).ts_event.tolist()) == {1, 2}


def test_predict_of_nothing_is_empty(new_model) -> None:
    found = predict(new_model(), [], SCALE)
    assert found.prediction.shape == (0, 2)
    assert found.ts_event.dtype == np.int64


def directions(windows: int = 300) -> tuple[Tensor, Tensor]:
    """Outputs [N, 2] of a model, and targets of -1, 0 and 1."""
    draw = torch.Generator().manual_seed(3)
    output = 2 * torch.randn(windows, 2, generator=draw, dtype=torch.float64)
    return output, torch.randint(-1, 2, (windows, 2), generator=draw).double()


def test_a_direction_is_forecast_as_its_expected_sign() -> None:
    output, _ = directions()
    want = 2 / (1 + np.exp(-output.numpy())) - 1
    np.testing.assert_allclose(DIRECTION.in_units(output), want, rtol=1e-12)


def test_the_loss_of_a_direction_is_the_cross_entropy_of_up_and_down() -> None:
    output, target = directions()
    up, truth = 1 / (1 + np.exp(-output.numpy())), (1 + target.numpy()) / 2
    want = -np.mean(truth * np.log(up) + (1 - truth) * np.log(1 - up))
    assert float(DIRECTION.loss(output, target)) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("scale", [SCALE, DIRECTION], ids=["identity", "logistic"])
def test_the_scored_loss_is_the_training_loss(scale: TargetScale) -> None:
    output, target = directions()
    want = float(scale.loss(output, target))
    assert score(scale.in_units(output), target, 41, scale=scale)["loss"] == pytest.approx(want, rel=1e-10)


def test_a_direction_that_is_certain_and_wrong_has_a_finite_loss() -> None:
    target = torch.ones(2, 2, dtype=torch.float64)
    assert 20 < score(-target, target, scale=DIRECTION)["loss"] < 30
    assert score(target, target, scale=DIRECTION)["loss"] == pytest.approx(0, abs=1e-9)


@given(st.lists(st.integers(0, 300), max_size=4))
def test_hits_are_the_moves_whose_sign_was_forecast(cuts: list[int]) -> None:
    prediction, target = directions()
    prediction[::7] = 0.0
    wanted = []
    for p, t in zip(prediction.T.tolist(), target.T.tolist(), strict=True):
        marks = [0.5 if a == 0 else float(a * b > 0) for a, b in zip(p, t, strict=True) if b != 0]
        wanted.append(sum(marks) / len(marks))
    found = score(prediction, target, *cuts, scale=DIRECTION)
    assert [found["hit_h6"], found["hit_h24"]] == pytest.approx(wanted, rel=1e-12)
    assert found["hit"] == pytest.approx(np.mean(wanted), rel=1e-12)


def test_without_a_move_there_is_no_share_of_hits() -> None:
    prediction, _ = directions()
    assert np.isnan(score(prediction, torch.zeros_like(prediction), scale=DIRECTION)["hit"])


def test_several_horizons_have_scores_of_their_own_and_their_mean() -> None:
    prediction, target = forecasts()
    both = score(prediction, target, scale=replace(SCALE, horizons=(6, 24)))
    for number, horizon in enumerate((6, 24)):
        parts = (SCALE.center, SCALE.scale, SCALE.reference)
        one = TargetScale(*((p[number],) for p in parts), horizons=(horizon,))
        alone = score(prediction[:, [number]], target[:, [number]], scale=one)
        assert set(alone) == {"loss", "skill", "ic", "mse", "mae"}
        for name in ("skill", "ic", "mae"):
            assert both[f"{name}_h{horizon}"] == pytest.approx(alone[name], rel=1e-12)
    for name in ("skill", "ic", "mae"):
        assert both[name] == pytest.approx((both[f"{name}_h6"] + both[f"{name}_h24"]) / 2)

"""The forecaster: first forecasts, learning, independence of windows, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foxhunt_ray.config.schema import ModelConfig
from foxhunt_ray.errors import DataError
from foxhunt_ray.models import Forecaster, build_model


def tiny(seed: int = 0, n_targets: int = 2, **changes: Any) -> Forecaster:
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "n_layer": 2, "d_state": 8, "headdim": 8, **changes}
    return build_model(ModelConfig(**sizes), n_features=5, n_targets=n_targets)


def windows(batch: int = 6, length: int = 20) -> torch.Tensor:
    return torch.randn(batch, length, 5, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("length", [1, 3, 20, 65])
def test_each_window_gets_one_forecast_a_horizon(length: int) -> None:
    assert tiny()(windows(length=length)).shape == (6, 2)


def test_first_forecast_is_near_zero_but_not_zero() -> None:
    forecast = tiny()(windows(batch=64)).abs()
    assert 0 < forecast.max() < 0.1


def test_first_step_trains_every_parameter() -> None:
    model = tiny()
    (model(windows()) - 1).pow(2).mean().backward()
    still = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []


def test_a_batch_can_be_learnt_by_heart() -> None:
    model, x = tiny(), windows(batch=8)
    y = torch.randn(8, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01 * y.pow(2).mean().item()


def test_forecast_equals_that_of_blocks_run_over_every_step() -> None:
    model, x = tiny(n_layer=3).double(), windows().double()
    hidden = model.inp(x)
    for block in model.layers:
        hidden = block(hidden)
    torch.testing.assert_close(model(x), model.head(model.norm(hidden))[:, -1], rtol=1e-12, atol=1e-12)


def test_a_window_is_forecast_alike_alone_and_in_a_batch() -> None:
    model, x = tiny().double(), windows().double()
    torch.testing.assert_close(model(x)[2:3], model(x[2:3]), rtol=1e-12, atol=1e-14)


def test_every_bar_of_the_window_matters() -> None:
    x = windows().requires_grad_()
    tiny()(x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad.abs().amax((0, 2)) > 0).all())


def test_initial_values_are_a_function_of_the_seed() -> None:
    first, again, other = (tiny(seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["inp.weight"], other["inp.weight"])


def test_output_projections_start_smaller_in_deeper_stacks() -> None:
    shallow, deep = tiny(n_layer=1), tiny(n_layer=4)
    ratio = shallow.layers[0].mixer.out_proj.weight.std() / deep.layers[0].mixer.out_proj.weight.std()
    assert ratio.item() == pytest.approx(2, rel=0.15)


def test_only_weights_of_two_or_more_axes_decay() -> None:
    parameters = dict(tiny().named_parameters())
    marked = {n for n, p in parameters.items() if getattr(p, "_no_weight_decay", False)}
    assert marked == {n for n, p in parameters.items() if p.ndim < 2}


def test_dropout_acts_in_training_only() -> None:
    model, x = tiny(dropout=0.5), windows()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("shape", [(6, 20, 4), (6, 0, 5), (20, 5)])
def test_windows_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"this model takes \[B, L, 5\] with L >= 1"):
        tiny()(torch.zeros(shape))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_forecasts_and_gradients_agree_with_the_cpu() -> None:
    results = []
    for device in ("cpu", "cuda"):
        model = tiny().double().to(device)
        forecast = model(windows().double().to(device))
        gradients = torch.autograd.grad(forecast.sum(), list(model.parameters()))
        results.append([t.cpu() for t in (forecast, *gradients)])
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-10)

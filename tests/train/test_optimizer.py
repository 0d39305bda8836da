"""Parameter groups against hand-built ones, and the rate against its closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from foxhunt_ray.config.schema import OptimizerConfig
from foxhunt_ray.train.optimizer import build_optimizer, clip_gradients, learning_rate


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.conv = nn.Conv1d(4, 4, 2, groups=4)
        self.norm = nn.LayerNorm(4)
        self.A_log = nn.Parameter(torch.ones(2))
        self.D = nn.Parameter(torch.ones(2, 3))
        self.D._no_weight_decay = True
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_only_unmarked_matrices_decay() -> None:
    model = Mixed()
    decay, keep = build_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert [names[id(p)] for p in decay["params"]] == ["linear.weight", "conv.weight"]
    assert {names[id(p)] for p in keep["params"]} == {
        "linear.bias", "conv.bias", "norm.weight", "norm.bias", "A_log", "D",
    }  # fmt: skip
    assert (decay["weight_decay"], keep["weight_decay"]) == (0.3, 0.0)


def test_without_gradients_only_matrices_shrink_by_rate_times_decay() -> None:
    model = Mixed()
    optimizer = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 0.95 if name in ("linear.weight", "conv.weight") else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


def test_a_step_is_adamw_of_the_paper() -> None:
    model = nn.Linear(2, 1, bias=False)
    start, grad = model.weight.detach().clone(), torch.tensor([[0.3, -2.0]])
    model.weight.grad = grad.clone()
    build_optimizer(model, OptimizerConfig(lr=0.01, weight_decay=0.1)).step()
    expected = start * (1 - 0.01 * 0.1) - 0.01 * grad / (
        grad.abs() + 1e-8
    )  # bias correction cancels at step 1
    torch.testing.assert_close(model.weight.detach(), expected)


def test_the_rate_rises_linearly_to_the_peak_and_falls_by_half_a_cosine() -> None:
    config = OptimizerConfig(lr=2.0e-3, warmup_frac=0.1)
    rates = [learning_rate(step, optimizer=config, max_steps=100) for step in range(100)]
    expected = [2e-3 * (s + 1) / 10 for s in range(10)]
    expected += [2e-3 * (1 + math.cos(math.pi * (s - 10) / 90)) / 2 for s in range(10, 100)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_the_constant_schedule_stays_at_the_peak() -> None:
    config = OptimizerConfig(lr=1e-2, warmup_frac=0.5, schedule="constant")
    rates = [learning_rate(step, optimizer=config, max_steps=4) for step in range(4)]
    assert rates == pytest.approx([5e-3, 1e-2, 1e-2, 1e-2])


@pytest.mark.parametrize("max_steps", [1, 2, 3, 7])
@pytest.mark.parametrize("warmup_frac", [0.0, 0.05, 0.99])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_no_step_is_wasted_on_a_rate_of_zero(max_steps: int, warmup_frac: float, schedule: str) -> None:
    config = OptimizerConfig(lr=1.0, warmup_frac=warmup_frac, schedule=schedule)
    rates = [learning_rate(step, optimizer=config, max_steps=max_steps) for step in range(max_steps)]
    assert min(rates) > 0
    assert max(rates) <= 1.0


@pytest.mark.parametrize(("max_norm", "after"), [(1.0, 1.0), (0.0, 5.0), (100.0, 5.0)])
def test_clipping_limits_the_global_norm_and_returns_the_one_before(max_norm: float, after: float) -> None:
    model = nn.Linear(1, 1)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0]]), torch.tensor([4.0])
    assert clip_gradients(model, max_norm).item() == pytest.approx(5.0)
    assert math.hypot(model.weight.grad.item(), model.bias.grad.item()) == pytest.approx(after, rel=1e-5)


def test_the_norm_of_no_gradients_is_zero() -> None:
    assert clip_gradients(nn.Linear(1, 1), 1.0).item() == 0.0


def test_a_warm_up_of_part_of_a_step_counts_as_a_whole_one() -> None:
    config = OptimizerConfig(lr=1.0, warmup_frac=0.05, schedule="constant")
    assert [learning_rate(step, optimizer=config, max_steps=30) for step in range(3)] == [0.5, 1.0, 1.0]

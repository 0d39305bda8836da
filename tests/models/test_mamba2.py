"""The mixer: its last step alone, causality, initial values, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from foxhunt_ray.errors import ConfigError, DataError
from foxhunt_ray.models.mamba2 import Mamba2, exempt_from_decay, make_block
from foxhunt_ray.models.ssd import ssd_recurrent


def sizes(**changes: Any) -> dict[str, Any]:
    return {
        "d_model": 16,
        "d_state": 8,
        "d_conv": 4,
        "expand": 2,
        "headdim": 8,
        "ngroups": 1,
        "chunk_size": 16,
        **changes,
    }


@pytest.mark.parametrize("groups", [1, 2])
def test_mixer_equals_its_formula_written_step_by_step(groups: int) -> None:
    mixer = make_block(sizes(ngroups=groups)).double()
    u = torch.randn(2, 21, 16, dtype=torch.float64)
    z, xBC, dt = mixer.in_proj(u).split([32, 32 + 2 * groups * 8, 4], -1)
    convolved = mixer.conv1d(F.pad(xBC.transpose(1, 2), (3, 0))).transpose(1, 2)
    x, B, C = (convolved * convolved.sigmoid()).split([32, groups * 8, groups * 8], -1)
    heads, B, C = x.unflatten(-1, (4, 8)), B.unflatten(-1, (groups, 8)), C.unflatten(-1, (groups, 8))
    dt = (1 + (dt + mixer.dt_bias).exp()).log()
    y = ssd_recurrent(heads, dt, -mixer.A_log.exp(), B, C, chunk_size=1, D=mixer.D).flatten(2)
    gated = (y * z * z.sigmoid()).unflatten(-1, (groups, -1))
    normed = gated / (gated.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    expected = (normed.flatten(2) * mixer.norm.weight) @ mixer.out_proj.weight.T
    torch.testing.assert_close(mixer(u), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 16, 37])
@pytest.mark.parametrize("changes", [{}, {"ngroups": 2}, {"dt_limit": (0.01, 0.05)}, {"d_conv": 1}])
def test_last_step_alone_equals_the_last_of_all(length: int, changes: dict[str, Any]) -> None:
    mixer = make_block(sizes(**changes)).double()
    u = torch.randn(2, length, 16, dtype=torch.float64)
    torch.testing.assert_close(mixer(u, last_only=True), mixer(u)[:, -1], rtol=1e-12, atol=1e-12)


def test_last_step_alone_has_the_gradients_of_the_last_of_all() -> None:
    mixer = make_block(sizes(ngroups=2)).double()
    u = torch.randn(2, 20, 16, dtype=torch.float64, requires_grad=True)
    wanted = [u, *mixer.parameters()]
    alone = torch.autograd.grad(mixer(u, last_only=True).sin().sum(), wanted)
    of_all = torch.autograd.grad(mixer(u)[:, -1].sin().sum(), wanted)
    torch.testing.assert_close(alone, of_all, rtol=1e-10, atol=1e-12)


def test_later_inputs_leave_earlier_outputs_bit_equal() -> None:
    mixer = make_block(sizes())
    u = torch.randn(2, 40, 16)
    changed = u.clone()
    changed[:, 25:] += 1
    assert torch.equal(mixer(u)[:, :25], mixer(changed)[:, :25])
    assert not torch.equal(mixer(u)[:, 25:], mixer(changed)[:, 25:])


def test_parameters_have_the_reference_names_and_shapes() -> None:
    shapes = {name: list(p.shape) for name, p in make_block(sizes(ngroups=2)).named_parameters()}
    assert shapes == {
        "in_proj.weight": [2 * 32 + 2 * 2 * 8 + 4, 16],
        "conv1d.weight": [32 + 2 * 2 * 8, 1, 4],
        "conv1d.bias": [32 + 2 * 2 * 8],
        "dt_bias": [4],
        "A_log": [4],
        "D": [4],
        "norm.weight": [32],
        "out_proj.weight": [16, 32],
    }


def test_initial_step_sizes_are_log_uniform() -> None:
    torch.manual_seed(0)
    mixer = Mamba2(1024, d_state=1, d_conv=1, expand=2, headdim=1, ngroups=1, chunk_size=1)
    log_dt = F.softplus(mixer.dt_bias).log10()
    assert -3.001 < log_dt.min() < -2.98
    assert -1.02 < log_dt.max() < -0.999
    assert log_dt.mean().item() == pytest.approx(-2, abs=0.05)  # 2048 draws: standard error 0.013


def test_initial_decay_rates_are_uniform_and_skips_are_one() -> None:
    torch.manual_seed(0)
    mixer = Mamba2(1024, d_state=1, d_conv=1, expand=2, headdim=1, ngroups=1, chunk_size=1)
    rates = mixer.A_log.exp()
    assert 1 <= rates.min() < 1.1
    assert 15.9 < rates.max() <= 16.001
    assert rates.mean().item() == pytest.approx(8.5, abs=0.4)  # standard error 0.1
    assert torch.equal(mixer.D, torch.ones(2048))


def test_only_matrices_and_taps_decay() -> None:
    marked = {n for n, p in make_block(sizes()).named_parameters() if getattr(p, "_no_weight_decay", False)}
    assert marked == {"conv1d.bias", "dt_bias", "A_log", "D", "norm.weight"}


def test_exemption_reaches_nested_modules() -> None:
    outer = nn.Sequential(nn.Linear(2, 3))
    exempt_from_decay(outer)
    assert [hasattr(p, "_no_weight_decay") for p in outer.parameters()] == [False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"headdim": 12}, r"headdim 12 does not divide expand \* d_model = 32; use 8 or 16"),
        ({"ngroups": 3}, r"4 heads do not divide into ngroups = 3; use 2 or 4"),
        ({"d_conv": 0}, r"d_conv is 0; expected 1 or more"),
        ({"chunk_size": -1}, r"chunk_size is -1; expected 1 or more"),
        ({"headdim": 0}, r"headdim is 0; expected 1 or more"),
    ],
)
def test_sizes_that_cannot_be_built_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_block(sizes(**changes))


@pytest.mark.parametrize("shape", [(2, 5, 15), (2, 0, 16), (5, 16)])
def test_input_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"expected \[B, L, 16\] with L >= 1"):
        make_block(sizes())(torch.zeros(shape))

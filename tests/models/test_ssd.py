"""The chunked scan against the recurrence, against closed forms, and against itself cut in two."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from foxhunt_ray.errors import ConfigError, DataError
from foxhunt_ray.models.ssd import ssd_chunked, ssd_last, ssd_recurrent, ssd_step

Inputs = dict[str, Any]


def make_inputs(
    length: int, *, heads: int = 4, groups: int = 2, batch: int = 2, spread: float = 1.0
) -> Inputs:
    """Random float64 inputs; ``spread`` > 1 gives heads and steps of very different speeds."""
    gen = torch.Generator().manual_seed(length)
    p, n = 3, 5

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=gen, dtype=torch.float64)

    return {
        "x": normal(batch, length, heads, p),
        "dt": normal(batch, length, heads) * spread - 2,
        "A": -1 - 15 * torch.rand(heads, generator=gen, dtype=torch.float64),
        "B": normal(batch, length, groups, n),
        "C": normal(batch, length, groups, n),
        "D": normal(heads),
        "dt_bias": normal(heads) * 0.3,
        "initial_states": normal(batch, heads, p, n),
    }


def scan(form: Callable[..., Any], inputs: Inputs, *, chunk_size: int = 16) -> tuple[Tensor, Tensor]:
    y, state = form(**inputs, chunk_size=chunk_size, dt_softplus=True, return_final_state=True)
    return y, state


def part(inputs: Inputs, steps: slice) -> Inputs:
    return {k: v[:, steps] if k in ("x", "dt", "B", "C") else v for k, v in inputs.items()}


def relative_error(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want.double()).abs().max() / want.abs().max()).item()


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 45, 61])
def test_chunked_equals_recurrence_in_outputs_state_and_every_gradient(length: int) -> None:
    inputs = make_inputs(length)
    results = []
    for form in (ssd_chunked, ssd_recurrent):
        leaves = {k: v.clone().requires_grad_() for k, v in inputs.items()}
        y, state = scan(form, leaves)
        gradients = torch.autograd.grad(y.sin().sum() + state.cos().sum(), list(leaves.values()))
        results.append((y, state, *gradients))
    for fast, slow in zip(*results, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("chunk_size", [1, 7, 32, 64, 1000])
def test_chunk_size_does_not_change_the_result(chunk_size: int) -> None:
    inputs = make_inputs(45)
    got, want = scan(ssd_chunked, inputs, chunk_size=chunk_size), scan(ssd_recurrent, inputs)
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("skip", ["none", "head", "channel"])
def test_groups_and_skips_agree_with_recurrence(groups: int, skip: str) -> None:
    inputs = make_inputs(21, groups=groups)
    inputs["D"] = {"none": None, "head": inputs["D"], "channel": torch.randn(4, 3, dtype=torch.float64)}[skip]
    torch.testing.assert_close(scan(ssd_chunked, inputs), scan(ssd_recurrent, inputs), rtol=1e-11, atol=1e-11)


def test_constant_input_to_one_channel_sums_the_geometric_series() -> None:
    steps = torch.arange(1, 38, dtype=torch.float64)
    one = torch.ones(1, 37, 1, 1, dtype=torch.float64)
    dt, rate = 0.1, -0.7
    y = ssd_chunked(one, dt * one[..., 0], one.new_tensor([rate]), one, one, chunk_size=8)
    decay = math.exp(dt * rate)
    expected = dt * (1 - decay**steps) / (1 - decay)
    torch.testing.assert_close(y.flatten(), expected, rtol=1e-13, atol=0)


def test_later_inputs_leave_earlier_outputs_bit_equal() -> None:
    inputs = make_inputs(53)
    changed = {k: v.clone() for k, v in inputs.items()}
    for name in ("x", "dt", "B", "C"):
        changed[name][:, 30:] *= -1.7
    before, after = (scan(ssd_chunked, i)[0] for i in (inputs, changed))
    assert torch.equal(before[:, :30], after[:, :30])
    assert not torch.equal(before[:, 30:], after[:, 30:])


@pytest.mark.parametrize("cut", [1, 16, 29])
def test_two_halves_with_the_state_carried_equal_the_whole(cut: int) -> None:
    inputs = make_inputs(53)
    first, state = scan(ssd_chunked, part(inputs, slice(cut)))
    second, state = scan(ssd_chunked, part(inputs, slice(cut, None)) | {"initial_states": state})
    torch.testing.assert_close((torch.cat([first, second], 1), state), scan(ssd_chunked, inputs))


def test_steps_one_by_one_equal_the_scan() -> None:
    inputs = make_inputs(20)
    state, outputs = inputs["initial_states"], []
    fixed = {k: inputs[k] for k in ("A", "D", "dt_bias")}
    for t in range(20):
        now = {k: inputs[k][:, t] for k in ("x", "dt", "B", "C")}
        state, y = ssd_step(state, **now, **fixed, dt_softplus=True, dt_limit=(0.01, 0.5))
        outputs.append(y)
    whole = ssd_chunked(
        **inputs, chunk_size=8, dt_softplus=True, dt_limit=(0.01, 0.5), return_final_state=True
    )
    torch.testing.assert_close((torch.stack(outputs, 1), state), whole, rtol=1e-11, atol=1e-11)


def test_step_leaves_the_given_state_as_it_was() -> None:
    inputs = make_inputs(1)
    state = inputs.pop("initial_states")
    before = state.clone()
    now = {k: v[:, 0] if k in ("x", "dt", "B", "C") else v for k, v in inputs.items()}
    after, _ = ssd_step(state, **now, dt_softplus=True)
    assert torch.equal(state, before)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("length", [1, 3, 45])
@pytest.mark.parametrize("groups", [1, 2])
def test_last_step_alone_equals_the_last_of_all(length: int, groups: int) -> None:
    inputs = make_inputs(length, groups=groups)
    del inputs["initial_states"]
    full = ssd_chunked(**inputs, chunk_size=16, dt_softplus=True)
    last = ssd_last(**inputs | {"C": inputs["C"][:, -1]}, dt_softplus=True)
    torch.testing.assert_close(last, full[:, -1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("spread", [0.0, 8.0])
def test_float32_stays_accurate_with_heads_of_mixed_speeds(spread: float) -> None:
    inputs = make_inputs(2048, batch=1, spread=spread)
    single = {k: v.float() for k, v in inputs.items()}
    exact = scan(ssd_recurrent, {k: v.double() for k, v in single.items()})
    for got, want in zip(scan(ssd_chunked, single, chunk_size=64), exact, strict=True):
        assert relative_error(got, want) < 2e-5


def test_decay_gradient_in_float32_survives_heads_that_forget_at_once() -> None:
    inputs = make_inputs(256, batch=1, spread=4.0)
    gradients = []
    for dtype, form in ((torch.float32, ssd_chunked), (torch.float64, ssd_recurrent)):
        leaves = {k: v.float().to(dtype).requires_grad_() for k, v in inputs.items()}
        y, _ = scan(form, leaves, chunk_size=64)
        gradients.append(torch.autograd.grad(y.sum(), leaves["A"])[0])
    assert relative_error(*gradients) < 1e-4


def test_padding_leaves_a_state_without_decay_or_input_unchanged() -> None:
    inputs = make_inputs(21) | {"dt": torch.zeros(2, 21, 4, dtype=torch.float64), "dt_bias": None}
    _, state = ssd_chunked(**inputs, chunk_size=8, return_final_state=True)
    assert torch.equal(state, inputs["initial_states"])


def test_strided_views_give_the_result_of_their_copies() -> None:
    wide = torch.randn(2, 33, 4 * 3 + 5 + 5, dtype=torch.float64)
    x, B, C = wide.split([12, 5, 5], dim=-1)
    views = {"x": x.unflatten(-1, (4, 3)), "B": B.unsqueeze(2), "C": C.unsqueeze(2)}
    inputs = make_inputs(33) | views
    copies = {k: v.clone() for k, v in inputs.items()}
    assert not inputs["x"].is_contiguous()
    torch.testing.assert_close(scan(ssd_chunked, inputs), scan(ssd_chunked, copies))


def test_empty_batch_gives_an_empty_result() -> None:
    y, state = scan(ssd_chunked, make_inputs(20, batch=0))
    assert y.shape == (0, 20, 4, 3)
    assert state.shape == (0, 4, 3, 5)


@pytest.mark.parametrize(
    ("dtype", "state_dtype"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_outputs_keep_their_type_and_states_are_never_narrower_than_float32(
    dtype: torch.dtype, state_dtype: torch.dtype
) -> None:
    inputs = {k: v.to(dtype) for k, v in make_inputs(20).items()}
    for form in (ssd_chunked, ssd_recurrent):
        y, state = scan(form, inputs)
        assert (y.dtype, state.dtype) == (dtype, state_dtype)


BAD = [
    ({"x": torch.zeros(2, 9, 4, 3, dtype=torch.int64)}, r"x is torch.int64; expected a floating type"),
    ({"B": torch.zeros(2, 9, 3, 5)}, r"4 heads do not divide into the 3 groups of B; use 2 or 4 groups"),
    ({"B": torch.zeros(2, 9, 2, 5).double()}, r"B is torch.float64, x is torch.float32"),
    ({"C": torch.zeros(2, 9, 2, 6)}, r"C has shape \[2, 9, 2, 6\]; expected \[2, 9, 2, 5\]"),
    ({"dt": torch.zeros(2, 8, 4)}, r"dt has shape \[2, 8, 4\]; expected \[2, 9, 4\]"),
    ({"A": torch.zeros(3)}, r"A has shape \[3\]; expected \[4\]"),
    ({"D": torch.zeros(4, 2)}, r"D has shape \[4, 2\]; expected \[4, 3\]"),
    ({"initial_states": torch.zeros(1, 4, 3, 5)}, r"state has shape \[1, 4, 3, 5\]; expected \[2, 4, 3, 5\]"),
    ({"x": torch.zeros(2, 9, 12)}, r"x has shape \[2, 9, 12\].* expected \[b, l, h, p\]"),
    ({"A": torch.zeros(4, device="meta")}, r"A is on meta, x on cpu"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD)
def test_inputs_that_do_not_fit_are_refused_with_both_shapes(wrong: Inputs, message: str) -> None:
    inputs = {k: v.float() for k, v in make_inputs(9).items()} | wrong
    for form in (ssd_chunked, ssd_recurrent):
        with pytest.raises(DataError, match=message):
            form(**inputs, chunk_size=4)


@pytest.mark.parametrize("form", [ssd_chunked, ssd_recurrent])
def test_no_step_at_all_is_refused(form: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match="no step in time"):
        scan(form, make_inputs(0))


def test_chunks_below_one_step_are_refused() -> None:
    with pytest.raises(ConfigError, match="chunk_size is 0; expected 1 step or more"):
        scan(ssd_chunked, make_inputs(4), chunk_size=0)


@pytest.mark.parametrize("limit", [(0.2, 0.1), (-1.0, 1.0), (math.nan, 1.0)])
def test_step_limits_out_of_order_are_refused(limit: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="expected 0 <= low <= high"):
        ssd_chunked(**make_inputs(4), chunk_size=4, dt_limit=limit)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.bfloat16, 3e-2)])
def test_gpu_agrees_with_the_recurrence_on_the_cpu(dtype: torch.dtype, tolerance: float) -> None:
    inputs = {k: v.to(dtype) for k, v in make_inputs(300).items()}
    got = scan(ssd_chunked, {k: v.cuda() for k, v in inputs.items()}, chunk_size=64)
    want = scan(ssd_recurrent, {k: v.double() for k, v in inputs.items()})
    for fast, slow in zip(got, want, strict=True):
        assert relative_error(fast.cpu(), slow) < tolerance

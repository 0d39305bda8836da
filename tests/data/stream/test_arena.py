"""Where windows are gathered, how rows are scaled, and that a gather is a loop of slices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.stream.arena import Arena, Scaling, device_free_bytes, ordered, pick_tier

GB = 10**9


@pytest.mark.parametrize(
    ("wanted", "free", "split", "pool", "tier"),
    [
        ("auto", None, 1, 1, "host"),  # the CPU, where nothing is sent
        ("auto", 4 * GB, GB, GB, "resident"),  # a quarter of what is free
        ("auto", 4 * GB, GB + 1, GB // 10, "arena"),
        ("auto", 10 * GB, 9 * GB, GB, "arena"),  # a tenth of what is free
        ("auto", 10 * GB, 9 * GB, GB + 1, "host"),
        ("auto", 0, 1, 1, "host"),
        ("auto", -GB, 1, 1, "host"),  # more is reserved than this process may take
        ("resident", 0, GB, GB, "resident"),
        ("arena", None, GB, GB, "arena"),
        ("host", 100 * GB, 1, 1, "host"),
    ],
)
def test_the_tier_sends_least_of_those_that_fit_unless_one_is_asked_for(wanted, free, split, pool, tier):
    assert pick_tier(wanted, free_bytes=free, split_bytes=split, pool_bytes=pool) == tier


def test_the_cpu_has_no_device_memory_to_fit_into():
    assert device_free_bytes(torch.device("cpu")) is None


@pytest.mark.gpu
def test_a_gpu_tells_no_more_memory_than_it_has():
    free = device_free_bytes(torch.device("cuda"))
    assert free is not None and 0 < free <= torch.cuda.mem_get_info()[1]


@pytest.mark.parametrize("clip", [0.0, 1.5])
@pytest.mark.parametrize("rows", [1, 2047, 2048, 2049, 5000])
def test_scaling_is_that_of_float64_and_what_is_missing_is_zero(rows, clip):
    random = np.random.default_rng(rows)
    raw = (random.standard_normal((rows, 3)) * [1, 1e-3, 1e4] + [0, 5, -1e5]).astype(np.float32)
    raw[random.random(raw.shape) < 0.05] = np.nan
    mean, std = np.array([0.1, 5.001, -1e5]), np.array([0.7, 2e-3, 3e4])
    want = (raw.astype(float) - mean) / std
    want = np.nan_to_num(np.clip(want, -clip, clip) if clip else want, nan=0.0)
    got = torch.from_numpy(raw.copy())
    Scaling(mean, std, clip).apply_(got)
    # Statistics are float32 as the rows are: the second mean is rounded by 1e-4 of its deviation.
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=2e-4)
    assert (got.numpy()[np.isnan(raw)] == 0).all() and torch.isfinite(got).all()
    assert not clip or got.abs().max() <= clip


def test_rows_are_scaled_alike_wherever_a_slice_of_them_ends():
    raw = torch.randn(5000, 4, generator=torch.Generator().manual_seed(0))
    scaling = Scaling(np.arange(4.0), np.arange(1.0, 5.0), 1.0)
    whole, one_by_one = raw.clone(), raw.clone()
    scaling.apply_(whole)
    for row in one_by_one.split(1):
        scaling.apply_(row)
    assert torch.equal(whole, one_by_one)


def arena(n: int, width: int, horizons: int) -> Arena:
    """Rows whose every value is another one."""
    features = torch.arange(n * width, dtype=torch.float32).view(n, width)
    targets = -torch.arange(n * horizons, dtype=torch.float32).view(n, horizons)
    return Arena(features, targets, torch.arange(n) // 7, 1000 + torch.arange(n))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_windows_in_any_order_are_slices_of_the_rows(data):
    length, width, horizons = (data.draw(st.integers(1, k)) for k in (9, 4, 3))
    n = data.draw(st.integers(length, 40))
    rows = arena(n, width, horizons)
    ends = data.draw(st.lists(st.integers(length - 1, n - 1), max_size=30))
    filled = ordered(rows, np.array(ends, np.int64), length, is_last=True, pinned=False)
    assert len(filled) == len(ends) and filled.is_last and filled.ready is None
    start = data.draw(st.integers(0, len(ends)))
    which = slice(start, data.draw(st.integers(start, len(ends))), data.draw(st.integers(1, 3)))
    batch = filled.windows(which, pinned=False)
    assert batch.features.shape == (len(ends[which]), length, width)
    for number, end in enumerate(ends[which]):
        assert torch.equal(batch.features[number], rows.features[end - length + 1 : end + 1])
        assert torch.equal(batch.targets[number], rows.targets[end])
        assert (batch.symbol[number], batch.ts_event[number]) == (rows.symbol[end], rows.ts_event[end])


def test_a_batch_owns_its_inputs_so_that_a_write_does_not_reach_the_rows():
    rows = arena(10, 2, 1)
    before = rows.features.clone()
    filled = ordered(rows, np.array([4, 5, 4]), 3, is_last=False, pinned=False)
    batch = filled.windows(slice(0, 3), pinned=False)
    batch.features.fill_(-1)
    assert torch.equal(rows.features, before)
    assert torch.equal(filled.windows(slice(2, 3), pinned=False).features[0], before[2:5])


def test_the_size_of_an_arena_is_that_of_its_rows():
    assert arena(10, 3, 2).nbytes == 10 * (4 * 3 + 4 * 2 + 16)


@pytest.mark.gpu
def test_windows_gathered_on_the_gpu_are_those_of_the_host():
    rows, ends = arena(200, 5, 2), np.random.default_rng(0).integers(6, 200, 300)
    host = ordered(rows, ends, 7, is_last=True, pinned=True)
    there = ordered(rows.to(torch.device("cuda")), ends, 7, is_last=True, pinned=False)
    there.wait()
    one, other = host.windows(slice(3, 250, 2), pinned=True), there.windows(slice(3, 250, 2), pinned=False)
    assert one.features.is_pinned() and one.targets.is_pinned() and other.features.is_cuda
    for name in ("features", "targets", "symbol", "ts_event"):
        assert torch.equal(getattr(one, name), getattr(other, name).cpu())


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_free_memory_of_a_gpu_is_some_of_it_and_less_for_a_share(device):
    free = device_free_bytes(torch.device(device))
    total = torch.cuda.get_device_properties(0).total_memory
    assert free is not None and 0 < free < total
    torch.cuda.set_per_process_memory_fraction(0.25, 0)
    try:
        share = device_free_bytes(torch.device(device))
        assert share is not None and share <= 0.25 * total
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)


def test_the_cpu_has_no_memory_of_its_own():
    assert device_free_bytes(torch.device("cpu")) is None

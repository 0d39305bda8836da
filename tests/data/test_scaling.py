"""Statistics of training rows alone, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foxhunt_ray.data.scaling import scaling_statistics, train_statistics
from foxhunt_ray.data.stream.arena import Scaling


def symbols() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.lognormal(0, 1, (300, 2)).astype(np.float32) for _ in range(3)]


def test_statistics_are_those_of_the_training_rows_alone():
    parts = symbols()
    parts[0][3, 0] = np.nan
    inside = [np.arange(300) < stop for stop in (200, 10, 0)]
    mean, std = train_statistics(parts, inside)
    pooled = np.concatenate([p[m] for p, m in zip(parts, inside, strict=True)]).astype(np.float64)
    assert mean == pytest.approx(np.nanmean(pooled, axis=0), rel=1e-12)
    assert std == pytest.approx(np.nanstd(pooled, axis=0), rel=1e-12)
    for part, mask in zip(parts, inside, strict=True):
        part[~mask] = 1e6
    again = train_statistics(parts, inside)
    assert np.array_equal(again[0], mean) and np.array_equal(again[1], std)


def test_statistics_of_a_level_far_from_zero_are_exact():
    level = (3e4 + np.random.default_rng(0).standard_normal((50_000, 1))).astype(np.float32)
    _, std = train_statistics([level, level], [np.ones(50_000, bool)] * 2)
    assert std == pytest.approx(level.astype(np.float64).std(), rel=1e-12)


def test_a_constant_input_is_not_divided_by_zero():
    rows = np.full((10, 1), 7.0, np.float32)
    mean, std = train_statistics([rows], [np.ones(10, bool)])
    assert (mean[0], std[0]) == (7.0, 1.0)


def test_robust_statistics_are_quantiles_of_the_training_rows():
    parts, inside = symbols(), [np.arange(300) < stop for stop in (200, 10, 0)]
    parts[0][3, 0] = np.nan
    center, scale = scaling_statistics(parts, inside, ("a", "b"), "robust")
    pooled = np.concatenate([p[m] for p, m in zip(parts, inside, strict=True)]).astype(np.float64)
    low, middle, high = np.nanquantile(pooled, [0.25, 0.5, 0.75], axis=0)
    np.testing.assert_allclose(center, middle)
    np.testing.assert_allclose(scale, (high - low) / 1.3489795003921634)


def test_an_input_whose_quartiles_are_equal_is_scaled_by_its_deviation():
    rows = np.zeros((100, 1), np.float32)
    rows[:5] = 1
    _, scale = scaling_statistics([rows], [np.ones(100, bool)], ("a",), "robust")
    assert scale[0] == pytest.approx(rows.astype(float).std())


@pytest.mark.parametrize("kind", ["standard", "robust"])
def test_flags_pass_through(kind):
    rows = np.random.default_rng(0).integers(0, 2, (50, 2)).astype(np.float32)
    center, scale = scaling_statistics([rows], [np.ones(50, bool)], ("a", "a_missing"), kind)
    assert (center[1], scale[1]) == (0, 1)


def test_statistics_in_many_blocks_are_those_of_all_rows(monkeypatch):
    parts, inside = symbols(), [np.arange(300) % 3 > 0] * 3
    parts[1][5:60, 1] = np.nan
    monkeypatch.setattr("foxhunt_ray.data.scaling._BLOCK_VALUES", 14)
    mean, std = train_statistics(parts, inside)
    pooled = np.concatenate([p[m] for p, m in zip(parts, inside, strict=True)]).astype(np.float64)
    np.testing.assert_allclose(mean, np.nanmean(pooled, axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, np.nanstd(pooled, axis=0), rtol=1e-12)


def test_a_column_that_only_ends_like_a_flag_is_scaled():
    rows = symbols()[0]
    center, scale = scaling_statistics([rows], [np.ones(300, bool)], ("a", "b_missing"), "standard")
    np.testing.assert_allclose([center[1], scale[1]], [rows[:, 1].mean(), rows[:, 1].std()], rtol=1e-5)


@pytest.mark.parametrize("clip", [0.0, 2.0])
def test_scaled_rows_are_those_of_numpy_and_what_is_missing_is_zero(clip):
    rows = np.random.default_rng(0).standard_t(2, (500, 3)).astype(np.float32) + 5
    rows[::7, 1] = np.nan
    center, scale = scaling_statistics([rows], [np.arange(500) < 300], ("a", "b", "c"), "robust")
    want = (rows.astype(np.float64) - center) / scale
    want = np.nan_to_num(np.clip(want, -clip, clip) if clip else want)
    found = torch.from_numpy(rows.copy())
    Scaling(center, scale, clip).apply_(found)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)
    assert not found[::7, 1].any()


def test_robust_statistics_of_a_constant_or_an_empty_input_leave_it_in_place():
    rows = np.full((10, 2), 7.0, np.float32)
    rows[:, 1] = np.nan
    center, scale = scaling_statistics([rows], [np.ones(10, bool)], ("a", "b"), "robust")
    assert center.tolist() == [7, 0] and scale.tolist() == [1, 1]

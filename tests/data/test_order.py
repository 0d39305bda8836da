"""Units own every row once, and a pass yields every window once, in an order that (seed, epoch) decides."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.order import cut_units, pass_order, spread

HOUR = 3600 * 10**9
_FAR = 10**6


@given(
    symbols=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    unit_rows=st.integers(1, 20),
    halo=st.integers(0, 8),
    block_rows=st.integers(1, 60),
)
def test_every_row_is_owned_once_and_its_look_back_is_there(symbols, unit_rows, halo, block_rows):
    lengths = [n for n, _, _ in symbols]
    train = [tuple(sorted((int(a * n), int(b * n)))) for n, a, b in symbols]
    units = cut_units(lengths, train, unit_rows=unit_rows, halo=halo, block_rows=block_rows)
    owned = [r for a, b in zip(units.owned, units.last, strict=True) for r in range(a, b)]
    assert owned == list(range(sum(lengths)))
    begin = np.cumsum([0, *lengths])
    symbol = np.searchsorted(begin, units.owned, side="right") - 1
    assert (units.first == np.maximum(units.owned - halo, begin[symbol])).all()
    assert (units.last <= begin[symbol + 1]).all() and (units.last - units.owned <= unit_rows).all()
    edges = {int(begin[s]) + e for s, span in enumerate(train) for e in span}
    assert not any(a < e < b for a, b in zip(units.owned, units.last, strict=True) for e in edges)


@given(
    lengths=st.lists(st.integers(1, 80), min_size=1, max_size=4),
    cut=st.floats(0, 1),
    block_rows=st.integers(1, 60),
)
def test_blocks_hold_their_units_side_by_side_and_training_apart(lengths, cut, block_rows):
    train = [(0, int(cut * n)) for n in lengths]
    units = cut_units(lengths, train, unit_rows=7, halo=3, block_rows=block_rows)
    begin = np.cumsum([0, *lengths])
    symbol = np.searchsorted(begin, units.owned, side="right") - 1
    is_train = units.owned < (begin[:-1] + [b for _, b in train])[symbol]
    assert set(units.block) == set(range(units.block.max() + 1))
    for block in range(units.block.max() + 1):
        inside = np.flatnonzero(units.block == block)
        inside = inside[np.argsort(units.offset[inside])]
        assert units.offset[inside].tolist() == [0, *np.cumsum(units.rows[inside])[:-1]]
        assert units.rows[inside[:-1]].sum() <= block_rows
        assert len(set(is_train[inside])) == 1
        assert is_train[inside[0]] or inside.tolist() == sorted(inside)


def plan(lengths=(300, 7, 130), unit_rows=16, block_rows=60):
    train = [(0, n) for n in lengths]
    units = cut_units(lengths, train, unit_rows=unit_rows, halo=3, block_rows=block_rows)
    begin = np.cumsum([0, *lengths[:-1]])
    return np.concatenate([b + np.arange(3, n) for b, n in zip(begin, lengths, strict=True)]), units


def windows(pools, ends, units):
    """Places in the pass of the windows of pools in order, each moved with the unit that owns it."""
    shift, seen = _FAR * np.arange(len(units.first)), []
    for pool in pools:
        moved = pool.ordered(ends, shift)
        unit = np.searchsorted(units.owned, moved % _FAR, side="right") - 1
        assert (moved // _FAR == unit).all() and np.isin(unit, pool.units).all()
        seen += np.searchsorted(ends, moved % _FAR).tolist()
    return seen


@pytest.mark.parametrize("pool_rows", [1, 40, 10**9])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_pass_yields_every_window_once_from_units_that_are_loaded(pool_rows, shuffle):
    ends, units = plan()
    pools = pass_order(ends, units, seed=1, epoch=2, shuffle=shuffle, pool_rows=pool_rows)
    seen = windows(pools, ends, units)
    assert sorted(seen) == list(range(len(ends)))
    loaded = np.concatenate([p.units for p in pools])
    assert len(loaded) == len(set(loaded))
    assert shuffle or seen == sorted(seen)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_shuffled_pass_reads_each_block_once_from_end_to_end(shuffle):
    ends, units = plan()
    pools = pass_order(ends, units, seed=1, epoch=0, shuffle=shuffle, pool_rows=40)
    runs = [(b, o) for p in pools for b, o in zip(units.block[p.units], units.offset[p.units], strict=True)]
    changes = sum(a != b for (a, _), (b, _) in pairwise(runs))
    if shuffle:
        assert changes == units.block.max() and len(pools) > 2
        assert all(a != b or o < q for (a, o), (b, q) in pairwise(runs))
    else:
        assert changes > units.block.max()  # training units are stored in another order


@pytest.mark.parametrize("skip", [0, 1, 50, 250, 10**9])
@pytest.mark.parametrize("shuffle", [True, False])
def test_what_is_skipped_is_the_beginning_and_its_pools_do_not_come(shuffle, skip):
    ends, units = plan()
    settings = {"seed": 1, "epoch": 3, "shuffle": shuffle, "pool_rows": 40}
    whole, rest = pass_order(ends, units, **settings), pass_order(ends, units, **settings, skip=skip)
    assert windows(rest, ends, units) == windows(whole, ends, units)[skip:]
    sizes = [p.count.sum() for p in whole]
    assert len(rest) == sum(np.cumsum(sizes) > skip)


def test_order_is_a_function_of_seed_and_epoch():
    ends, units = plan()

    def order(seed, epoch):
        return windows(
            pass_order(ends, units, seed=seed, epoch=epoch, shuffle=True, pool_rows=60), ends, units
        )

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def design_effect(order, size=100):
    """Variance of batch means of a slow label over that of independent draws: 1 for a random order."""
    label = np.array(order[: len(order) // size * size], float)
    return label.reshape(-1, size).mean(axis=1).var() / (label.var() / size)


def test_one_pool_is_as_good_as_a_random_order():
    ends, units = plan(lengths=(6000, 6000), unit_rows=64)
    pools = pass_order(ends, units, seed=0, epoch=0, shuffle=True, pool_rows=10**9)
    assert 0.6 < design_effect(windows(pools, ends, units)) < 1.5


def test_a_pool_of_a_tenth_mixes_times_and_symbols_because_blocks_are_mixed_when_they_are_stored():
    ends, units = plan(lengths=(40_000, 40_000), unit_rows=64, block_rows=1000)
    pools = pass_order(ends, units, seed=0, epoch=0, shuffle=True, pool_rows=8000)
    assert len(pools) == 11  # rows of the look-back come on top
    assert design_effect(windows(pools, ends, units)) < 3  # of blocks of neighbours it would be about 40


def test_spread_takes_one_window_of_each_slice_of_time():
    stamps = np.concatenate([np.arange(1000), np.arange(1000)]) * HOUR
    chosen = spread(stamps, 50, seed=3)
    assert len(chosen) == 50
    places = np.searchsorted(np.sort(stamps), np.sort(stamps[chosen]))
    assert np.abs(places - np.arange(50) * 40).max() < 42
    assert spread(stamps, 10**9, seed=3).tolist() == list(range(len(stamps)))

"""Chunks own every row once, and a pass yields every window once, in an order that (seed, epoch) decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.order import cut_chunks, locate, pass_order, spread

HOUR = 3600 * 10**9


@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=5),
    chunk_rows=st.integers(1, 20),
    halo=st.integers(0, 8),
)
def test_every_row_is_owned_once_and_its_look_back_is_there(lengths, chunk_rows, halo):
    if not sum(lengths):
        lengths = [1]
    chunks = cut_chunks(lengths, chunk_rows=chunk_rows, halo=halo)
    for symbol, length in enumerate(lengths):
        mine = chunks.symbol == symbol
        owned = [r for o, e in zip(chunks.owned[mine], chunks.last[mine], strict=True) for r in range(o, e)]
        assert owned == list(range(length))
        assert (chunks.first[mine] == np.maximum(chunks.owned[mine] - halo, 0)).all()


def plan(lengths=(300, 7, 130), chunk_rows=16):
    chunks = cut_chunks(lengths, chunk_rows=chunk_rows, halo=3)
    return locate([np.arange(3, n) for n in lengths], chunks), chunks


def test_windows_lie_in_the_chunk_that_owns_their_end():
    windows, chunks = plan()
    assert (chunks.symbol[windows.chunk] == windows.symbol).all()
    assert (chunks.owned[windows.chunk] <= windows.end).all()
    assert (windows.end < chunks.last[windows.chunk]).all()


@pytest.mark.parametrize("pool_rows", [1, 40, 10**9])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_pass_yields_every_window_once_from_chunks_that_are_loaded(pool_rows, shuffle):
    windows, chunks = plan()
    seen, loaded = [], []
    for members, order in pass_order(windows, chunks, seed=1, epoch=2, shuffle=shuffle, pool_rows=pool_rows):
        assert set(windows.chunk[order]) == set(members)
        seen += order.tolist()
        loaded += members.tolist()
    assert sorted(seen) == list(range(len(windows)))
    assert len(loaded) == len(set(loaded))
    assert shuffle or seen == sorted(seen)


def test_order_is_a_function_of_seed_and_epoch():
    windows, chunks = plan()

    def order(seed, epoch):
        pools = pass_order(windows, chunks, seed=seed, epoch=epoch, shuffle=True, pool_rows=60)
        return np.concatenate([o for _, o in pools]).tolist()

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_one_pool_is_as_good_as_a_random_order():
    # Variance of batch means of a slow label, over that of independent draws: 1 for a random order.
    windows, chunks = plan(lengths=(6000, 6000), chunk_rows=64)
    pools = pass_order(windows, chunks, seed=0, epoch=0, shuffle=True, pool_rows=10**9)
    label = np.concatenate([o for _, o in pools])[: 100 * 119].astype(float)
    effect = label.reshape(-1, 100).mean(axis=1).var() / (label.var() / 100)
    assert 0.6 < effect < 1.5


def test_spread_takes_one_window_of_each_slice_of_time():
    windows, _ = plan(lengths=(1003, 1003))
    stamps = windows.end * HOUR
    chosen = windows.take(spread(stamps, 50, seed=3))
    assert len(chosen) == 50
    places = np.searchsorted(np.sort(stamps), np.sort(chosen.end * HOUR))
    assert np.abs(places - np.arange(50) * 40).max() < 42
    assert spread(stamps, 10**9, seed=3).tolist() == list(range(len(windows)))

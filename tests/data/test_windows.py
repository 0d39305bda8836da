"""The window plan against a reference that looks at one window at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.split import Span
from foxhunt_ray.data.windows import (
    SymbolIndex,
    cut_chunks,
    locate,
    pass_order,
    segment_first,
    spread,
    window_ends,
)

HOUR = 3600 * 10**9


def is_valid(index, row, *, length, stride, horizon, span, known) -> bool:
    """Whether a window may end at ``row``, decided from the definition."""
    first, target = row - length + 1, row + horizon
    if first < 0:
        return False
    segment = max(s for s in index.segment_first if s <= row)
    if first < segment or (first - segment) % stride:
        return False
    if any(first <= b <= row for b in index.bad_rows):
        return False
    if known and row in index.target_missing:
        return False
    if span is None:
        return True
    stamps = index.ts_event
    return span.start <= stamps[row] and stamps[min(target, len(stamps) - 1)] < span.end


def market(seed: int, n: int, horizon: int) -> SymbolIndex:
    random = np.random.default_rng(seed)
    steps = np.where(random.random(n) < 0.1, 5 * HOUR, HOUR)
    stamps = np.cumsum(steps)
    segments = segment_first(stamps, 2 * HOUR)
    number = np.searchsorted(segments, np.arange(n), side="right")
    missing = [t for t in range(n) if t + horizon >= n or number[t] != number[t + horizon]]
    bad = np.flatnonzero(random.random(n) < 0.05)
    return SymbolIndex(stamps, segments, bad, np.array(missing, np.int64))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 120),
    length=st.integers(1, 12),
    stride=st.integers(1, 5),
    horizon=st.integers(1, 6),
    known=st.booleans(),
    cut=st.floats(0, 1),
)
def test_ends_are_those_of_the_definition(seed, n, length, stride, horizon, known, cut):
    index = market(seed, n, horizon)
    split = Span("val", int(index.ts_event[int(cut * (n - 1))]), int(index.ts_event[-1]) + 1)
    for span in (None, split, Span("train", -(2**63), split.start)):
        got = window_ends(
            index, span, context_length=length, stride=stride, horizon=horizon, known_target=known
        )
        want = [
            t
            for t in range(n)
            if is_valid(index, t, length=length, stride=stride, horizon=horizon, span=span, known=known)
        ]
        assert got.tolist() == want


def test_segments_start_where_a_step_is_too_long():
    stamps = np.array([0, 1, 2, 5, 6, 20]) * HOUR
    assert segment_first(stamps, HOUR).tolist() == [0, 3, 5]
    assert segment_first(stamps, 20 * HOUR).tolist() == [0]
    assert segment_first(stamps[:0], HOUR).tolist() == []


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
    chosen = spread(windows, stamps, 50, seed=3)
    assert len(chosen) == 50
    places = np.searchsorted(np.sort(stamps), np.sort(chosen.end * HOUR))
    assert np.abs(places - np.arange(50) * 40).max() < 42
    assert spread(windows, stamps, 10**9, seed=3) is windows

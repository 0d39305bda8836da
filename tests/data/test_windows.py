"""The window plan against a reference that looks at one window at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.data.split import Span
from foxhunt_ray.data.windows import SymbolIndex, window_ends

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
    segments = np.flatnonzero(np.diff(stamps, prepend=stamps[0] - 9 * HOUR) > 2 * HOUR)
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

"""Blocks go through Ray's iterator in the order asked for, each once, and leave neither threads nor noise."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.stream import store
from foxhunt_ray.data.stream.store import iterators


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300))
def test_iterators_keep_the_order_are_short_and_hold_no_block_twice(numbers):
    parts = iterators(np.array(numbers))
    assert [n for part in parts for n in part] == numbers
    assert all(len(part) == len(set(part)) <= 64 for part in parts)


@pytest.mark.cluster
@pytest.mark.parametrize("prefetch", [1, 3])
def test_units_come_in_the_order_asked_for_with_the_rows_of_the_file(prepared, make_config, market, prefetch):
    units, rows = prepared._rows.units, np.concatenate([b.columns["row"] for b in market.bars])
    numbers = np.random.default_rng(0).permutation(len(units.first))
    got = list(prepared._rows.read(numbers, prefetch_blocks=prefetch))
    assert len(got) == len(numbers)
    for number, (features, targets) in zip(numbers, got, strict=True):
        want = rows[units.first[number] : units.last[number]].astype(np.float32)
        assert features[:, 0].tobytes() == want.tobytes() and len(targets) == len(features)


@pytest.mark.cluster
def test_a_reading_that_is_left_early_leaves_no_thread_of_ray(prepared):
    before = threading.active_count()
    for _ in range(5):
        rows = prepared._rows.read(np.arange(len(prepared._rows.units.first)), prefetch_blocks=3)
        next(rows)
        rows.close()
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.cluster
def test_natural_order_reads_each_block_once_a_pool_and_ray_has_nothing_to_say(
    prepared, dump, monkeypatch, caplog
):
    asked, dataset = [], store._dataset
    monkeypatch.setattr(store, "_dataset", lambda blocks: asked.append(len(blocks)) or dataset(blocks))
    logging.getLogger("ray.data").addHandler(caplog.handler)
    stamps = dump(prepared.stream("train", batch_size=16, shuffle=False))[3]
    logging.getLogger("ray.data").removeHandler(caplog.handler)
    assert len(stamps) == len(prepared.windows("train"))
    pools = len(stamps) // 250 + 2
    assert sum(asked) <= pools * len(prepared._rows.blocks)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]

"""Arrays beyond the private share lie in a nameless file, and hold what was put in."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from foxhunt_ray.data import scratch as module
from foxhunt_ray.data.scratch import Scratch
from foxhunt_ray.errors import DataError


def in_a_file(array: np.ndarray) -> bool:
    base = array.base
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return isinstance(base, mmap.mmap)


def test_small_arrays_are_private_and_later_ones_lie_in_a_file() -> None:
    scratch = Scratch(private_bytes=800)
    first, second = scratch.empty(100, np.float64), scratch.empty((5, 2), np.float32)
    assert (in_a_file(first), in_a_file(second)) == (False, True)
    assert (second.shape, second.dtype) == ((5, 2), np.float32)


def test_arrays_do_not_overlap_and_outlive_the_scratch() -> None:
    scratch = Scratch(private_bytes=0)
    kept = [scratch.keep(np.full(1000 + i, i, np.int32)) for i in range(50)]
    kept.append(scratch.keep(np.full(20_000_000, 7, np.int64)))  # larger than a segment
    del scratch
    assert all((array == i).all() for i, array in enumerate(kept[:-1]))
    assert (kept[-1] == 7).all()


def test_an_empty_array_is_an_array() -> None:
    assert Scratch(private_bytes=0).keep(np.empty((0, 3))).shape == (0, 3)


def test_released_pages_leave_the_process_and_keep_their_content() -> None:
    scratch = Scratch(private_bytes=0)
    array = scratch.keep(np.arange(8_000_000))
    scratch.release()
    smaps = Path("/proc/self/smaps").read_text()
    address = array.__array_interface__["data"][0]
    part = next(p for p in smaps.split("VmFlags") if f"{address:x}"[:-3] in p.split("-")[0])
    assert "Rss:                   0 kB" in part
    assert (array == np.arange(8_000_000)).all()


def test_the_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    array = Scratch(private_bytes=0).keep(np.ones(10))
    assert array.sum() == 10
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(DataError, match=r"no room for .* bytes .*No space left on device.*TMPDIR"):
        Scratch(private_bytes=0).empty(10, np.float64)

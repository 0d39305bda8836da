"""Where the rows of a run lie is decided by their size, and files stay as long as the run that uses them."""

from __future__ import annotations

import time

import numpy as np
import pytest
import ray
import torch

from foxhunt_ray.data.stream.cache import open_rows
from foxhunt_ray.data.stream.rows import FileRows
from foxhunt_ray.data.stream.store import StoredRows
from foxhunt_ray.errors import ConfigError

pytestmark = pytest.mark.cluster
WAIT_S = 60.0


@pytest.fixture(scope="module")
def in_files(small_ray, make_prepared, tmp_path_factory):
    """The market in mapped files, whatever its size; and their folder."""
    folder = tmp_path_factory.mktemp("cache")
    return make_prepared("loader.memory_frac=0", f"loader.cache_dir={folder}"), folder


def frac(prepared, share: float) -> str:
    """The ``loader.memory_frac`` that is ``share`` of what the rows take of the object store."""
    width = len(prepared.features) + len(prepared.target.mean)
    needed = 4 * width * int(prepared._rows.units.rows.sum())
    store = ray.nodes()[0]["Resources"]["object_store_memory"]
    return f"loader.memory_frac={share * needed / store:.12f}"


def test_rows_that_fit_into_their_share_of_the_object_store_lie_there(prepared, make_prepared, tmp_path):
    ready = make_prepared(frac(prepared, 1.01), f"loader.cache_dir={tmp_path}")
    assert isinstance(ready._rows, StoredRows) and not list(tmp_path.iterdir())


def test_larger_rows_lie_in_files_which_runs_on_the_same_data_share(prepared, in_files, make_prepared):
    ready, folder = in_files
    before = {file: file.stat().st_ino for file in folder.glob("rows-*/*")}
    again = make_prepared(frac(prepared, 0.99), f"loader.cache_dir={folder}", "seed=7")
    assert isinstance(ready._rows, FileRows) and isinstance(again._rows, FileRows)
    assert {file: file.stat().st_ino for file in folder.glob("rows-*/*")} == before and len(before) == 3


def test_a_task_that_holds_every_cpu_streams_from_files(in_files, dump):
    @ray.remote(num_cpus=2)
    def stamps(p):
        return torch.cat([b.ts_event for b in p.stream("train", batch_size=50, seed=4)])

    ready, _ = in_files
    inside = ray.get(stamps.remote(ready), timeout=WAIT_S)
    assert torch.equal(inside, dump(ready.stream("train", batch_size=50, seed=4))[3])


def test_files_of_a_run_stay_until_it_is_over_whatever_the_limit(small_ray, make_prepared, tmp_path):
    ready = make_prepared("loader.memory_frac=0", f"loader.cache_dir={tmp_path}", "target.horizon=3")
    (entry,) = tmp_path.glob("rows-*/")
    rows, width = ready._rows.entry.rows, ready._rows.entry.n_features

    def other():
        return open_rows(
            tmp_path,
            "f" * 32,
            rows=rows,
            n_features=width,
            n_targets=1,
            parts=lambda: [(np.zeros((rows, width), np.float32), np.zeros((rows, 1), np.float32))],
            limit_bytes=6 * rows * (width + 1),  # of one of them and a half
        )

    with pytest.raises(ConfigError, match="bytes in use by process"):
        other()
    assert len(list(ready.stream("train", batch_size=50))) > 5
    del ready
    deadline, found = time.monotonic() + WAIT_S, None
    while not found:  # the process that held them ends a little later
        try:
            found = other()
        except ConfigError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not entry.exists()


def test_a_cache_that_is_too_small_is_refused_in_one_sentence(small_ray, make_prepared, tmp_path):
    with pytest.raises(
        ConfigError, match=r"bytes of rows do not fit into 1,000; raise loader\.cache_size"
    ) as e:
        make_prepared("loader.memory_frac=0", f"loader.cache_dir={tmp_path}", "loader.cache_size=1KB")
    assert "\n" not in str(e.value) and not list(tmp_path.glob("rows-*/"))

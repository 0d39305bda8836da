"""Two real nodes with a cache each: the second one copies the rows once, and gives the same batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from foxhunt_ray.data.stream.rows import FileRows
from foxhunt_ray.data.stream.store import StoredRows

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
WAIT_S = 120.0
PASS = {"batch_size": 50, "seed": 4, "epoch": 1}


@pytest.fixture(scope="module")
def caches(tmp_path_factory) -> tuple[Path, Path]:
    """Cache folders of the first node and of the second, whose tasks alone have the variable that says so."""
    folder = tmp_path_factory.mktemp("caches")
    return folder / "first", folder / "second"


@pytest.fixture(scope="module")
def second(caches) -> Iterator[str]:
    """A cluster of two nodes with the driver on the first; the other one's id."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOXHUNT_CACHE", str(caches[0]))
        head = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        node = cluster.add_node(num_cpus=2, object_store_memory=80_000_000)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield node.node_id
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def streamed(second, caches):
    """streamed(prepared, meet, others): an epoch as a task on the second node sees it, the times that it
    copied the rows, and the inodes of its files. It begins once ``others`` files lie in ``meet``."""

    def task(ready, meet, others):
        copies, copied = [], FileRows._copied
        FileRows._copied = lambda rows: copies.append(rows) or copied(rows)
        (meet / ray.get_runtime_context().get_task_id()).touch()
        deadline = time.monotonic() + WAIT_S
        while len(list(meet.iterdir())) < others and time.monotonic() < deadline:
            time.sleep(0.001)
        try:
            got = [(b.features, b.targets, b.symbol, b.ts_event) for b in ready.stream("train", **PASS)]
        finally:
            FileRows._copied = copied
        files = {file.name: file.stat().st_ino for file in caches[1].glob("rows-*/*")}
        return [torch.cat(field) for field in zip(*got, strict=True)], len(copies), files

    return ray.remote(num_cpus=1)(task).options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(second, soft=False),
        runtime_env={"env_vars": {"FOXHUNT_CACHE": str(caches[1])}},
    )


@pytest.fixture(scope="module")
def in_files(second, make_prepared):
    return make_prepared("loader.memory_frac=0")


@pytest.fixture(scope="module")
def two_tasks(in_files, streamed, tmp_path_factory):
    """What two tasks that hold every CPU of the second node found when both asked at the same time."""
    meet = tmp_path_factory.mktemp("meet")
    return ray.get([streamed.remote(in_files, meet, 2) for _ in range(2)], timeout=WAIT_S)


def test_an_epoch_of_the_second_node_is_bitwise_that_of_the_driver(in_files, two_tasks, dump):
    want = dump(in_files.stream("train", **PASS))
    assert len(want[0]) > 500
    for got, _, _ in two_tasks:
        assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))


def test_the_second_node_copies_the_rows_once(in_files, two_tasks, streamed, caches, tmp_path):
    later = ray.get(streamed.remote(in_files, tmp_path, 1), timeout=WAIT_S)
    found = [*two_tasks, later]
    assert sorted(copies for _, copies, _ in two_tasks) == [0, 1] and later[1] == 0
    assert all(files == found[0][2] for _, _, files in found) and len(found[0][2]) == 3
    (here,), (there,) = (list(folder.glob("rows-*/")) for folder in caches)
    assert here.name == there.name
    for file in ("features.f32", "targets.f32"):
        assert (here / file).read_bytes() == (there / file).read_bytes()


def test_rows_in_the_object_store_give_the_second_node_the_same_batches(
    in_files, streamed, make_prepared, two_tasks, tmp_path
):
    ready = make_prepared()
    assert isinstance(ready._rows, StoredRows)
    got, copies, _ = ray.get(streamed.remote(ready, tmp_path, 1), timeout=WAIT_S)
    assert copies == 0 and all(torch.equal(a, b) for a, b in zip(two_tasks[0][0], got, strict=True))


def test_the_smaller_object_store_decides_where_rows_lie(in_files, make_prepared):
    width = len(in_files.features) + len(in_files.target.mean)
    needed = 4 * width * int(in_files._rows.units.rows.sum())
    sizes = sorted(node["Resources"]["object_store_memory"] for node in ray.nodes())
    between = needed / sizes[0] * 0.95
    assert needed < between * sizes[1]  # it would fit into the larger one's share
    assert isinstance(make_prepared(f"loader.memory_frac={between:.12f}")._rows, FileRows)

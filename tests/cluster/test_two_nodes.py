"""A cluster of two uneven nodes on this machine: capacity and shared storage as Ray reports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foxhunt_ray.cluster import TrialResources, check_storage, storage, trial_resources
from foxhunt_ray.config import Config, load_config
from foxhunt_ray.errors import ClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
_NODE = {"include_dashboard": False, "object_store_memory": 100_000_000}


@pytest.fixture(scope="module", autouse=True)
def two_nodes() -> Iterator[None]:
    """Two CPUs on the head; one CPU and two GPUs (counted, not real) beside it."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, **_NODE})
    cluster.add_node(num_cpus=1, num_gpus=2, **_NODE)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    cluster.shutdown()


def _config(**cluster: object) -> Config:
    return load_config(overrides={f"cluster.{key}": value for key, value in cluster.items()})


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"gpus_per_trial": 0}, TrialResources(1, 0, 0, 3)),
        ({"gpus_per_trial": 0, "cpus_per_trial": 2}, TrialResources(2, 0, 0, 1)),
        ({"gpus_per_trial": 0.5}, TrialResources(1, 0.5, 0, 1)),
        ({"gpus_per_trial": "auto"}, TrialResources(1, 1, 0, 1)),
        ({"gpus_per_trial": 0, "memory_per_trial": "1MB"}, TrialResources(1, 0, 10**6, 3)),
    ],
)
def test_a_trial_fits_as_often_as_the_nodes_hold_it(
    asked: dict[str, object], expected: TrialResources
) -> None:
    assert trial_resources(_config(**asked)) == expected


def test_no_more_trials_at_once_than_asked_or_than_there_are() -> None:
    few = load_config(overrides={"cluster.gpus_per_trial": 0, "search.trials": 2})
    one = load_config(overrides={"cluster.gpus_per_trial": 0, "search.concurrent": 1})

    assert [trial_resources(config).concurrent for config in (few, one)] == [2, 1]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"gpus_per_trial": 4},
            "asks 1 CPU, 4 GPU; (?=.* has 2 CPU, 0 GPU)(?=.* has 1 CPU, 2 GPU).*add a GPU node",
        ),
        ({"cpus_per_trial": 2, "gpus_per_trial": 1}, "asks 2 CPU, 1 GPU; no node holds that"),
        ({"cpus_per_trial": 3, "gpus_per_trial": 0}, "asks 3 CPU, 0 GPU.*smaller cluster.cpus_per_trial"),
    ],
)
def test_share_that_no_single_node_holds_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        trial_resources(_config(**asked))


def test_folder_that_all_nodes_see_passes_and_is_left_clean(tmp_path: Path) -> None:
    check_storage(tmp_path / "runs")

    assert list((tmp_path / "runs").iterdir()) == []


def test_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ClusterError, match=r"file/runs: cannot be written \(Not a directory\)"):
        check_storage(tmp_path / "file" / "runs")


def test_folder_that_a_node_does_not_see_is_refused_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda self, text: write(self.with_name("elsewhere"), text))

    with pytest.raises(ClusterError, match=r"node [\d.]+ does not share it \(No such file or directory\)"):
        check_storage(tmp_path)


def test_node_that_lacks_this_program_is_refused_with_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> str:
        raise ModuleNotFoundError("No module named 'foxhunt_ray'")

    monkeypatch.setattr(storage, "_answer", lacking)

    with pytest.raises(ClusterError, match=r"node [\d.]+ could not run this program"):
        check_storage(tmp_path)

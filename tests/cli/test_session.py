"""What a run asks of the place where its trials run, on a Ray whose GPUs are counted and not there."""

from __future__ import annotations

import pytest
import ray
import torch

from foxhunt_ray import trial
from foxhunt_ray.cli.session import _where_trials_run
from foxhunt_ray.cluster import TrialResources
from foxhunt_ray.errors import ClusterError, SearchError

pytestmark = pytest.mark.cluster
ONE_GPU = TrialResources(cpus=1, gpus=1.0, memory_bytes=0, concurrent=1)


@pytest.fixture(scope="module", autouse=True)
def counted_gpus():
    ray.init(
        address="local",
        num_cpus=1,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


def shown_gpus():
    return ray.get_gpu_ids()


def broken():
    raise OSError("the disk is gone\nand more")


def test_it_runs_with_the_gpu_of_a_trial():
    assert len(_where_trials_run(shown_gpus, ONE_GPU)) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_a_gpu_that_ray_counts_and_torch_does_not_see_is_refused_before_any_trial():
    with pytest.raises(
        ClusterError, match=r"^the trial was given 1 GPU, but torch .* sees none; install a CUDA"
    ):
        _where_trials_run(trial.pick_device, ONE_GPU, ONE_GPU.gpus)


def test_an_error_of_another_kind_arrives_in_one_line():
    with pytest.raises(SearchError, match=r"^broken failed on the cluster: OSError: the disk is gone$"):
        _where_trials_run(broken, ONE_GPU)

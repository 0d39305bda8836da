"""The cluster files: Ray's own schema check, and what that check lets pass."""

from __future__ import annotations

import copy
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from foxhunt_ray.config import load_config, preset_names

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "clusters").glob("*.yaml"))
LAUNCHED = [p for p in FILES if p.stem != "kuberay"]
# Ray passes these tables on unread, so a typo in them is found by the cloud, after the start.
PROVIDER_KEYS = {
    "local": {"type", "head_ip", "worker_ips"},
    "aws": {"type", "region", "availability_zone", "cache_stopped_nodes"},
}
NODE_KEYS = {"InstanceType", "ImageId"}


def load(path: Path):
    return yaml.safe_load(path.read_text())


def text(path: Path) -> str:
    return path.read_text()


def kuberay():
    return load(ROOT / "clusters" / "kuberay.yaml")


def containers(spec):
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [c for g in groups for c in g["template"]["spec"]["containers"]]


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda p: p.stem)
def test_ray_accepts_the_file_and_refuses_a_typo(path):
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(load(path)))
    with pytest.raises(Exception, match="max_workerss"):
        validate_config(prepare_config(load(path) | {"max_workerss": 3}))


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda p: p.stem)
def test_what_ray_passes_on_unread_has_known_keys_and_sane_counts(path):
    found = load(path)
    assert set(found["provider"]) <= PROVIDER_KEYS[found["provider"]["type"]]
    for kind in found.get("available_node_types", {}).values():
        assert set(kind["node_config"]) <= NODE_KEYS
        assert 0 <= kind.get("min_workers", 0) <= kind["max_workers"] <= found["max_workers"]


@pytest.mark.parametrize("path", LAUNCHED, ids=lambda p: p.stem)
def test_every_node_starts_with_the_token_and_the_head_scales(path):
    found = load(path)
    starts = [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in found[key]
        if "ray start" in line
    ]
    assert len(starts) == 2 and all("RAY_AUTH_MODE=token ray start" in line for line in starts)
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in starts[0]
    assert "~/.ray/auth_token" in found["file_mounts"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_nothing_is_opened_to_other_machines_and_runs_are_kept_on_shared_storage(path):
    assert not re.search(r"0\.0\.0\.0|NodePort|LoadBalancer|dashboard-host|dashboard_host", text(path))
    assert re.search(r"--out (RUNS|/mnt/foxhunt)/runs", text(path))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_header_says_what_a_newcomer_needs_and_names_what_exists(path):
    header = "".join(line for line in text(path).splitlines(keepends=True) if line.startswith("#"))
    assert all(
        re.search(rf"^#   {word}\b", header, re.MULTILINE) for word in ("gives", "preset", "start", "stop")
    )
    assert "submit" in header
    named = set(re.findall(r"--config (\w+)", text(path)))
    assert named and named <= set(preset_names())
    for script in re.findall(r"python (scripts/\S+)", text(path)):
        assert (ROOT / script).is_file()


def test_the_kuberay_image_is_the_ray_and_python_that_are_tested():
    spec = kuberay()["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == version("ray")
    assert f"ray=={version('ray')}" in (ROOT / "constraints.txt").read_text().splitlines()
    images = {c["image"] for c in containers(spec)}
    assert images == {f"rayproject/ray:{version('ray')}-py311-gpu"}
    assert ">=3.11" in (ROOT / "pyproject.toml").read_text()


def test_the_kuberay_job_has_no_key_that_the_server_would_drop():
    job = kuberay()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) == {
        "entrypoint",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "rayClusterSpec",
    }
    spec = job["spec"]["rayClusterSpec"]
    assert set(spec) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert spec["authOptions"] == {"mode": "token"}
    (group,) = spec["workerGroupSpecs"]
    assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    assert 0 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}


def test_the_kuberay_workers_hold_what_the_preset_asks_of_one_node():
    config = load_config("cluster")
    worker = containers(kuberay()["spec"]["rayClusterSpec"])[-1]["resources"]["limits"]
    assert float(worker["nvidia.com/gpu"]) >= config.cluster.gpus_per_trial
    assert float(worker["cpu"]) >= config.cluster.cpus_per_trial
    node = load(ROOT / "clusters" / "aws_gpu.yaml")["available_node_types"]["gpu"]["resources"]
    assert node["GPU"] >= config.cluster.gpus_per_trial and node["CPU"] >= config.cluster.cpus_per_trial


def test_the_checks_here_see_a_typo_that_ray_does_not():
    found = copy.deepcopy(load(ROOT / "clusters" / "aws_gpu.yaml"))
    found["available_node_types"]["gpu"]["node_config"]["InstnceType"] = "g5.xlarge"
    assert not set(found["available_node_types"]["gpu"]["node_config"]) <= NODE_KEYS

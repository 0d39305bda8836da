"""One folder, asked of every node: does it see the same files?

Ray notices a folder that is not shared only at the first checkpoint from another node, after the training
is paid for.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from foxhunt_ray.cluster.nodes import alive_nodes, first_line
from foxhunt_ray.errors import ClusterError

_ANSWER_S = 60.0


def check_storage(folder: Path) -> None:
    """Write a file into ``folder`` and have every node read it and answer with one of its own.

    With a single node there is nothing to ask.

    Raises:
        ClusterError: a node does not see the folder, cannot write to it, or cannot run this program.
    """
    nodes = alive_nodes()
    if len(nodes) < 2:
        return
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text(probe.name)
        _ask({node["NodeID"]: node["NodeManagerAddress"] for node in nodes}, probe)
    except OSError as err:
        raise ClusterError(f"{folder}: cannot be written ({err.strerror}); give another --out") from err
    finally:
        for left in folder.glob(f"{probe.name}*"):
            left.unlink(missing_ok=True)


def _ask(nodes: dict[str, str], probe: Path) -> None:
    """Run ``_answer`` on each of ``nodes`` (address by id), all at once, and judge what came back."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(_answer)
    answers = {}
    for node_id in nodes:
        here = NodeAffinitySchedulingStrategy(node_id, soft=False)
        answers[node_id] = task.options(scheduling_strategy=here).remote(probe, node_id)
    for node_id, address in nodes.items():
        try:
            problem = ray.get(answers[node_id], timeout=_ANSWER_S)
        except ray.exceptions.RayError as err:
            raise ClusterError(
                f"node {address} could not run this program ({first_line(err)}); install the same version "
                "there, or submit with `ray job submit --working-dir .`"
            ) from err
        if not problem and not _answer_file(probe, node_id).is_file():
            problem = "its file did not arrive here"
        if problem:
            raise ClusterError(
                f"{probe.parent}: node {address} does not share it ({problem}); "
                "give --out a folder that all nodes mount"
            )


def _answer(probe: Path, node_id: str) -> str:
    """What keeps this node from sharing the folder, or nothing; runs on the node."""
    try:
        if probe.read_text() != probe.name:
            return "it holds other files"
        _answer_file(probe, node_id).write_text(node_id)
    except OSError as err:
        return err.strerror or str(err)
    return ""


def _answer_file(probe: Path, node_id: str) -> Path:
    return probe.with_name(f"{probe.name}-{node_id}")

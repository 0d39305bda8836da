"""What one trial asks, matched with what each node holds: a share must fit within one node.

Every core may go to trials, because a trial starts no Ray task of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from foxhunt_ray.cluster.nodes import alive_nodes
from foxhunt_ray.config import Config, parse_bytes
from foxhunt_ray.errors import ClusterError

_SHOWN_NODES = 8


@dataclass(frozen=True)
class TrialResources:
    """What one trial may use, and how many run at once."""

    cpus: int
    gpus: float
    memory_bytes: int
    concurrent: int


@dataclass(frozen=True)
class _Node:
    """What a node holds, or what each of ``count`` nodes will hold that an autoscaler may add."""

    name: str
    cpus: float
    gpus: float
    memory_bytes: float
    count: int = 1


def trial_resources(config: Config) -> TrialResources:
    """The share of one trial, and how many such shares the cluster holds at once.

    Nodes that an autoscaler may add count as present; such a cluster is recognised by the file that
    ``ray up`` leaves on its head.

    Raises:
        ClusterError: no single node holds what one trial asks.
    """
    present = [_present(node) for node in alive_nodes()]
    later = _addable(Path.home() / "ray_bootstrap_config.yaml")
    gpus = config.cluster.gpus_per_trial
    if gpus == "auto":
        gpus = float(any(node.gpus >= 1 for node in (*present, *later)))
    memory = config.cluster.memory_per_trial
    share = TrialResources(config.cluster.cpus_per_trial, gpus, parse_bytes(memory) if memory else 0, 0)
    slots = max(_slots(present, share), _slots(later, share))
    if not slots:
        raise ClusterError(_refusal(share, [*present, *later]))
    concurrent = min(slots, config.search.trials, config.search.concurrent or slots)
    return TrialResources(share.cpus, share.gpus, share.memory_bytes, concurrent)


def _present(node: Mapping[str, Any]) -> _Node:
    held = node["Resources"]
    name = node["NodeManagerAddress"]
    return _Node(name, held.get("CPU", 0.0), held.get("GPU", 0.0), held.get("memory", 0.0))


def _addable(bootstrap: Path) -> list[_Node]:
    """The node types of an autoscaling cluster, head included, at their largest count; none elsewhere."""
    if not bootstrap.is_file():
        return []
    import yaml  # type: ignore[import-untyped]  # a dependency of Ray's

    plan = yaml.safe_load(bootstrap.read_text(encoding="utf-8"))
    found = []
    for name, kind in plan.get("available_node_types", {}).items():
        held = kind.get("resources", {})
        most = kind.get("max_workers", plan.get("max_workers", 0))
        count = 1 if name == plan.get("head_node_type") else most
        memory = held.get("memory", inf)  # filled in once such a machine exists
        found.append(_Node(f"type {name}", held.get("CPU", 0), held.get("GPU", 0), memory, count))
    return found


def _slots(nodes: Sequence[_Node], share: TrialResources) -> int:
    """Trials that fit at once, each within one node, and a fraction of a GPU within one GPU."""
    total = 0
    for node in nodes:
        fits = [node.cpus // share.cpus]
        if 0 < share.gpus < 1:
            fits.append(int(node.gpus) * int(1 / share.gpus + 1e-9))
        elif share.gpus:
            fits.append(node.gpus // share.gpus)
        if share.memory_bytes:
            fits.append(node.memory_bytes / share.memory_bytes)
        total += int(min(fits)) * node.count
    return total


def _refusal(share: TrialResources, nodes: Sequence[_Node]) -> str:
    """What was asked, what each node has, and what to do."""
    memory = share.memory_bytes > 0
    shown = [f"{n.name} has {_amount(n.cpus, n.gpus, n.memory_bytes if memory else 0)}" for n in nodes]
    if len(shown) > _SHOWN_NODES:
        shown[_SHOWN_NODES:] = [f"and {len(shown) - _SHOWN_NODES} more"]
    if share.gpus > max((node.gpus for node in nodes), default=0):
        cure = "set cluster.gpus_per_trial = 0 or add a GPU node"
    elif share.cpus > max((node.cpus for node in nodes), default=0):
        cure = "set a smaller cluster.cpus_per_trial or add a larger node"
    else:
        cure = "ask for less of what one node lacks, or add a larger node"
    asked = _amount(share.cpus, share.gpus, share.memory_bytes)
    return f"each trial asks {asked}; no node holds that: {'; '.join(shown)}; {cure}"


def _amount(cpus: float, gpus: float, memory_bytes: float) -> str:
    memory = f", {memory_bytes / 1e9:.1f} GB memory" if memory_bytes else ""
    return f"{cpus:g} CPU, {gpus:g} GPU{memory}"

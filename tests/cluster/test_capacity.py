"""Shares of a trial against nodes, without a Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_ray.cluster.capacity import TrialResources, _addable, _Node, _refusal, _slots


def _share(cpus: int = 1, gpus: float = 0.0, memory_bytes: int = 0) -> TrialResources:
    return TrialResources(cpus=cpus, gpus=gpus, memory_bytes=memory_bytes, concurrent=0)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (_share(cpus=1), 11),
        (_share(cpus=2), 5),  # 3 + 2 + 0: what is left over on two nodes does not add up
        (_share(cpus=5), 1),
        (_share(cpus=7), 0),
        (_share(gpus=1), 2),
        (_share(gpus=2), 1),
        (_share(gpus=0.4), 4),  # two to a GPU: a trial does not straddle two
        (_share(gpus=0.3), 4),  # the node has GPUs for six, CPUs for four
        (_share(memory_bytes=5 * 10**9), 4),
    ],
)
def test_slots_are_counted_node_by_node(share: TrialResources, expected: int) -> None:
    nodes = [_Node("a", 6, 0, 16e9), _Node("b", 4, 2, 8e9), _Node("c", 1, 0, 4e9)]

    assert _slots(nodes, share) == expected


def test_refusal_names_the_asked_the_present_and_the_cure() -> None:
    text = _refusal(_share(gpus=1), [_Node("10.0.0.1", 2, 0, 8e9)])

    assert text == (
        "each trial asks 1 CPU, 1 GPU; no node holds that: 10.0.0.1 has 2 CPU, 0 GPU; "
        "set cluster.gpus_per_trial = 0 or add a GPU node"
    )


def test_refusal_shows_memory_where_memory_was_asked() -> None:
    text = _refusal(_share(memory_bytes=20 * 10**9), [_Node("10.0.0.1", 2, 0, 8e9)])

    assert "asks 1 CPU, 0 GPU, 20.0 GB memory" in text
    assert "10.0.0.1 has 2 CPU, 0 GPU, 8.0 GB memory" in text


def test_refusal_stays_short_on_many_nodes() -> None:
    text = _refusal(_share(cpus=64), [_Node(f"n{i}", 2, 0, 8e9) for i in range(100)])

    assert "and 92 more" in text
    assert text.count(" has ") == 8


def test_node_types_of_an_autoscaler_count_at_their_largest_number(tmp_path: Path) -> None:
    bootstrap = tmp_path / "ray_bootstrap_config.yaml"
    bootstrap.write_text(
        "max_workers: 3\nhead_node_type: head\navailable_node_types:\n"
        "  head: {resources: {CPU: 0}}\n  gpu: {resources: {CPU: 8, GPU: 1}, max_workers: 3}\n"
    )

    nodes = _addable(bootstrap)

    assert [(node.name, node.gpus, node.count) for node in nodes] == [("type head", 0, 1), ("type gpu", 1, 3)]
    assert _slots(nodes, _share(gpus=1, memory_bytes=10**9)) == 3


def test_without_an_autoscaler_only_what_is_there_counts(tmp_path: Path) -> None:
    assert _addable(tmp_path / "ray_bootstrap_config.yaml") == []

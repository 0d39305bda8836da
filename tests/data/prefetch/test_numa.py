"""Where the loader's thread goes, decided on trees that look like the sysfs of machines that are not here."""

from __future__ import annotations

import logging
import os
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.prefetch.numa import device_cpus, parse_cpus, pci_address, place_thread

GPU = "0000:17:00.0"
EVERY = range(256)


@pytest.fixture
def machine(tmp_path):
    """Writes a tree: CPU lists by node, and the node of the GPU."""

    def build(nodes, node):
        for number, cpus in nodes.items():
            folder = tmp_path / "devices" / "system" / "node" / f"node{number}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{cpus}\n")
        gpu = tmp_path / "bus" / "pci" / "devices" / GPU
        gpu.mkdir(parents=True)
        (gpu / "numa_node").write_text(f"{node}\n")
        return tmp_path

    return build


def test_the_address_is_that_of_sysfs():
    assert pci_address(0, 0x17, 0) == GPU
    assert pci_address(0x10002, 0xAB, 0x1F) == "10002:ab:1f.0"


@pytest.mark.parametrize(
    ("nodes", "node", "allowed", "found"),
    [
        ({0: "0-3", 1: "4-7"}, 1, EVERY, {4, 5, 6, 7}),
        ({0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"}, 2, EVERY, {4, 5, 12, 13}),
        ({0: "0-3", 1: "4-7"}, 0, {2, 3, 4}, {2, 3}),
        ({0: "0-3", 1: "4-7", 2: ""}, 0, EVERY, {0, 1, 2, 3}),
    ],
)
def test_cpus_are_those_of_the_node_that_may_be_used(machine, nodes, node, allowed, found):
    cpus, why = device_cpus(GPU, allowed=allowed, sysfs=machine(nodes, node))
    assert cpus == found and f"{len(found)} CPUs of its node {node}" in why


@pytest.mark.parametrize(
    ("nodes", "node", "allowed", "why"),
    [
        ({0: "0-7"}, 0, EVERY, "all CPUs are of one node"),
        ({0: "0-7", 1: ""}, 0, EVERY, "all CPUs are of one node"),
        ({0: "0-3", 1: "4-7"}, -1, EVERY, r"its node is not known \(-1\)"),
        ({0: "0-3", 1: "4-7"}, 1, {0, 1}, "none of the 4 CPUs of its node 1 may be used"),
        ({0: "0-3", 1: "4-7", 2: ""}, 2, EVERY, "none of the 0 CPUs of its node 2"),
        ({0: "0-3", 1: "four"}, 1, EVERY, "does not tell its node"),
        ({0: "0-3", 1: "4-7"}, "?", EVERY, "does not tell its node"),
    ],
)
def test_without_a_choice_the_thread_stays_and_the_reason_is_told(machine, nodes, node, allowed, why):
    cpus, told = device_cpus(GPU, allowed=allowed, sysfs=machine(nodes, node))
    assert not cpus
    assert re.search(why, told)


def test_a_device_or_a_system_that_is_not_there_is_no_error(tmp_path):
    assert not device_cpus(GPU, allowed=EVERY, sysfs=tmp_path)[0]
    assert "left where it is" in place_thread(GPU, sysfs=tmp_path)


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_back(cpus):
    ordered = sorted(cpus)
    runs = [[c, c] for c in ordered if c - 1 not in cpus]
    for run in runs:
        while run[1] + 1 in cpus:
            run[1] += 1
    text = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    assert parse_cpus(text + "\n") == cpus


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity of threads on this system")
def test_the_calling_thread_moves_and_no_other(machine, caplog):
    here = sorted(os.sched_getaffinity(0))
    if len(here) < 2:
        pytest.skip("one CPU only: there is nowhere to move to")
    tree = machine({0: f"{here[0]}", 1: ",".join(map(str, here[1:]))}, 0)
    found = []

    def move():
        place_thread(GPU, sysfs=tree)
        found.append(os.sched_getaffinity(0))

    with caplog.at_level(logging.DEBUG, logger="foxhunt_ray.data.prefetch.numa"):
        thread = threading.Thread(target=move)
        thread.start()
        thread.join()
    assert found == [{here[0]}] and sorted(os.sched_getaffinity(0)) == here
    assert "placed on 0000:17:00.0: 1 CPUs of its node 0" in caplog.text


def test_staying_is_told_at_debug_level(machine, caplog):
    with caplog.at_level(logging.DEBUG, logger="foxhunt_ray.data.prefetch.numa"):
        place_thread(GPU, sysfs=machine({0: "0-7"}, 0))
    assert [r.levelname for r in caplog.records] == ["DEBUG"] and "all CPUs are of one node" in caplog.text

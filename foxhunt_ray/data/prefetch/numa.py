"""The thread that prepares batches, on the processor that its GPU is attached to.

On a machine with several sockets memory of another socket is slower, and so are copies out of it. Linux
places a page on the node of the thread that first touches it, so to move the thread is enough: what it pins
and fills from then on is local.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

_LOG = logging.getLogger(__name__)
_SYSFS = Path("/sys")


def pci_address(domain: int, bus: int, device: int) -> str:
    """The name that sysfs has for a device, such as "0000:17:00.0"."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def device_cpus(
    address: str, *, allowed: Collection[int], sysfs: Path = _SYSFS
) -> tuple[frozenset[int], str]:
    """CPUs beside a device; empty = leave the thread where it is. And a sentence that says why.

    Args:
        address: of the device, as ``pci_address`` gives it.
        allowed: CPUs that this thread may use.
        sysfs: where the system describes itself.
    """
    try:
        node = int((sysfs / "bus" / "pci" / "devices" / address / "numa_node").read_text())
        nodes = {
            int(folder.name.removeprefix("node")): parse_cpus((folder / "cpulist").read_text())
            for folder in (sysfs / "devices" / "system" / "node").glob("node[0-9]*")
        }
    except (OSError, ValueError) as err:
        return frozenset(), f"{address}: the system does not tell its node ({err})"
    if sum(map(bool, nodes.values())) < 2:
        return frozenset(), f"{address}: all CPUs are of one node"
    if node not in nodes:
        return frozenset(), f"{address}: its node is not known ({node})"
    found = nodes[node] & frozenset(allowed)
    if not found:
        return found, f"{address}: none of the {len(nodes[node])} CPUs of its node {node} may be used"
    return found, f"{address}: {len(found)} CPUs of its node {node}"


def place_thread(address: str, *, sysfs: Path = _SYSFS) -> str:
    """Keep the calling thread on the CPUs beside a device, where there is a choice; what was done, and why.

    Affinity is a thread's own on Linux. Whatever this machine is like, nothing is raised: a thread elsewhere
    is slower and no more.
    """
    if not hasattr(os, "sched_setaffinity"):
        return _said("this system has no affinity of threads")
    cpus, why = device_cpus(address, allowed=os.sched_getaffinity(0), sysfs=sysfs)
    if not cpus:
        return _said(f"left where it is: {why}")
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as err:
        return _said(f"left where it is: {why}, which the system refuses ({err.strerror})")
    return _said(f"placed on {why}")


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs in a list such as "0-3,8".

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _said(text: str) -> str:
    _LOG.debug("the loader's thread is %s", text)
    return text

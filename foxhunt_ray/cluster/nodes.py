"""The nodes that Ray has, and Ray's long errors in one line."""

from __future__ import annotations

from typing import Any


def alive_nodes() -> list[dict[str, Any]]:
    """Ray's account of each node that is up: ``NodeID``, ``NodeManagerAddress``, ``Resources``."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def first_line(err: BaseException) -> str:
    """The first line of an error that has text, else the name of its type."""
    return next((line.strip() for line in str(err).splitlines() if line.strip()), type(err).__name__)

"""The append-only event log of a run, and the fold that turns it into state.

``events.jsonl`` holds one JSON object a line, each written whole and fsynced by the one process that drives
the run. A resume, ``results.json`` and the live view are all folded from it, so they cannot disagree. A torn
last line (the machine died while writing) is dropped; a damaged line before it is refused.

    kind           fields beside "t" (UTC seconds) and "kind"
    run_started    name, config {section tree}, seed, metric, mode, data, baselines, resources, versions
    run_resumed    config
    trial_started  trial, values {dotted path: value}, device
    trial_resumed  trial
    report         trial, step, report, metrics {key: number}, tier
    trial_ended    trial, state, reason
    winner         trial, metrics
    run_ended      status
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foxhunt_ray.errors import CheckpointError

ENDED = ("finished", "stopped", "failed", "interrupted")


@dataclass
class TrialState:
    """What the log says of one trial; ``state`` is "running" or one of ``ENDED``."""

    id: str
    values: dict[str, Any]
    device: str = ""
    state: str = "running"
    reason: str = ""
    reports: list[dict[str, Any]] = field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def step(self) -> int:
        """Optimiser steps at the last report."""
        return int(self.reports[-1]["step"]) if self.reports else 0

    def best(self, metric: str, mode: str) -> dict[str, Any] | None:
        """The report with the best finite value of ``metric``, the first of equals; None if there is none."""
        scored = [r for r in self.reports if r["metrics"].get(metric) is not None]
        sign = -1 if mode == "max" else 1
        return min(scored, key=lambda r: sign * r["metrics"][metric], default=None)

    @property
    def tier(self) -> str:
        """Where the trial's windows are gathered, as its last report says; empty if it does not."""
        return str(self.reports[-1].get("tier", "")) if self.reports else ""

    @property
    def last_metrics(self) -> dict[str, Any]:
        """Metrics of the last report."""
        return dict(self.reports[-1]["metrics"]) if self.reports else {}


@dataclass
class RunState:
    """The fold of a log: everything that a view or a resume needs."""

    info: dict[str, Any] = field(default_factory=dict)
    trials: dict[str, TrialState] = field(default_factory=dict)
    winner: dict[str, Any] | None = None
    status: str = "running"
    started: float = 0.0
    updated: float = 0.0

    def apply(self, event: dict[str, Any]) -> None:
        """Advance by one event; kinds that are not known are left alone, so that old code reads new logs."""
        kind = event["kind"]
        self.updated = event["t"]
        if kind == "run_started":
            self.info, self.started = event, event["t"]
        elif kind == "run_resumed":
            self.status, self.winner = "running", None
            self.info = {**self.info, "config": event["config"]}
        elif kind == "trial_started":
            self.trials[event["trial"]] = TrialState(
                event["trial"], event["values"], event.get("device", ""), started=event["t"]
            )
        elif kind == "trial_resumed":
            self.trials[event["trial"]].state = "running"
        elif kind == "report":
            self.trials[event["trial"]].reports.append(event)
        elif kind == "trial_ended":
            trial = self.trials[event["trial"]]
            trial.state, trial.reason, trial.ended = event["state"], event["reason"], event["t"]
        elif kind == "winner":
            self.winner = event
        elif kind == "run_ended":
            self.status = event["status"]


class EventLog:
    """The one writer of a run's log; keeps the fold current and hands each event to ``listeners``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = fold(path) if path.exists() else RunState()
        self.listeners: list[Callable[[dict[str, Any], RunState], None]] = []
        _drop_torn_line(path)
        self._file = path.open("a", encoding="utf-8")

    def append(self, kind: str, **fields: Any) -> None:
        """Write one event durably, then apply it. Numbers that are not finite are stored as null.

        Raises:
            CheckpointError: the storage is full or gone.
        """
        event = {"t": time.time(), "kind": kind, **_finite(fields)}
        try:
            self._file.write(json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as err:
            raise CheckpointError(
                f"{self.path}: cannot be written ({err.strerror}); free the storage, then use --resume"
            ) from err
        self.state.apply(event)
        for listener in self.listeners:
            listener(event, self.state)

    def close(self) -> None:
        """Close the file; the log can be opened again."""
        with suppress(OSError):  # what could not be written, ``append`` has told
            self._file.close()


def fold(path: Path) -> RunState:
    """The state that the log at ``path`` describes.

    Raises:
        CheckpointError: the file cannot be read, or a line other than the last is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read ({err.strerror})") from err
    state = RunState()
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is torn or empty
        try:
            state.apply(json.loads(line))
        except (
            ValueError,
            KeyError,
            TypeError,
        ) as err:  # not JSON or UTF-8; not an event; of an unknown trial
            raise CheckpointError(
                f"{path}: line {number} is damaged; restore the file from a backup or start a new run"
            ) from err
    return state


def _drop_torn_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes()
        keep = whole.rfind(b"\n") + 1
        if keep < len(whole):
            os.truncate(path, keep)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

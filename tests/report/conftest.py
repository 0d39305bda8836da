"""A run as its event log would tell it, at a clock of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.events import RunState

Event = dict[str, Any]
Make = Callable[..., list[Event]]


def run_events(
    scores: Sequence[float | None],
    *,
    trials: int | None = None,
    name: str = "fx",
    symbols: Sequence[str] = ("EURUSD", "GBPUSD"),
    baselines: Mapping[str, Any] | None = None,
    reason: str = "loss is not finite",
    ceilings: Mapping[str, float] | None = None,
) -> list[Event]:
    """Events of trials run one after the other, 10 s each, two reports a trial; a score of None fails."""
    total = max(1, len(scores)) if trials is None else trials
    config = load_config(None, {"search.trials": total}).model_dump(mode="json", by_alias=True)
    data: dict[str, Any] = {
        "files": 2,
        "symbols": list(symbols),
        "rows": 90_000,
        "windows": {"train": 31204, "val": 6687, "test": 6701},
        "splits": {
            "train": {"start": "2019-01-01T00:00:00Z", "end": "2023-01-01T00:00:00Z"},
            "val": {"start": "2023-01-01T00:00:00Z", "end": "2024-01-01T00:00:00Z"},
            "test": {"start": "2024-01-01T00:00:00Z", "end": "2024-12-31T23:00:00Z"},
        },
        "dropped": {},
    }
    start: Event = {
        "t": 1_000.0,
        "kind": "run_started",
        "name": name,
        "config": config,
        "seed": 0,
        "metric": "val/skill",
        "mode": "max",
        "data": data | ({"ceilings": dict(ceilings)} if ceilings else {}),
        "baselines": dict(
            baselines if baselines is not None else {"ridge": _scores(0.35), "zero": _scores(0)}
        ),
        "resources": {"cpus": 2, "gpus": 0, "concurrent": 1},
        "versions": {"python": "3.11"},
    }
    return [start, *(event for i, s in enumerate(scores) for event in _trial(i, s, reason))]


def _scores(skill: float) -> dict[str, float]:
    return {"val/skill": skill, "val_full/skill": skill - 0.01, "test/skill": skill - 0.02}


def _trial(index: int, score: float | None, reason: str) -> list[Event]:
    trial, t = f"t{index:04d}", 1_000.0 + 10 * index
    values = {"optimizer.lr": 2.1e-3, "model.d_model": 64, "model.n_layer": 2, "model.dropout": 0.125}
    skill = {"val/skill": score, "data/wait_frac": 0.004, "data/wait_s": 0.5}
    full = {"val_full/skill": score - 0.01} if score is not None else {}
    ended = {"state": "failed", "reason": reason} if score is None else {"state": "finished", "reason": ""}
    events = [
        {"kind": "trial_started", "trial": trial, "values": values, "device": "cpu"},
        {"kind": "report", "trial": trial, "step": 20, "report": 1, "metrics": {**skill, "val/skill": 0.0}},
        {"kind": "report", "trial": trial, "step": 40, "report": 2, "metrics": skill | full},
        {"kind": "trial_ended", "trial": trial, **ended},
    ]
    return [{"t": t + 3 * i, **e} for i, e in enumerate(events)]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test says of the terminal holds, whatever the shell that runs the tests says."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def events() -> Make:
    """Builds the events of a run from its trials' scores."""
    return run_events


@pytest.fixture
def folded() -> Callable[..., RunState]:
    """Builds the state of a run from its trials' scores."""

    def fold_all(*args: Any, **kwargs: Any) -> RunState:
        state = RunState()
        for event in run_events(*args, **kwargs):
            state.apply(event)
        return state

    return fold_all

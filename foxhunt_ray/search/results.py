"""The fold of a run's log -> results.json, trials.parquet and best/.

Nothing here is remembered between calls: both files are written anew from the state, so they cannot drift
from the log. A run or trial that has not ended is written as "interrupted", which is what it is if nothing
more is written. ``results.schema.json`` beside this file states the shape of results.json.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_ray.config import Config, to_toml
from foxhunt_ray.durable import sync
from foxhunt_ray.errors import CheckpointError, ConfigError
from foxhunt_ray.events import ENDED, RunState, TrialState
from foxhunt_ray.search.environment import redact
from foxhunt_ray.search.folder import replaced, write_json

SCHEMA_VERSION = 1
_RANKING = "val_full/skill"
_TIME = pa.timestamp("us", tz="UTC")


def choose_winner(state: RunState) -> TrialState | None:
    """The trial to score on test: best val_full/skill of those that finished, the first of equals.

    When none finished, the best search metric of those that did not fail, because their best weights are
    kept; None when there is none of those either.
    """
    if state.winner is not None:
        return state.trials[state.winner["trial"]]
    finished = [t for t in state.trials.values() if t.state == "finished" and _ranked(t) is not None]
    if finished:
        return max(finished, key=lambda t: _ranked(t) or -math.inf)
    metric, mode = state.info["metric"], state.info["mode"]
    scored = [
        (report["metrics"][metric] * (1 if mode == "max" else -1), trial)
        for trial in state.trials.values()
        if trial.state != "failed" and (report := trial.best(metric, mode)) is not None
    ]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def write_results(folder: Path, state: RunState) -> dict[str, Any]:
    """What results.json now holds; writes it and trials.parquet, each whole or not at all.

    Raises:
        CheckpointError: the storage is gone, full or read-only.
    """
    trials = {name: _trial(folder, state, t) for name, t in sorted(state.trials.items())}
    info = state.info
    results = {
        "schema_version": SCHEMA_VERSION,
        "name": info["name"],
        "status": state.status if state.status != "running" else "interrupted",
        "seed": info["seed"],
        "metric": info["metric"],
        "mode": info["mode"],
        "data": info["data"],
        "baselines": info["baselines"],
        "trials": list(trials.values()),
        "best": _best(state, trials),
        "resources": info["resources"],
        "timing": _timing(state),
        "versions": info["versions"],
    }
    write_json(folder / "results.json", results)
    with replaced(folder / "trials.parquet") as draft:
        pq.write_table(_reports_table(state), draft)
    return results


def write_best(
    folder: Path,
    *,
    trial_id: str,
    config: Config,
    preprocessing: Mapping[str, Any],
    metrics: Mapping[str, float | None],
    predictions: pa.Table,
) -> None:
    """Fill ``best/`` with all that prediction needs of trial ``trial_id``; an older one is replaced.

    Args:
        folder: the run folder.
        trial_id: the winner, whose weights lie in ``trials/<id>/best``.
        config: the winner's whole config; credentials in its paths are not written.
        preprocessing: what turns files into model inputs, as plain JSON values.
        metrics: the winner's scores; a number that is not finite is written as null.
        predictions: forecasts of the val and test windows.

    Raises:
        CheckpointError: the trial left no weights, or the storage is gone, full or read-only.
    """
    weights = folder / _checkpoint_path(trial_id)
    if not weights.is_file():
        raise CheckpointError(f"{weights}: not there, expected the winner's weights; run the search again")
    draft, old = folder / ".best.tmp", folder / ".best.old"
    try:
        for leftover in (draft, old):
            shutil.rmtree(leftover, ignore_errors=True)
        draft.mkdir()
        shutil.copyfile(weights, draft / "model.safetensors")
        (draft / "config.toml").write_text(redact(to_toml(config)), encoding="utf-8")
        write_json(draft / "preprocessing.json", dict(preprocessing))
        write_json(draft / "metrics.json", {k: _finite(v) for k, v in metrics.items()})
        pq.write_table(predictions, draft / "predictions.parquet")
        for path in (*draft.iterdir(), draft):
            sync(path)
        if (folder / "best").exists():
            os.replace(folder / "best", old)
        os.replace(draft, folder / "best")
        sync(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as err:
        raise CheckpointError(
            f"{draft}: cannot be written ({err.strerror or err}); free the storage, then use --resume"
        ) from err


def read_results(folder: Path) -> dict[str, Any]:
    """What results.json in ``folder`` holds.

    Raises:
        ConfigError: there is no such run.
        CheckpointError: the file is damaged, or of another version of this program.
    """
    path = folder / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (FileNotFoundError, NotADirectoryError) as err:
        raise ConfigError(f"{path}: not there; give the folder of a run, such as runs/NAME") from err
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read ({err.strerror}); check the storage") from err
    except ValueError as err:  # bytes that are not UTF-8 as well as text that is not JSON
        raise CheckpointError(
            f"{path}: damaged ({err}); `foxhunt tune --resume` writes it anew from the event log"
        ) from err
    found = results.get("schema_version") if isinstance(results, dict) else None
    if found != SCHEMA_VERSION:
        raise CheckpointError(
            f"{path}: schema_version {found}, expected {SCHEMA_VERSION}; use the version that wrote it"
        )
    return dict(results)


def _trial(folder: Path, state: RunState, trial: TrialState) -> dict[str, Any]:
    report = trial.best(state.info["metric"], state.info["mode"])
    full = {k: v for k, v in trial.last_metrics.items() if k.startswith("val_full/")}
    ended = trial.state in ENDED
    return {
        "id": trial.id,
        "state": trial.state if ended else "interrupted",
        "reason": trial.reason if ended else "had not ended when this was written",
        "config": trial.values,
        "metrics": {**(report["metrics"] if report else trial.last_metrics), **full},
        "steps": trial.step,
        "reports": len(trial.reports),
        "duration_s": _duration_s(state, trial),
        "device": trial.device,
        "tier": trial.tier,
        "checkpoint": _checkpoint_path(trial.id) if (folder / _checkpoint_path(trial.id)).is_file() else None,
    }


def _best(state: RunState, trials: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    winner = choose_winner(state)
    if winner is None:
        return None
    scored = state.winner["metrics"] if state.winner is not None else {}
    return {
        "trial_id": winner.id,
        "config": winner.values,
        "metrics": {**trials[winner.id]["metrics"], **scored},
    }


def _timing(state: RunState) -> dict[str, float]:
    trials = state.trials.values()
    return {
        "wall_s": max(0.0, state.updated - state.started),
        "train_s": sum(_duration_s(state, t) for t in trials),
        # A trial reports the seconds that it has waited so far, so its last report has them all.
        "data_wait_s": sum(t.last_metrics.get("data/wait_s") or 0.0 for t in trials),
    }


def _duration_s(state: RunState, trial: TrialState) -> float:
    return max(0.0, (trial.ended or state.updated) - trial.started)  # a clock may be set back


def _reports_table(state: RunState) -> pa.Table:
    """A row a report, and one row with nulls for a trial without any."""
    pairs = [(t, r) for t in state.trials.values() for r in (t.reports or [{}])]
    columns: dict[str, pa.Array] = {
        "id": pa.array([t.id for t, _ in pairs], pa.string()),
        "state": pa.array([t.state if t.state in ENDED else "interrupted" for t, _ in pairs], pa.string()),
        "reason": pa.array([t.reason for t, _ in pairs], pa.string()),
        "device": pa.array([t.device for t, _ in pairs], pa.string()),
        "tier": pa.array([r.get("tier") for _, r in pairs], pa.string()),
        "started": _instants([t.started for t, _ in pairs]),
        "ended": _instants([t.ended or None for t, _ in pairs]),
        "report": pa.array([r.get("report") for _, r in pairs], pa.int64()),
        "step": pa.array([r.get("step") for _, r in pairs], pa.int64()),
        "reported": _instants([r.get("t") for _, r in pairs]),
    }
    for path in sorted({p for t in state.trials.values() for p in t.values}):
        columns[path] = _values([t.values.get(path) for t, _ in pairs])
    rows = [r.get("metrics", {}) for _, r in pairs]
    for key in sorted({k for row in rows for k in row}):
        columns[key] = pa.array([row.get(key) for row in rows], pa.float64())
    return pa.table(columns)


def _instants(seconds: Sequence[float | None]) -> pa.Array:
    return pa.array([None if s is None else round(s * 1e6) for s in seconds], pa.int64()).cast(_TIME)


def _values(values: Sequence[Any]) -> pa.Array:
    """One column type for a search key whose choices may mix types: numbers stay numbers, else text."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} and len(kinds) == 2:
        return pa.array(values, pa.float64())
    if len(kinds) > 1:
        return pa.array([None if v is None else str(v) for v in values], pa.string())
    return pa.array(values)


def _checkpoint_path(trial_id: str) -> str:
    return f"trials/{trial_id}/best/model.safetensors"


def _ranked(trial: TrialState) -> float | None:
    return trial.last_metrics.get(_RANKING)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")

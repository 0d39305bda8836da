"""What the log keeps when a machine dies while writing, what it refuses, and that the fold is one truth."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.errors import CheckpointError
from foxhunt_ray.events import EventLog, RunState, TrialState, fold

VALUES = {"optimizer.lr": 0.1 + 0.2, "model.d_model": 32, "optimizer.schedule": "cosine"}


def write_run(path: Path) -> RunState:
    log = EventLog(path)
    log.append("run_started", name="run", config={"seed": 0}, seed=0, metric="val/skill", mode="max")
    log.append("trial_started", trial="t0001", values=VALUES, device="cpu")
    log.append("report", trial="t0001", step=20, report=1, metrics={"val/skill": 0.25, "val/loss": 1e-300})
    log.append("trial_ended", trial="t0001", state="finished", reason="length")
    log.append("trial_started", trial="t0002", values=VALUES, device="cpu")
    log.append("winner", trial="t0001", metrics={"test/skill": 0.2})
    log.append("run_ended", status="finished")
    log.close()
    return log.state


def test_the_fold_of_the_file_equals_the_state_that_the_writer_kept(tmp_path: Path) -> None:
    kept = write_run(tmp_path / "events.jsonl")
    assert fold(tmp_path / "events.jsonl") == kept
    assert kept.trials["t0001"].values == VALUES
    assert kept.trials["t0002"].state == "running"


def test_a_log_goes_on_after_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    before = write_run(path)
    log = EventLog(path)
    assert log.state == before
    log.append("run_resumed", config={"seed": 1})
    log.close()
    assert (log.state.status, log.state.winner, log.state.info["config"]) == ("running", None, {"seed": 1})
    assert fold(path) == log.state


def test_a_last_line_torn_at_any_byte_is_dropped_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_run(path)
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert fold(path).status == "running"
        log = EventLog(path)
        log.append("run_ended", status="failed")
        log.close()
        assert path.read_bytes().startswith(whole[:start])
        assert fold(path).status == "failed"


@pytest.mark.parametrize(
    "damage",
    [
        b'{"t": 1, "kind": "rep',
        b"",
        b"\xff\xfe\x00",
        b"12",
        b'{"t": 1}',
        b'{"t": 1, "kind": "report", "trial": "t9"}',
    ],
    ids=["cut", "empty", "bytes", "no object", "no kind", "unknown trial"],
)
def test_a_damaged_line_before_the_last_is_refused_with_its_number(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "events.jsonl"
    write_run(path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = damage
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(CheckpointError, match=r"events\.jsonl: line 3 is damaged"):
        fold(path)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"events\.jsonl: cannot be read"):
        fold(tmp_path / "events.jsonl")


def test_an_event_is_on_disk_before_it_changes_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    order: list[str] = []

    def sync(descriptor: int) -> None:
        assert path.read_text().endswith("\n")
        order.append(f"synced, then {log.state.status}")

    monkeypatch.setattr(os, "fsync", sync)
    log.listeners.append(lambda event, state: order.append(f"heard {state.status}"))
    log.append("run_ended", status="finished")
    log.close()
    assert order == ["synced, then running", "heard finished"]


def test_numbers_that_are_not_finite_are_stored_as_null(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("trial_started", trial="t0001", values={}, device="cpu")
    metrics = {"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": [1.0, float("nan")]}
    log.append("report", trial="t0001", step=1, report=1, metrics=metrics)
    log.close()
    assert log.state.trials["t0001"].last_metrics == {"a": None, "b": None, "c": None, "d": [1.0, None]}
    assert fold(log.path) == log.state


def test_kinds_that_are_not_known_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    before = write_run(path)
    with path.open("a") as file:
        file.write(json.dumps({"t": before.updated, "kind": "from a later version"}) + "\n")
    assert fold(path) == before


def test_a_trial_that_starts_again_loses_its_old_reports(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("trial_started", trial="t0001", values={}, device="cpu")
    log.append("report", trial="t0001", step=20, report=1, metrics={})
    log.append("trial_ended", trial="t0001", state="interrupted", reason="SIGINT")
    log.append("trial_started", trial="t0001", values={}, device="cpu")
    log.close()
    assert (log.state.trials["t0001"].state, log.state.trials["t0001"].step) == ("running", 0)


scores = st.lists(st.none() | st.floats(-1, 1), max_size=8)


@given(scores=scores, mode=st.sampled_from(["min", "max"]))
def test_the_best_report_is_the_first_with_the_best_finite_value(
    scores: list[float | None], mode: str
) -> None:
    reports: list[dict[str, Any]] = [{"step": i, "metrics": {"m": s}} for i, s in enumerate(scores)]
    best = TrialState("t0001", {}, reports=reports).best("m", mode)
    finite = [s for s in scores if s is not None]
    wanted = (max if mode == "max" else min)(finite, default=None)
    assert (best or {"step": None})["step"] == (scores.index(wanted) if finite else None)


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**70), 2**70))
def test_text_and_numbers_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, text: str, real: float, whole: int
) -> None:
    log = EventLog(tmp_path_factory.mktemp("log") / "events.jsonl")
    values = {"text": text, "real": real, "whole": whole}
    log.append("trial_started", trial="t0001", values=values, device="cpu")
    log.close()
    assert fold(log.path).trials["t0001"].values == values


def test_a_full_disk_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = EventLog(tmp_path / "events.jsonl")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        CheckpointError, match=r"events\.jsonl: cannot be written \(No space left on device\)"
    ):
        log.append("run_ended", status="finished")
    log.close()

"""Ctrl-C and SIGTERM save the state, say how to go on, and the run goes on (both signals: test_tuner)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def states(folder):
    found = json.loads((folder / "results.json").read_text())
    return found["status"], {t["id"]: t["state"] for t in found["trials"]}


def interrupted(verb, number, folder, *arguments):
    """Run ``verb`` until it has reported, send the signal, and return what is left of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "foxhunt_ray", verb, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
    )
    log, deadline = folder / "events.jsonl", time.monotonic() + 120
    while not (log.exists() and log.read_text().count('"kind":"report"') >= 3):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.1)
    process.send_signal(number)
    return process, *process.communicate(timeout=60)


def test_a_search_is_saved_and_goes_on(foxhunt, market, tiny, tmp_path):
    folder = tmp_path / "run"
    asked = ("--config", tiny, "--data", market, "--out", tmp_path, "--name", "run", "--trials", 2)
    process, _, error = interrupted("tune", signal.SIGINT, folder, *asked, "--set", "train.max_steps=4000")
    assert process.returncode == 130, error
    assert f"go on with: foxhunt tune --out {tmp_path} --name run --resume" in error
    assert "Traceback" not in error
    status, trials = states(folder)
    assert status == "interrupted" and set(trials.values()) == {"interrupted"}
    # What was interrupted is run again; shortened here by a time limit, which keeps it interrupted.
    again = foxhunt("tune", "--out", tmp_path, "--name", "run", "--resume", "--minutes", 0.05)
    assert again.returncode in (0, 1), again.stderr
    assert set(states(folder)[1]) >= set(trials)


def test_training_goes_on_where_it_was(foxhunt, market, tiny, tmp_path):
    folder = tmp_path / "run"
    asked = ("--config", tiny, "--data", market, "--out", tmp_path, "--name", "run")
    process, _, error = interrupted(
        "train", signal.SIGTERM, folder, *asked, "--set", "train.max_steps=300", "--set", "train.patience=0"
    )
    assert process.returncode == 143, error
    again = foxhunt("train", "--out", tmp_path, "--name", "run", "--resume")
    assert again.returncode == 0, again.stderr
    assert states(folder) == ("finished", {"t0001": "finished"})
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    reports = [e["report"] for e in events if e["kind"] == "report"]
    assert reports == sorted(set(reports)) and reports[-1] == 75
    assert sum(e["kind"] == "trial_started" for e in events) == 1

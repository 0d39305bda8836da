"""A training run that is killed in the middle of an epoch goes on bitwise, and not with other data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.resources import files

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from foxhunt_ray.data.synthetic import synthetic_market
from foxhunt_ray.train.checkpoint import read_state

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
STEPS, EVERY = 200, 10  # an epoch has 68 batches, so no report is at the end of one
COMPARED = ("train/loss", "val/loss", "optimizer/lr", "optimizer/grad_norm", "val_full/loss")


@pytest.fixture(scope="module")
def asked(small_ray, market, tiny, tmp_path_factory):
    """asked(name): arguments of a training run of that name, on a Ray that outlives it."""
    import ray

    address, out = ray.get_runtime_context().gcs_address, tmp_path_factory.mktemp("runs")
    settings = (f"train.max_steps={STEPS}", f"train.report_every={EVERY}", "train.patience=0")
    settings += ("train.eval_windows=64", "model.dropout=0.1", f"cluster.address={address}")
    fixed = [word for setting in settings for word in ("--set", setting)]
    return lambda name: (
        out / name,
        ("--config", tiny, "--data", market, "--out", out, "--name", name, *fixed),
    )


@pytest.fixture(scope="module")
def whole(asked, foxhunt):
    """The folder of a run that was let alone."""
    folder, arguments = asked("whole")
    done = foxhunt("train", *arguments, "--set", "loader.prefetch_batches=auto")
    assert done.returncode == 0, done.stderr
    return folder


def told(folder):
    """What the run reported, by report."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    reports = [e for e in events if e["kind"] == "report"]
    numbers = [e["report"] for e in reports]
    assert numbers == sorted(set(numbers))
    return [(e["step"], *(e["metrics"].get(key) for key in COMPARED)) for e in reports]


def killed(folder, reports, *arguments):
    """Kill a training run soon after it has reported so often; its state."""
    log, deadline = folder / "events.jsonl", time.monotonic() + 120
    with subprocess.Popen(
        [sys.executable, "-m", "foxhunt_ray", "train", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
    ) as process:
        while not (log.exists() and log.read_text().count('"kind":"report"') >= reports):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.01)
        process.kill()
    state = read_state(folder / "trials" / "t0001" / "last")
    assert state and reports <= state.report < STEPS // EVERY and state.position["batch"] > 0
    return state


def digests(folder):
    return {p: hashlib.sha256(p.read_bytes()).digest() for p in folder.rglob("*") if p.is_file()}


def test_losses_and_weights_are_bitwise_those_of_a_run_that_was_let_alone(
    whole, asked, foxhunt, market, tmp_path
):
    folder, arguments = asked("killed")
    killed(folder, 4, *arguments, "--set", "loader.prefetch_batches=7")

    other = shutil.copytree(market, tmp_path / "other")
    bars = synthetic_market(4, n_symbols=1, n_bars=500).bars[0]
    table = pa.table({"ts": pa.array(bars.ts_event, pa.timestamp("ns", tz="UTC")), **bars.columns})
    pq.write_table(table, other / "NEWFOX.parquet")
    kept, resume = digests(folder), ("--out", folder.parent, "--name", "killed", "--resume")
    refused = foxhunt("train", *resume, "--data", other)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) <= 3
    assert "--resume with other symbols (NEWFOX): give the --data" in refused.stderr
    assert digests(folder) == kept

    state = killed(folder, 9, *resume, "--set", "loader.mode=sync")
    assert state.position["epoch"] > 0
    done = foxhunt("train", *resume, "--set", "loader.mode=async")
    assert done.returncode == 0, done.stderr
    # A kill between a checkpoint and its line in the log costs the line.
    assert len(told(whole)) == STEPS // EVERY <= len(told(folder)) + 2
    assert set(told(folder)) <= set(told(whole)) and told(folder)[-1] == told(whole)[-1]
    for name in ("best/model.safetensors", "trials/t0001/last/checkpoint.safetensors"):
        one, two = load_file(whole / name), load_file(folder / name)
        assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_results_tell_how_far_ahead_batches_were_prepared_and_where_they_were_gathered(whole):
    found = json.loads((whole / "results.json").read_text())
    schema = json.loads(files("foxhunt_ray.search").joinpath("results.schema.json").read_text())
    jsonschema.validate(found, schema)
    (trial,) = found["trials"]
    assert trial["tier"] == "host" and trial["metrics"]["data/prefetch_depth"] >= 1
    table = pq.read_table(whole / "trials.parquet")
    assert set(table["tier"].to_pylist()) == {"host"} and min(table["data/prefetch_depth"].to_pylist()) >= 1

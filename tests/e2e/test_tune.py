"""``foxhunt tune`` as a user runs it, on a real Ray: what it prints, what it leaves, how it goes on."""

from __future__ import annotations

import json
import re
import shutil
from importlib.resources import files

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NOISE = re.compile(r"WARN|INFO|DEBUG|Traceback|Deprecat|Error:|ray\.|\x1b")


@pytest.fixture(scope="module")
def run(foxhunt, market, tiny, tmp_path_factory):
    """A finished run: (its folder, what was printed)."""
    out = tmp_path_factory.mktemp("runs")
    done = foxhunt("tune", "--config", tiny, "--data", market, "--out", out, "--name", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "first", done


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_results_are_valid_and_account_for_every_trial(run):
    found = results(run[0])
    schema = json.loads(files("foxhunt_ray.search").joinpath("results.schema.json").read_text())
    jsonschema.validate(found, schema)
    assert found["status"] == "finished"
    assert [t["id"] for t in found["trials"]] == ["t0001", "t0002", "t0003"]
    assert {t["state"] for t in found["trials"]} <= {"finished", "stopped"}
    assert found["data"]["windows"]["train"] > 1000 and found["data"]["rows"] == 3000


def test_the_first_trial_is_the_config_as_it_is(run, tiny):
    assert results(run[0])["trials"][0]["config"]["optimizer.lr"] == load_config(tiny).optimizer.lr


def test_baselines_stand_beside_the_winner_and_test_is_scored_once(run):
    found = results(run[0])
    assert set(found["baselines"]) == {"zero", "mean", "last", "ridge"}
    assert all({"val/skill", "test/skill"} <= set(b) for b in found["baselines"].values())
    assert "test/skill" in found["best"]["metrics"]
    assert not any(key.startswith("test/") for t in found["trials"] for key in t["metrics"])
    best = max(
        (t for t in found["trials"] if t["state"] == "finished"), key=lambda t: t["metrics"]["val_full/skill"]
    )
    assert found["best"]["trial_id"] == best["id"]


def test_it_prints_at_most_thirty_lines_and_no_library_speaks(run):
    done = run[1]
    assert len(done.stdout.splitlines()) <= 30
    assert done.stderr == ""
    assert not NOISE.search(done.stdout), NOISE.search(done.stdout)


def test_the_folder_holds_what_prediction_needs(run, tiny, market):
    best = run[0] / "best"
    assert not (run[0].parent / ".ray" / "first").exists()
    assert {p.name for p in best.iterdir()} == {
        "config.toml",
        "metrics.json",
        "model.safetensors",
        "predictions.parquet",
        "preprocessing.json",
    }
    values = results(run[0])["best"]["config"]
    expected = load_config(tiny, {"data.path": str(market), **values})
    assert load_config(best / "config.toml") == expected
    assert set(pq.read_table(best / "predictions.parquet")["split"].unique().to_pylist()) == {"val", "test"}
    assert json.loads((run[0] / "env.json").read_text())["data_fingerprint"]


def test_predict_reproduces_the_stored_test_metrics(run, foxhunt, market, tmp_path):
    file = tmp_path / "forecasts.parquet"
    done = foxhunt("predict", run[0], "--data", market, "--out", file)
    assert done.returncode == 0, done.stderr
    found, stored = pq.read_table(file), results(run[0])
    start = np.datetime64(stored["data"]["splits"]["test"]["start"][:19])
    known = found.filter(found["target"].is_valid()).to_pandas()
    test = known[known["ts_event"].dt.tz_localize(None) >= start]
    assert len(test) == stored["data"]["windows"]["test"]
    mse = np.mean((test["prediction"] - test["target"]) ** 2)
    assert mse == pytest.approx(stored["best"]["metrics"]["test/mse"], rel=1e-9)
    skill = 1 - mse / np.mean(test["target"] ** 2)
    assert skill == pytest.approx(stored["best"]["metrics"]["test/skill"], rel=1e-6)


def test_predict_covers_the_latest_bar_whose_future_is_not_known(run, foxhunt, market, tmp_path):
    file = tmp_path / "forecasts.parquet"
    assert foxhunt("predict", run[0], "--data", market, "--out", file).returncode == 0
    found = pq.read_table(file).to_pandas()
    for symbol, mine in found.groupby("symbol"):
        last = pq.read_table(market / f"{symbol}.parquet")["ts"].to_pandas().max()
        newest = mine.loc[mine["ts_event"].idxmax()]
        assert newest["ts_event"] == last and np.isnan(newest["target"]) and np.isfinite(newest["prediction"])


def test_an_existing_name_is_refused_and_nothing_is_touched(run, foxhunt, market, tiny):
    before = results(run[0])
    again = foxhunt("tune", "--config", tiny, "--data", market, "--out", run[0].parent, "--name", "first")
    assert again.returncode == 2
    assert "run 'first' exists" in again.stderr and len(again.stderr.splitlines()) <= 3
    assert results(run[0]) == before


def test_a_finished_search_is_extended_by_more_trials(run, foxhunt, tmp_path):
    shutil.copytree(run[0], tmp_path / "first")
    done = foxhunt("tune", "--out", tmp_path, "--name", "first", "--resume", "--trials", 4, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)  # with --json nothing else is on stdout
    assert found == results(tmp_path / "first")
    assert found["trials"][:3] == results(run[0])["trials"]
    assert len(found["trials"]) == 4


def test_a_resume_with_another_model_is_refused(run, foxhunt):
    done = foxhunt("tune", "--out", run[0].parent, "--name", "first", "--resume", "--set", "model.n_layer=2")
    assert done.returncode == 2 and "--resume with another model" in done.stderr


def test_one_seed_and_one_trial_at_a_time_repeat_exactly(foxhunt, market, tiny, tmp_path):
    def curves(name):
        done = foxhunt(
            *("tune", "--config", tiny, "--data", market, "--out", tmp_path, "--name", name, "--trials", 2),
            *("--set", "search.concurrent=1", "--set", "train.max_steps=12"),
        )
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in (tmp_path / name / "events.jsonl").read_text().splitlines()]
        values = [e["values"] for e in events if e["kind"] == "trial_started"]
        keys = ("train/loss", "val/loss", "val_full/skill")
        return values, [[e["metrics"].get(k) for k in keys] for e in events if e["kind"] == "report"]

    assert curves("a") == curves("b")


def test_two_trials_at_once_that_hold_every_cpu_finish(run):
    found = results(run[0])
    assert found["resources"]["cpus"] == 1
    assert found["resources"]["concurrent"] == min(3, found["resources"]["concurrent"]) >= 1


def test_when_every_trial_fails_the_exit_code_is_one_and_the_reason_is_told(foxhunt, market, tiny, tmp_path):
    done = foxhunt(
        *("tune", "--config", tiny, "--data", market, "--out", tmp_path, "--name", "bad"),
        *("--set", "search.metric=val/nothing"),
    )
    assert done.returncode == 1
    assert "search.metric = 'val/nothing' is not reported" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert {t["state"] for t in results(tmp_path / "bad")["trials"]} == {"failed"}


def test_a_gpu_that_is_not_there_is_refused_with_what_is(foxhunt, market, tiny, tmp_path):
    done = foxhunt(
        *("tune", "--config", tiny, "--data", market, "--out", tmp_path, "--name", "gpu"),
        *("--set", "cluster.gpus_per_trial=64"),
    )
    assert done.returncode == 2
    assert re.search(r"each trial asks 1 CPU, 64 GPU; .* has \d+ CPU, \d GPU", done.stderr)
    assert not (tmp_path / "gpu").exists()  # the name is still free

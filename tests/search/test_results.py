"""results.json, trials.parquet and best/ are what the event log says, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.errors import CheckpointError, ConfigError
from foxhunt_ray.events import EventLog, RunState
from foxhunt_ray.search.results import choose_winner, read_results, write_best, write_results

SCHEMA = json.loads(files("foxhunt_ray.search").joinpath("results.schema.json").read_text())
DATA = {
    "files": 1,
    "symbols": ["A"],
    "rows": 1000,
    "features": ["r1"],
    "windows": {"train": 700, "val": 150, "test": 100},
    "splits": {"train": {"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"}},
    "dropped": {"duplicate": 2},
}


class Run:
    """A run folder with a real log, told one trial at a time."""

    def __init__(self, folder: Path, metric: str = "val/skill", mode: str = "max") -> None:
        self.folder = folder
        self.log = EventLog(folder / "events.jsonl")
        self.log.append(
            "run_started",
            name="fx",
            config=load_config().model_dump(mode="json", by_alias=True),
            seed=3,
            metric=metric,
            mode=mode,
            data=DATA,
            baselines={"ridge": {"val_full/skill": 0.3, "test/skill": None}},
            resources={"cpus": 2, "gpus": 0, "concurrent": 1},
            versions={"python": "3.11"},
        )

    @property
    def state(self) -> RunState:
        return self.log.state

    def trial(self, name: str, scores: list[float], state: str = "", **full: float) -> None:
        """A trial with a report a score; ``full`` is the last one's val_full; it goes on unless ``state``."""
        self.log.append("trial_started", trial=name, values={"optimizer.lr": 0.01, "model.d_model": 32})
        for i, score in enumerate(scores, 1):
            metrics = {"val/skill": score, "val/loss": 1 - score, "data/wait_s": 0.5 * i}
            metrics |= {f"val_full/{k}": v for k, v in full.items()} if i == len(scores) else {}
            self.log.append("report", trial=name, step=20 * i, report=i, metrics=metrics)
            weights = self.folder / f"trials/{name}/best/model.safetensors"
            weights.parent.mkdir(parents=True, exist_ok=True)
            weights.write_bytes(name.encode())
        if state:
            self.log.append(
                "trial_ended", trial=name, state=state, reason="why" if state != "finished" else ""
            )

    def end(self, status: str = "finished") -> dict[str, Any]:
        self.log.append("run_ended", status=status)
        return write_results(self.folder, self.state)


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Run]:
    run = Run(tmp_path, *getattr(request, "param", ()))
    yield run
    run.log.close()


def check(results: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(results)


def test_finished_run_follows_the_schema_and_reads_back_equal(run: Run) -> None:
    run.trial("t0", [0.1, 0.4, 0.2], "finished", skill=0.35)
    run.trial("t1", [0.1], "stopped")
    run.log.append("winner", trial="t0", metrics={"test/skill": 0.31})
    results = run.end()
    check(results)
    assert read_results(run.folder) == results
    assert results["best"]["metrics"]["test/skill"] == 0.31


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_run_without_a_finished_trial_follows_the_schema(run: Run, status: str) -> None:
    run.trial("t0", [0.1, float("nan")], "failed")
    run.trial("t1", [], "interrupted")
    results = run.end(status)
    check(results)
    assert results["status"] == status and results["trials"][0]["reason"] == "why"


def test_run_without_trials_follows_the_schema(run: Run) -> None:
    results = write_results(run.folder, run.state)
    check(results)
    assert results["trials"] == [] and results["best"] is None
    assert pq.read_table(run.folder / "trials.parquet").num_rows == 0


def test_what_has_not_ended_is_written_as_interrupted(run: Run) -> None:
    run.trial("t0", [0.1])
    results = write_results(run.folder, run.state)
    check(results)
    assert results["status"] == results["trials"][0]["state"] == "interrupted"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("extra",), 1),
        (("timing", "extra"), 1),
        (("timing", "wall_s"), "NaN"),
        (("trials", 0, "metrics", "val/skill"), "NaN"),
        (("trials", 0, "metrics", "skill"), 0.1),
        (("trials", 0, "state"), "running"),
        (("trials", 0, "id"), "../x"),
        (("data", "windows", "all"), 1),
        (("status",), "running"),
    ],
)
def test_schema_rejects(run: Run, path: tuple[Any, ...], value: object) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    results = run.end()
    table: Any = results
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        check(results)


def test_schema_allows_the_ceilings_of_the_synthetic_market(run: Run) -> None:
    results = run.end()
    check(results | {"data": DATA | {"ceilings": {"ridge": 0.2, "best": 0.6}}})
    with pytest.raises(jsonschema.ValidationError):
        check(results | {"data": DATA | {"ceilings": {"ridge": 0.2}}})


def test_metrics_are_those_of_the_best_report_with_the_last_full_validation(run: Run) -> None:
    run.trial("t0", [0.1, 0.4, 0.2], "finished", skill=0.35)
    trial = run.end()["trials"][0]
    assert trial["metrics"] == {
        "val/skill": 0.4,
        "val/loss": 0.6,
        "data/wait_s": 1.0,
        "val_full/skill": 0.35,
    }
    assert (trial["steps"], trial["reports"]) == (60, 3)


def test_checkpoint_is_named_only_where_it_exists(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    run.trial("t1", [], "failed")
    with_weights, without = run.end()["trials"]
    assert (run.folder / with_weights["checkpoint"]).read_bytes() == b"t0"
    assert without["checkpoint"] is None


def test_waiting_time_is_the_last_of_each_trial(run: Run) -> None:
    run.trial("t0", [0.1, 0.2], "finished", skill=0.1)
    run.trial("t1", [0.1], "stopped")
    assert run.end()["timing"]["data_wait_s"] == 1.5


def test_clock_set_back_gives_no_negative_time(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    run.state.trials["t0"].ended = run.state.updated = 1.0
    results = write_results(run.folder, run.state)
    check(results)
    assert results["timing"]["wall_s"] == results["trials"][0]["duration_s"] == 0.0


def test_winner_is_the_finished_trial_with_the_best_full_validation(run: Run) -> None:
    run.trial("high_subset", [0.9], "finished", skill=0.1)
    run.trial("high_full", [0.2], "finished", skill=0.3)
    run.trial("stopped", [0.95], "stopped")
    winner = choose_winner(run.state)
    assert winner is not None and winner.id == "high_full"


def test_first_of_equal_winners_wins(run: Run) -> None:
    run.trial("a", [0.2], "finished", skill=0.3)
    run.trial("b", [0.2], "finished", skill=0.3)
    winner = choose_winner(run.state)
    assert winner is not None and winner.id == "a"


def test_negative_full_validation_can_win(run: Run) -> None:
    run.trial("bad", [0.2], "finished", skill=-0.3)
    run.trial("less_bad", [0.1], "finished", skill=-0.1)
    winner = choose_winner(run.state)
    assert winner is not None and winner.id == "less_bad"


@pytest.mark.parametrize("run", [("val/skill", "max"), ("val/loss", "min")], indirect=True)
def test_without_a_finished_trial_the_search_metric_decides(run: Run) -> None:
    run.trial("low", [0.1], "stopped")
    run.trial("high", [0.5, 0.2], "interrupted")
    run.trial("failed", [0.9], "failed")
    winner = choose_winner(run.state)
    assert winner is not None and winner.id == "high"


def test_no_winner_when_every_trial_failed(run: Run) -> None:
    run.trial("t0", [0.9], "failed")
    run.trial("t1", [], "failed")
    assert choose_winner(run.state) is None


def test_parquet_has_a_row_a_report_and_one_for_a_trial_without(run: Run) -> None:
    run.trial("t0", [0.1, 0.4], "finished", skill=0.3)
    run.trial("t1", [], "failed")
    run.end()
    table = pq.read_table(run.folder / "trials.parquet")
    assert table["id"].to_pylist() == ["t0", "t0", "t1"]
    assert table["step"].to_pylist() == [20, 40, None]
    assert table["val/skill"].to_pylist() == [0.1, 0.4, None]
    assert table["optimizer.lr"].to_pylist() == [0.01, 0.01, 0.01]
    assert table["reported"].type == pa.timestamp("us", tz="UTC")
    assert table["reason"].to_pylist() == ["", "", "why"]


def test_search_key_of_mixed_types_is_one_column(run: Run) -> None:
    for i, values in enumerate([{"a.x": 1, "a.y": 1}, {"a.x": 0.5, "a.y": "auto"}, {}]):
        run.log.append("trial_started", trial=f"t{i}", values=values)
    write_results(run.folder, run.state)
    table = pq.read_table(run.folder / "trials.parquet")
    assert table["a.x"].to_pylist() == [1.0, 0.5, None]
    assert table["a.y"].to_pylist() == ["1", "auto", None]


def best(run: Run, trial_id: str = "t0", **changed: Any) -> None:
    given: dict[str, Any] = {
        "config": load_config(None, {"seed": 5}),
        "preprocessing": {"mean": [0.5]},
        "metrics": {"test/skill": 0.3, "test/ic": float("nan")},
        "predictions": pa.table({"symbol": ["A"], "prediction": [0.1]}),
    }
    write_best(run.folder, trial_id=trial_id, **(given | changed))


def test_best_holds_all_that_prediction_needs(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    best(run)
    folder = run.folder / "best"
    assert load_config(folder / "config.toml").seed == 5
    assert (folder / "model.safetensors").read_bytes() == b"t0"
    assert json.loads((folder / "preprocessing.json").read_text()) == {"mean": [0.5]}
    assert json.loads((folder / "metrics.json").read_text()) == {"test/skill": 0.3, "test/ic": None}
    assert pq.read_table(folder / "predictions.parquet").to_pylist() == [{"symbol": "A", "prediction": 0.1}]


def test_new_best_takes_the_place_of_the_old_one_whole(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    run.trial("t1", [0.1], "finished", skill=0.2)
    best(run)
    (run.folder / "best" / "stale").touch()
    best(run, "t1")
    assert (run.folder / "best" / "model.safetensors").read_bytes() == b"t1"
    assert sorted(p.name for p in run.folder.iterdir()) == ["best", "events.jsonl", "trials"]
    assert not (run.folder / "best" / "stale").exists()


def test_trial_without_weights_leaves_the_old_best(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    best(run)
    with pytest.raises(CheckpointError, match=r"trials/t9/best/model\.safetensors"):
        best(run, "t9")
    assert (run.folder / "best" / "model.safetensors").read_bytes() == b"t0"


def test_credentials_of_the_data_path_are_not_left_in_best(run: Run) -> None:
    run.trial("t0", [0.1], "finished", skill=0.1)
    best(run, config=load_config(None, {"data.path": "s3://u:c4n4ry@host/b?token=c4n4ry"}))
    config = load_config(run.folder / "best" / "config.toml")
    assert config.data.path == "s3://***@host/b?token=***"


def test_run_that_is_not_there_is_the_users_to_change(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"results\.json: not there"):
        read_results(tmp_path / "nothing")


@pytest.mark.parametrize(
    "content", [b'{"schema_version": 1, "x": NaN}', b'{"schema', b"\xff\xfe", b"[]", b"{}"]
)
def test_damaged_results_are_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"results\.json: (damaged|schema_version)"):
        read_results(tmp_path)


def test_results_of_a_later_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"schema_version": 2}')
    with pytest.raises(CheckpointError, match="schema_version 2, expected 1"):
        read_results(tmp_path)

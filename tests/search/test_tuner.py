"""Searches on a small Ray with stand-in trials: every trial is accounted for, whatever happens to it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.cloudpickle
from ray import tune

from foxhunt_ray.cluster import TrialResources
from foxhunt_ray.config import Config, load_config
from foxhunt_ray.errors import DivergedError, SearchError
from foxhunt_ray.events import EventLog, RunState, fold
from foxhunt_ray.search.searcher import TrialSearcher
from foxhunt_ray.search.tuner import Outcome, run_search

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module
REPORTS = 5


@dataclass
class Report:
    """What a trial yields, as far as a search reads it."""

    report: int
    metrics: dict[str, float] = field(default_factory=dict)
    finished: bool = False
    reason: str = ""
    tier: str = "host"

    @property
    def step(self) -> int:
        return 20 * self.report


def climb(folder: Path, skill: float, reports: int = REPORTS, reason: str = "length") -> Iterator[Report]:
    """Reports with a rising skill; leaves a file when it is closed."""
    try:
        for i in range(1, reports + 1):
            yield Report(i, {"val/skill": skill + i / 100, "pid": os.getpid()}, i == reports, reason)
    finally:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "closed").touch()


def steady(config: Config, prepared: object, *, folder: Path, device: str) -> Iterator[Report]:
    yield from climb(folder, 0.5)


def worse_and_worse(config: Config, prepared: object, *, folder: Path, device: str) -> Iterator[Report]:
    yield from climb(folder, 1 / int(folder.name[1:]))


def endless(config: Config, prepared: object, *, folder: Path, device: str) -> Iterator[Report]:
    yield from climb(folder, 0.5, reports=10**9)


def stuck(config: Config, prepared: object, *, folder: Path, device: str) -> Iterator[Report]:
    yield Report(1, {"val/skill": 0.5})
    time.sleep(600)


def broken(config: Config, prepared: object, *, folder: Path, device: str) -> Iterator[Report]:
    yield from ()
    raise DivergedError("loss is nan at step 7")


def mixed(config: Config, prepared: dict[str, float], *, folder: Path, device: str) -> Iterator[Report]:
    """Each trial meets another fate."""
    yield Report(1, {"val/skill": prepared["skill"], "pid": os.getpid()})
    match folder.name:
        case "t0002":
            raise DivergedError(
                f"loss is nan at step 30 (lr {config.optimizer.lr:g})\nmore that nobody needs"
            )
        case "t0003":
            yield Report(2, {"val/skill": float("nan")})
        case "t0004":
            yield Report(2, {"val/loss": 0.1})
        case "t0005":
            raise ZeroDivisionError("no code of ours\nand a second line")
        case "t0006":
            os._exit(1)
        case "t0007":
            return
    yield from climb(folder, 0.5, reason="patience" if folder.name == "t0008" else "length")


@pytest.fixture(scope="module", autouse=True)
def small_ray() -> Iterator[None]:
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    ray.init(address="local", num_cpus=2, object_store_memory=150_000_000, **options)
    yield
    ray.shutdown()


Search = Callable[..., tuple[Outcome, RunState]]


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """Runs a search in ``tmp_path/run``; the log is read back from the file."""
    return lambda run_trial, **options: run_in(tmp_path / "run", run_trial, **options)


def run_in(
    folder: Path,
    run_trial: Callable[..., Iterator[Report]],
    *,
    concurrent: int = 1,
    listener: Callable[[dict[str, Any], RunState], None] | None = None,
    **values: object,
) -> tuple[Outcome, RunState]:
    folder.mkdir(exist_ok=True)
    log = EventLog(folder / "events.jsonl")
    log.listeners += [listener] if listener else []
    resources = TrialResources(cpus=2 // concurrent, gpus=0, memory_bytes=0, concurrent=concurrent)
    config = a_config(**values)
    try:
        outcome = run_search(
            config, {"skill": 0.25}, log=log, folder=folder, resources=resources, run_trial=run_trial
        )
    finally:
        log.close()
    assert fold(log.path) == log.state
    return outcome, log.state


def a_config(**values: object) -> Config:
    return load_config(None, {"search.scheduler": "none", "search.searcher": "random", **values})


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, RunState]:
    return run_in(tmp_path_factory.mktemp("mixed") / "run", mixed, **{"search.trials": 9})


def test_every_trial_is_accounted_for_and_the_others_go_on(mixed_run: tuple[Outcome, RunState]) -> None:
    outcome, state = mixed_run
    assert outcome == Outcome("finished")
    assert [t.state for t in state.trials.values()] == ["finished"] + ["failed"] * 6 + ["finished"] * 2
    assert all(t.ended >= t.started > 0 for t in state.trials.values())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("t0002", r"DivergedError: loss is nan at step 30 \(lr [0-9.e-]+\)"),
        ("t0003", r"DivergedError: val/skill is nan at step 40"),
        ("t0004", r"ConfigError: search.metric = 'val/skill' is not reported; use one of \['val/loss'\]"),
        ("t0005", r"ZeroDivisionError: no code of ours"),
        ("t0006", r"the process of the trial died: killed, out of memory, or its machine is gone"),
        ("t0007", r"SearchError: the trial ended without its last report.*"),
    ],
)
def test_a_failed_trial_has_its_reason_in_one_line(
    mixed_run: tuple[Outcome, RunState], name: str, reason: str
) -> None:
    assert re.fullmatch(reason, mixed_run[1].trials[name].reason)


def test_a_trial_that_ends_by_patience_has_finished(mixed_run: tuple[Outcome, RunState]) -> None:
    trials = mixed_run[1].trials
    assert (trials["t0008"].state, trials["t0008"].reason) == ("finished", "patience")
    assert (trials["t0009"].state, trials["t0009"].reason) == ("finished", "length")


def test_a_process_is_kept_after_our_errors_and_replaced_after_others(
    mixed_run: tuple[Outcome, RunState],
) -> None:
    pids = {name: trial.reports[0]["metrics"]["pid"] for name, trial in mixed_run[1].trials.items()}
    assert len({pids[f"t000{i}"] for i in (1, 2, 3, 4, 5)}) == 1
    assert len({pids["t0005"], pids["t0006"], pids["t0007"]}) == 3
    assert len({pids[f"t000{i}"] for i in (7, 8, 9)}) == 1


def test_one_trial_at_a_time_runs_what_the_searcher_suggests_alone(
    mixed_run: tuple[Outcome, RunState],
) -> None:
    searcher = TrialSearcher(a_config(**{"search.trials": 9}), RunState())
    alone = [searcher.suggest("")["values"] for _ in range(9)]  # type: ignore[index]
    assert [t.values for t in mixed_run[1].trials.values()] == alone


def test_two_trials_that_hold_every_cpu_finish_and_nothing_is_printed(
    search: Search, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome, state = search(steady, concurrent=2, **{"search.trials": 6})
    assert outcome == Outcome("finished")
    assert [len(t.reports) for t in state.trials.values()] == [REPORTS] * 6
    assert capfd.readouterr() == ("", "")


def test_asha_stops_a_bad_trial_and_a_resume_keeps_it_and_runs_the_interrupted_again(
    search: Search, tmp_path: Path
) -> None:
    asha = {"search.scheduler": "asha", "train.max_steps": 20 * REPORTS}
    _, state = search(worse_and_worse, **{"search.trials": 3, **asha})
    ends = {t.id: (t.state, len(t.reports)) for t in state.trials.values()}
    assert ends == {"t0001": ("finished", 5), "t0002": ("stopped", 3), "t0003": ("stopped", 3)}
    assert state.trials["t0002"].reason == "behind its peers at report 3"
    assert all((tmp_path / "run" / "trials" / name / "closed").exists() for name in ends)

    log = EventLog(tmp_path / "run" / "events.jsonl")
    log.append("trial_started", trial="t0004", values=state.trials["t0001"].values, device="cpu")
    log.append("trial_ended", trial="t0004", state="interrupted", reason="SIGINT")
    log.close()
    _, resumed = search(worse_and_worse, **{"search.trials": 5, **asha})
    assert [resumed.trials[name] for name in ends] == [state.trials[name] for name in ends]
    again = resumed.trials["t0004"]
    assert (again.state, again.values) == ("stopped", state.trials["t0001"].values)
    assert list(resumed.trials) == ["t0001", "t0002", "t0003", "t0004", "t0005"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_search_with_its_trials_interrupted(
    search: Search, tmp_path: Path, number: signal.Signals
) -> None:
    def at_first_report(event: dict[str, Any], state: RunState) -> None:
        if event["kind"] == "report" and event["report"] == 1:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    outcome, state = search(endless, listener=at_first_report)
    assert outcome == Outcome("interrupted", number.name, number)
    assert [(t.state, t.reason) for t in state.trials.values()] == [("interrupted", number.name)]
    assert (tmp_path / "run" / "trials" / "t0001" / "closed").exists()
    assert signal.getsignal(number) is before


def test_a_trial_in_a_long_step_does_not_hold_a_signal_up_and_its_cpus_are_free_again(search: Search) -> None:
    def at_first_report(event: dict[str, Any], state: RunState) -> None:
        if event["kind"] == "report":
            os.kill(os.getpid(), signal.SIGTERM)

    outcome, state = search(stuck, listener=at_first_report)
    assert outcome == Outcome("interrupted", "SIGTERM", signal.SIGTERM)
    assert state.trials["t0001"].state == "interrupted"
    outcome, state = search(steady, **{"search.trials": 1})
    assert state.trials["t0001"].state == "finished"


def test_the_time_limit_ends_the_search_in_order(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("foxhunt_ray.search.monitor.time", SimpleNamespace(monotonic=lambda: now[0]))

    def later(event: dict[str, Any], state: RunState) -> None:
        now[0] = 301.0 if event["kind"] == "report" else 0.0

    outcome, state = search(endless, listener=later, **{"search.minutes": 5})
    assert outcome == Outcome("finished", "search.minutes = 5 are over")
    assert [t.state for t in state.trials.values()] == ["interrupted"]


def test_a_search_whose_first_trials_fail_alike_ends_as_failed(search: Search) -> None:
    outcome, state = search(broken)
    assert outcome.status == "failed"
    assert outcome.reason == "the first 3 trials failed alike: DivergedError: loss is nan at step 7"
    assert [t.state for t in state.trials.values()] == ["failed"] * 3


def test_a_log_that_cannot_be_written_ends_the_search(search: Search) -> None:
    def full(event: dict[str, Any], state: RunState) -> None:
        if event["kind"] == "report":
            raise OSError(28, "No space left on device")

    with pytest.raises(SearchError, match=r"events\.jsonl: the log could not be written.*No space left"):
        search(endless, listener=full)


def test_a_search_goes_on_after_ray_killed_a_worker_for_memory(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, calls = tune.Tuner.fit, []

    def killed_once(tuner: tune.Tuner) -> object:
        calls.append(tuner)
        if len(calls) == 1:
            raise RuntimeError(
                "Caught unexpected exception: 1 worker(s) were killed due to the node running low"
            )
        return fit(tuner)

    monkeypatch.setattr(tune.Tuner, "fit", killed_once)
    outcome, state = search(steady, **{"search.trials": 2})
    assert outcome == Outcome("finished")
    assert [t.state for t in state.trials.values()] == ["finished"] * 2


def test_nothing_is_started_when_the_log_holds_all_trials(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, state = search(steady, **{"search.trials": 1})
    monkeypatch.delattr(tune, "Tuner")
    outcome, again = search(steady, **{"search.trials": 1})
    assert outcome == Outcome("finished")
    assert again == state

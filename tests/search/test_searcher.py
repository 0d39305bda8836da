"""What is suggested, in which order, what the study learns, and how a resume is rebuilt from a log."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState as Verdict
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from foxhunt_ray.config import Config, load_config, with_values
from foxhunt_ray.errors import ConfigError
from foxhunt_ray.events import RunState, TrialState
from foxhunt_ray.search.searcher import TrialSearcher, build_scheduler

METRIC = "val/skill"


def small_config(**values: object) -> Config:
    space = {
        "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "data.context_length": {"low": 16, "high": 128, "log": True},
        "model.d_model": {"choices": [16, 32]},
    }
    return load_config(None, {"search.trials": 15, "search.space": space, **values})


def ended(
    name: str, values: dict[str, Any], scores: Sequence[float | None], state: str = "finished"
) -> TrialState:
    reports = [{"step": 20 * i, "report": i, "metrics": {METRIC: s}} for i, s in enumerate(scores, 1)]
    return TrialState(name, values, state=state, reports=reports)


def run_one_at_a_time(config: Config, state: RunState | None = None) -> list[tuple[str, dict[str, Any]]]:
    searcher = TrialSearcher(config, state or RunState())
    suggested = []
    while isinstance(found := searcher.suggest("tune's id"), dict):
        suggested.append((found["trial"], found["values"]))
        searcher.tell(ended(found["trial"], found["values"], [-found["values"]["optimizer.lr"]]))
    assert found == Searcher.FINISHED
    return suggested


def study_of(searcher: TrialSearcher) -> list[optuna.trial.FrozenTrial]:
    return searcher._study.get_trials()


@pytest.mark.parametrize("kind", ["tpe", "random"])
def test_equal_seeds_give_equal_suggestions_and_other_seeds_others(kind: str) -> None:
    first, again, other = (
        run_one_at_a_time(small_config(seed=seed, **{"search.searcher": kind})) for seed in (1, 1, 2)
    )
    assert first == again
    assert first[1:] != other[1:]


def test_the_first_trial_is_the_base_config() -> None:
    config = small_config(**{"optimizer.lr": 3e-3, "data.context_length": 48})
    name, values = run_one_at_a_time(config)[0]
    assert name == "t0001"
    assert values == {"optimizer.lr": 3e-3, "data.context_length": 48, "model.d_model": 32}


def test_a_base_config_outside_the_space_is_not_a_trial() -> None:
    _, values = run_one_at_a_time(small_config(**{"optimizer.lr": 0.5}))[0]
    assert values["optimizer.lr"] <= 1e-2


def test_as_many_trials_as_asked_are_suggested_each_once_and_each_can_be_built() -> None:
    config = small_config()
    suggested = run_one_at_a_time(config)
    assert [name for name, _ in suggested] == [f"t{i:04d}" for i in range(1, 16)]
    assert len({str(values) for _, values in suggested}) == 15
    assert all(with_values(config, v).data.context_length == v["data.context_length"] for _, v in suggested)


def test_sizes_that_do_not_fit_are_drawn_again_and_counted() -> None:
    space = {"model.d_model": {"choices": [16, 24, 40]}, "model.headdim": {"choices": [8, 16, 24, 80]}}
    config = small_config(**{"search.space": space, "model.d_model": 16, "search.searcher": "random"})
    searcher = TrialSearcher(config, RunState())
    built = [with_values(config, searcher.suggest("")["values"]) for _ in range(15)]  # type: ignore[index]
    assert len(built) == 15
    assert searcher.redrawn > 0


def test_a_space_in_which_nothing_fits_ends_with_the_last_refusal() -> None:
    space = {"model.headdim": {"choices": [7]}}
    with pytest.raises(ConfigError, match=r"draws in a row cannot be built, the last because.*headdim 7"):
        TrialSearcher(small_config(**{"search.space": space}), RunState()).suggest("")


def test_a_finished_trial_counts_with_its_best_report_and_a_stopped_one_as_pruned() -> None:
    searcher = TrialSearcher(small_config(), RunState())
    names = [searcher.suggest("")["trial"] for _ in range(4)]  # type: ignore[index]
    searcher.tell(ended(names[0], {}, [0.1, 0.5, 0.3]))
    searcher.tell(ended(names[1], {}, [0.1, 0.2, 0.15], state="stopped"))
    searcher.tell(ended(names[2], {}, [0.1], state="failed"))
    searcher.tell(ended(names[3], {}, [0.1], state="interrupted"))
    finished, stopped, failed, interrupted = study_of(searcher)
    assert (finished.state, finished.value) == (Verdict.COMPLETE, 0.5)
    assert (stopped.state, stopped.intermediate_values) == (Verdict.PRUNED, {1: 0.1, 2: 0.2, 3: 0.15})
    assert (failed.state, interrupted.state) == (Verdict.FAIL, Verdict.RUNNING)


def test_a_search_for_the_smallest_value_learns_the_smallest() -> None:
    searcher = TrialSearcher(small_config(**{"search.mode": "min"}), RunState())
    name = searcher.suggest("")["trial"]  # type: ignore[index]
    searcher.tell(ended(name, {}, [0.3, 0.1, 0.2]))
    assert study_of(searcher)[0].value == 0.1


def state_of(*trials: TrialState) -> RunState:
    return RunState(trials={trial.id: trial for trial in trials})


def values(lr: float) -> dict[str, Any]:
    return {"optimizer.lr": lr, "data.context_length": 64, "model.d_model": 16}


def test_a_resume_runs_the_unended_first_with_their_ids_and_values_then_the_rest() -> None:
    state = state_of(
        ended("t0001", values(1e-3), [0.1, 0.2]),
        ended("t0002", values(2e-3), [0.3], state="interrupted"),
        ended("t0003", values(3e-3), [0.1], state="stopped"),
        ended("t0004", values(4e-3), [], state="running"),
        ended("t0005", values(5e-3), [], state="failed"),
    )
    suggested = run_one_at_a_time(small_config(**{"search.trials": 7}), state)
    assert suggested[:2] == [("t0002", values(2e-3)), ("t0004", values(4e-3))]
    assert [name for name, _ in suggested[2:]] == ["t0006", "t0007"]


def test_a_resume_teaches_the_study_what_the_live_search_taught() -> None:
    live = TrialSearcher(small_config(), RunState())
    past = []
    for scores, how in (([0.1, 0.5, 0.3], "finished"), ([0.1, 0.2], "stopped"), ([0.1], "failed")):
        found = live.suggest("")
        assert isinstance(found, dict)
        past.append(ended(found["trial"], found["values"], scores, how))
        live.tell(past[-1])
    resumed = TrialSearcher(small_config(), state_of(*past))
    for was, now in zip(study_of(live)[:2], study_of(resumed)[:2], strict=True):
        assert (was.state, was.params) == (now.state, pytest.approx(now.params, rel=0.05))
        assert was.intermediate_values == now.intermediate_values
    assert study_of(resumed)[0].value == 0.5
    assert study_of(resumed)[2].state == Verdict.FAIL


def test_a_resume_does_not_draw_the_same_points_again() -> None:
    first = run_one_at_a_time(small_config(**{"search.trials": 4}))
    state = state_of(*(ended(name, point, [0.1]) for name, point in first))
    resumed = run_one_at_a_time(small_config(**{"search.trials": 8}), state)
    drawn = {point["optimizer.lr"] for _, point in first}
    assert len(resumed) == 4
    assert not drawn & {point["optimizer.lr"] for _, point in resumed}


def test_nothing_is_left_to_suggest_when_the_log_holds_all_trials() -> None:
    state = state_of(ended("t0001", values(1e-3), [0.1]), ended("t0002", values(2e-3), [0.2]))
    searcher = TrialSearcher(small_config(**{"search.trials": 2}), state)
    assert searcher.remaining == 0
    assert searcher.suggest("") == Searcher.FINISHED


def test_past_trials_of_another_space_count_but_teach_nothing() -> None:
    state = state_of(ended("t0001", {"optimizer.lr": 0.5}, [0.1]))
    searcher = TrialSearcher(small_config(**{"search.trials": 2}), state)
    assert searcher.remaining == 1
    assert study_of(searcher) == []


def decisions(scheduler: TrialScheduler, name: str, scores: Sequence[float]) -> list[str]:
    trial = SimpleNamespace(trial_id=name)
    scheduler.on_trial_add(None, trial)
    return [
        scheduler.on_trial_result(None, trial, {"report": i, "score": score})
        for i, score in enumerate(scores, 1)
    ]


def test_asha_compares_first_at_the_third_report_and_never_stops_the_last() -> None:
    scheduler = build_scheduler(small_config(), RunState())  # 20 reports: rungs at 3 and 9
    decisions(scheduler, "t0001", [0.5] * 20)
    worse = decisions(scheduler, "t0002", [0.1] * 20)
    assert [i for i, decision in enumerate(worse, 1) if decision == TrialScheduler.STOP] == [3, 9]


def test_asha_starts_later_in_trials_with_many_reports() -> None:
    scheduler = build_scheduler(small_config(**{"train.max_steps": 2000}), RunState())  # 100 reports
    decisions(scheduler, "t0001", [0.5] * 100)
    worse = decisions(scheduler, "t0002", [0.1] * 100)
    assert worse.index(TrialScheduler.STOP) + 1 == 6


def test_asha_keeps_the_smaller_in_a_search_for_the_smallest() -> None:
    scheduler = build_scheduler(small_config(**{"search.mode": "min"}), RunState())
    decisions(scheduler, "t0001", [0.5] * 5)
    assert TrialScheduler.STOP not in decisions(scheduler, "t0002", [0.1] * 5)
    assert TrialScheduler.STOP in decisions(scheduler, "t0003", [0.9] * 5)


def test_a_resumed_asha_stops_what_the_unbroken_one_would() -> None:
    state = state_of(
        ended("t0001", values(1e-3), [0.5] * 20),
        ended("t0002", values(1e-3), [0.9] * 2, state="interrupted"),
    )
    scheduler = build_scheduler(small_config(), state)
    assert decisions(scheduler, "t0003", [0.1] * 3)[-1] == TrialScheduler.STOP


def test_without_a_scheduler_nothing_is_stopped() -> None:
    scheduler = build_scheduler(small_config(**{"search.scheduler": "none"}), RunState())
    trial = SimpleNamespace(trial_id="t0001")
    found = [scheduler.on_trial_result(None, trial, {"report": i, "score": -i}) for i in range(1, 21)]
    assert set(found) == {TrialScheduler.CONTINUE}

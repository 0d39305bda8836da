"""Where a run stands: counts, the best, what it has to beat, the time left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foxhunt_ray.events import RunState
from foxhunt_ray.report.standing import standing, strongest_baseline

Folded = Callable[..., RunState]


def test_best_is_the_highest_of_trials_that_did_not_fail(folded: Folded) -> None:
    state = folded([0.1, 0.4, 0.9, 0.2])
    state.trials["t0002"].state = "failed"
    now = standing(state)
    assert (now.best_trial, now.best) == ("t0001", 0.4)
    assert (now.ended, now.total) == (4, 4)


def test_best_of_a_minimised_metric_is_the_lowest(folded: Folded) -> None:
    state = folded([0.3, -0.2])
    state.info["mode"] = "min"
    assert standing(state).best_trial == "t0001"


def test_run_without_trials_has_no_best(folded: Folded) -> None:
    now = standing(folded([], trials=5))
    assert (now.best, now.best_trial, now.ended, now.total, now.eta_s) == (None, "", 0, 5, None)


@pytest.mark.parametrize(("ended", "eta_s"), [(2, None), (3, 63.0), (9, 9.0), (10, None)])
def test_eta_is_mean_time_by_trials_left_after_three(folded: Folded, ended: int, eta_s: float | None) -> None:
    assert standing(folded([0.1] * ended, trials=10)).eta_s == eta_s  # each takes 9 s


def test_eta_counts_lanes_and_what_running_trials_have_done(folded: Folded) -> None:
    state = folded([0.1] * 4, trials=8)
    state.info["resources"]["concurrent"] = 2
    state.apply({"t": 2000.0, "kind": "trial_started", "trial": "x", "values": {}})
    state.apply({"t": 2004.0, "kind": "report", "trial": "x", "step": 1, "report": 1, "metrics": {}})
    assert standing(state).eta_s == (4 * 9 - 4) / 2


def test_strongest_baseline_prefers_the_metric_and_falls_back_to_all_windows() -> None:
    baselines = {"zero": {"val/skill": 0.0}, "ridge": {"val_full/skill": 0.3}, "last": {"val/skill": None}}
    assert strongest_baseline(baselines, "val/skill") == ("ridge", 0.3)
    assert strongest_baseline(baselines, "val/skill", "min") == ("zero", 0.0)
    assert strongest_baseline({}, "val/skill") is None

"""Where a run stands, from its fold: counts, the best so far, what it has to beat, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from foxhunt_ray.events import RunState, TrialState

_TRIALS_FOR_ETA = 3


@dataclass(frozen=True)
class Standing:
    """A moment of a run.

    Attributes:
        total: trials that the run is to have.
        counts: trials by state.
        scores: best value of the search metric of each trial; None where it reported none.
        best: best value of the search metric over trials that did not fail; None before the first report.
        best_trial: the trial that holds it.
        baseline: name and value of the strongest baseline; None without one.
        eta_s: seconds to the end; None before three trials ended, and at the end.
    """

    total: int
    counts: Mapping[str, int]
    scores: Mapping[str, float | None]
    best: float | None
    best_trial: str
    baseline: tuple[str, float] | None
    eta_s: float | None

    @property
    def ended(self) -> int:
        """Trials that are no longer running."""
        return sum(n for state, n in self.counts.items() if state != "running")


def standing(state: RunState) -> Standing:
    """The run's standing at its last event."""
    metric, mode = state.info["metric"], state.info["mode"]
    scores = {t.id: _best_value(t, metric, mode) for t in state.trials.values()}
    usable = [(s, i) for i, s in scores.items() if s is not None and state.trials[i].state != "failed"]
    pick = max if mode == "max" else min
    best, best_trial = pick(usable, key=lambda pair: pair[0], default=(None, ""))
    return Standing(
        total=max(state.info["config"]["search"]["trials"], len(state.trials)),
        counts=Counter(t.state for t in state.trials.values()),
        scores=scores,
        best=best,
        best_trial=best_trial,
        baseline=strongest_baseline(state.info["baselines"], metric, mode),
        eta_s=_eta_s(state),
    )


def strongest_baseline(
    baselines: Mapping[str, Mapping[str, float | None]], metric: str, mode: str = "max"
) -> tuple[str, float] | None:
    """Name and value of the baseline that is best in ``metric``; None when none has it.

    Baselines may be scored on the full validation windows only, which then stand for the subset.
    """
    full = metric.replace("val/", "val_full/", 1)
    scored = {name: m.get(metric, m.get(full)) for name, m in baselines.items()}
    found = [(name, value) for name, value in scored.items() if value is not None]
    pick = max if mode == "max" else min
    return pick(found, key=lambda pair: pair[1], default=None)


def _best_value(trial: TrialState, metric: str, mode: str) -> float | None:
    report = trial.best(metric, mode)
    return float(report["metrics"][metric]) if report else None


def _eta_s(state: RunState) -> float | None:
    """Mean time of an ended trial x trials to come, less what the running ones have done, a lane each."""
    ended = [t.ended - t.started for t in state.trials.values() if t.state != "running"]
    left: int = state.info["config"]["search"]["trials"] - len(ended)
    if len(ended) < _TRIALS_FOR_ETA or left <= 0:
        return None
    mean: float = sum(ended) / len(ended)
    spent = (min(mean, state.updated - t.started) for t in state.trials.values() if t.state == "running")
    lanes: int = max(1, min(left, state.info["resources"]["concurrent"]))
    return max(0.0, (mean * left - sum(spent)) / lanes)

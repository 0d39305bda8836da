"""Who suggests trials (an Optuna study in memory) and who stops them early (ASHA), both rebuilt from the log.

Neither is ever read back from Tune's or Optuna's own files: the fold of ``events.jsonl`` says how each trial
ended, and the same ``tell`` teaches the study while a search runs and when one is resumed. The first trial is
the base config itself, so that a table always shows what tuning was worth.
"""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import optuna
from optuna.trial import TrialState as Verdict
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from foxhunt_ray.config import Config, Range, with_values
from foxhunt_ray.errors import ConfigError
from foxhunt_ray.events import ENDED, RunState, TrialState
from foxhunt_ray.search.space import distributions, values_from, values_inside

SCORE = "score"
"""Name under which a trial hands the value of ``search.metric`` to Tune."""

_MAX_REDRAWS = 200
_MIN_GRACE_REPORTS = 3  # after 1 report of 50 the order of trials says nothing about their order at the end
_GRACE_FRAC = 0.06
_REDUCTION_FACTOR = 3  # eta of arXiv 1810.05934


class TrialSearcher(Searcher):  # type: ignore[misc]  # Ray ships no types
    """Suggests ``{"trial": id, "values": {dotted path: value}}``; trials that a log left unended come first.

    Args:
        config: the base config; its ``search`` section says what is drawn, how, and how many.
        state: fold of the run's log; empty for a new run.

    Attributes:
        remaining: trials that are still to be suggested.
        redrawn: draws that were replaced because the config refused them (sizes that do not fit).
    """

    def __init__(self, config: Config, state: RunState) -> None:
        search = config.search
        super().__init__(metric=SCORE, mode=search.mode)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._config = config
        self._distributions = distributions(search.space)
        direction = "maximize" if search.mode == "max" else "minimize"
        # The number of known trials is in the seed: a resumed run must not draw again the points it has.
        sampler = _sampler(search.searcher, seed=config.seed + len(state.trials))
        self._study = optuna.create_study(direction=direction, sampler=sampler)
        self._open: dict[str, optuna.Trial] = {}
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._next_number = 1 + max((int(name[1:]) for name in state.trials), default=0)
        self.redrawn = 0
        for trial in state.trials.values():
            if trial.state in ENDED and trial.state != "interrupted":
                self._add_past(trial)
            else:
                self._waiting.append((trial.id, trial.values))
        self.remaining = max(0, search.trials - (len(state.trials) - len(self._waiting)))
        if not state.trials:
            self._queue_base_config()

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        """The next trial, or ``Searcher.FINISHED``; Tune's own ``trial_id`` is not used.

        Raises:
            ConfigError: many draws in a row made no config that can be built.
        """
        if self.remaining == 0:
            return str(Searcher.FINISHED)
        if self._waiting:
            name, values = self._waiting.popleft()
            if values_inside(self._config.search.space, values):
                self._study.enqueue_trial(values)
                self._open[name] = self._study.ask(self._distributions)
        else:
            name = self._new_name()
            self._open[name], values = self._draw()
        self.remaining -= 1
        return {"trial": name, "values": values}

    def tell(self, trial: TrialState) -> None:
        """Teach the study how a trial ended; an interrupted one teaches nothing."""
        asked = self._open.pop(trial.id, None)
        verdict, value, scores = self._judge(trial)
        if asked is None or verdict is None:
            return
        for report, score in scores.items():
            asked.report(score, report)
        self._study.tell(asked, value, state=verdict)

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Nothing: ``tell`` is given our own account of the trial, which knows stopped from finished."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a resume is rebuilt from the log."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: a resume is rebuilt from the log."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles what it is given into its scratch folder, which is never read back

    def _new_name(self) -> str:
        name = f"t{self._next_number:04d}"
        self._next_number += 1
        return name

    def _queue_base_config(self) -> None:
        space = self._config.search.space
        values = {path: _config_value(self._config, path) for path in space}
        if values_inside(space, values):
            self._waiting.append((self._new_name(), values))

    def _draw(self) -> tuple[optuna.Trial, dict[str, Any]]:
        for _ in range(_MAX_REDRAWS):
            asked = self._study.ask(self._distributions)
            values = values_from(self._config.search.space, asked.params)
            try:
                with_values(self._config, values)
            except ConfigError as err:
                self._study.tell(asked, state=Verdict.FAIL)
                self.redrawn += 1
                refusal = str(err)
            else:
                return asked, values
        raise ConfigError(
            f"search.space: {_MAX_REDRAWS} draws in a row cannot be built, the last because {refusal}; "
            "narrow the ranges, or give choices that fit each other"
        )

    def _add_past(self, trial: TrialState) -> None:
        if not values_inside(self._config.search.space, trial.values):
            return  # the space was changed between the runs: the trial counts, but teaches nothing
        verdict, value, scores = self._judge(trial)
        self._study.add_trial(
            optuna.trial.create_trial(
                state=verdict,
                value=value,
                params=trial.values,
                distributions=self._distributions,
                intermediate_values=scores,
            )
        )

    def _judge(self, trial: TrialState) -> tuple[Verdict | None, float | None, dict[int, float]]:
        """Optuna's state of a trial, the value of a complete one, and the score at each report."""
        metric = self._config.search.metric
        best = trial.best(metric, self._config.search.mode)
        if trial.state == "interrupted":
            return None, None, {}
        if best is None or trial.state == "failed":
            return Verdict.FAIL, None, {}
        scores = {r["report"]: r["metrics"][metric] for r in trial.reports if metric in r["metrics"]}
        if trial.state == "stopped":
            return Verdict.PRUNED, None, scores
        return Verdict.COMPLETE, best["metrics"][metric], scores


def build_scheduler(config: Config, state: RunState) -> TrialScheduler:
    """ASHA (arXiv 1810.05934) over report numbers, its rungs filled from the log; or one that never stops.

    A trial is compared first after 6 % of its reports and never before the third, then at 3 times that, and
    so on; at each of these it goes on if it is in the best third of those that got there before it.
    """
    if config.search.scheduler == "none":
        return FIFOScheduler()
    reports = math.ceil(_longest_steps(config) / config.train.report_every)
    grace = max(_MIN_GRACE_REPORTS, round(_GRACE_FRAC * reports))
    scheduler = ASHAScheduler(
        time_attr="report",
        metric=SCORE,
        mode=config.search.mode,
        grace_period=grace,
        reduction_factor=_REDUCTION_FACTOR,
        max_t=max(grace, reports),
        stop_last_trials=False,
    )
    for trial in state.trials.values():
        if trial.state in ("finished", "stopped"):
            _replay(scheduler, trial, config.search.metric)
    return scheduler


def _replay(scheduler: TrialScheduler, trial: TrialState, metric: str) -> None:
    handle = SimpleNamespace(trial_id=trial.id)  # all that ASHA reads of a trial
    scheduler.on_trial_add(None, handle)
    for report in trial.reports:
        result = {"report": report["report"], SCORE: report["metrics"][metric]}
        scheduler.on_trial_result(None, handle, result)


def _longest_steps(config: Config) -> int:
    dimension = config.search.space.get("train.max_steps")
    if dimension is None:
        return config.train.max_steps
    return int(dimension.high if isinstance(dimension, Range) else max(map(float, dimension.choices)))


def _sampler(kind: str, *, seed: int) -> optuna.samplers.BaseSampler:
    if kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _config_value(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value

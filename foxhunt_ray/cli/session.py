"""One run inside its folder: data into Ray, trials, the winner's test score, the files it leaves.

``tune`` and ``train`` differ in one function, which turns prepared data into ended trials in the log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import ray

from foxhunt_ray import cluster, trial
from foxhunt_ray.cluster import TrialResources
from foxhunt_ray.config import Config, with_values
from foxhunt_ray.data import Prepared, Survey, prepare
from foxhunt_ray.errors import FoxhuntError, SearchError
from foxhunt_ray.events import EventLog, RunState
from foxhunt_ray.predict import forecast_table, preprocessing
from foxhunt_ray.report.live import LiveView
from foxhunt_ray.search.environment import installed_versions, write_env
from foxhunt_ray.search.results import choose_winner, write_best, write_results
from foxhunt_ray.search.tuner import Outcome, run_search
from foxhunt_ray.search.worker import one_line

Drive = Callable[..., Outcome]


def run_in(
    folder: Path, config: Config, survey: Survey, *, drive: Drive, argv: Sequence[str], stream: TextIO
) -> tuple[Outcome, dict[str, Any]]:
    """How the run ended, and what its results.json holds.

    Args:
        folder: the run's folder, absolute and locked by the caller.
        config: the run's config.
        survey: its data.
        drive: ``tune_trials`` or ``train_one``.
        argv: the command, for env.json.
        stream: where the live view is shown.

    Raises:
        ClusterError: Ray cannot be started or joined, or lacks what a trial asks.
        SearchError: the log could not be written.
        CheckpointError: the storage is lost or full.
    """
    with closing(EventLog(folder / "events.jsonl")) as log, cluster.connect(config, data_bytes=survey.nbytes):
        resources = cluster.trial_resources(config)
        if drive is train_one:
            resources = replace(resources, concurrent=1)
        cluster.check_storage(folder)
        if resources.gpus:  # torch must see, where trials run, what Ray gives them
            _where_trials_run(trial.pick_device, resources, resources.gpus)
        with _interruptible() as caught:
            try:
                prepared = prepare(config, survey)
                write_env(folder, argv=argv, data_fingerprint=survey.fingerprint)
                _begin(log, folder.name, config, survey, prepared, resources)
                log.listeners.append(_ResultsWriter(folder))
                with LiveView(stream) as view:
                    log.listeners.append(view)
                    outcome = drive(config, prepared, log=log, folder=folder, resources=resources)
                if outcome.status == "finished":
                    _crown(config, prepared, log=log, folder=folder, resources=resources)
            except KeyboardInterrupt:
                outcome = Outcome("interrupted", signal=caught[-1] if caught else signal.SIGINT)
            log.append("run_ended", status=outcome.status)
            return outcome, write_results(folder, log.state) if log.state.info else {}


def tune_trials(
    config: Config, prepared: Prepared, *, log: EventLog, folder: Path, resources: TrialResources
) -> Outcome:
    """Trials that Optuna suggests and Ray Tune runs."""
    return run_search(config, prepared, log=log, folder=folder, resources=resources, run_trial=trial.run)


def train_one(
    config: Config, prepared: Prepared, *, log: EventLog, folder: Path, resources: TrialResources
) -> Outcome:
    """The config itself as the only trial, in this process; an interrupted one goes on mid-training."""
    name = "t0001"
    before = log.state.trials.get(name)
    if before is not None and before.state == "finished":
        return Outcome("finished")
    device = trial.pick_device(resources.gpus)
    if before is None:
        log.append("trial_started", trial=name, values={}, device=device)
    else:
        log.append("trial_resumed", trial=name)
    state, reason = "interrupted", "stopped by the user"
    try:
        for progress in trial.run(
            config, prepared, folder=folder / "trials" / name, device=device, resume=before is not None
        ):
            told = {key: getattr(progress, key) for key in ("step", "report", "metrics", "tier")}
            log.append("report", trial=name, **told)
            reason = progress.reason or reason
        state = "finished"
    except FoxhuntError as err:
        state, reason = "failed", one_line(err)
    finally:
        log.append("trial_ended", trial=name, state=state, reason=reason)
    return Outcome(state, reason)


class _ResultsWriter:
    """Rewrites results.json as trials end, so that a run that is killed leaves one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, event: Mapping[str, Any], state: RunState) -> None:
        if event["kind"] == "trial_ended":
            write_results(self._folder, state)


def _begin(
    log: EventLog, name: str, config: Config, survey: Survey, prepared: Prepared, resources: TrialResources
) -> None:
    tree = config.model_dump(mode="json", by_alias=True)
    if log.state.info:
        log.append("run_resumed", config=tree)
        return
    log.append(
        "run_started",
        name=name,
        config=tree,
        seed=config.seed,
        metric=config.search.metric,
        mode=config.search.mode,
        data=survey.summary(),
        baselines=trial.baselines(prepared, survey),
        resources={"cpus": resources.cpus, "gpus": resources.gpus, "concurrent": resources.concurrent},
        versions=installed_versions(),
    )


def _crown(
    config: Config, prepared: Prepared, *, log: EventLog, folder: Path, resources: TrialResources
) -> None:
    """Score the winner on test, once, and leave in ``best/`` all that prediction needs of it."""
    winner = choose_winner(log.state)
    if winner is None:
        return
    chosen = with_values(config, winner.values)
    scored = _score(chosen, prepared, folder / "trials" / winner.id / "best", resources=resources)
    forecasts = {split: forecast for split, (_, forecast) in scored.items()}
    test = {f"test/{key}": value for key, value in scored.get("test", ({}, None))[0].items()}
    log.append("winner", trial=winner.id, metrics=test)
    write_best(
        folder,
        trial_id=winner.id,
        config=chosen,
        preprocessing=preprocessing(prepared),
        metrics=winner.last_metrics | test,
        predictions=forecast_table(prepared, forecasts),
    )


def _score(config: Config, prepared: Prepared, weights: Path, *, resources: TrialResources) -> dict[str, Any]:
    splits = tuple(s for s in ("val", "test") if len(prepared.windows(s)))
    device = "cuda" if resources.gpus else "cpu"
    scored: dict[str, Any] = _where_trials_run(
        trial.score, resources, config, prepared, weights / "model.safetensors", splits=splits, device=device
    )
    return scored


def _where_trials_run(
    function: Callable[..., Any], resources: TrialResources, *args: Any, **more: Any
) -> Any:
    """What ``function`` returns on a node with a trial's resources, since the driver may have no GPU.

    Raises:
        FoxhuntError: as the function raised it; a SearchError for any other error there.
    """
    task = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=1)(function)
    try:
        return ray.get(task.remote(*args, **more))
    except ray.exceptions.RayError as err:
        cause = getattr(err, "cause", err)
        if isinstance(cause, FoxhuntError):
            raise cause from None
        raise SearchError(f"{function.__name__} failed on the cluster: {one_line(cause)}") from err


@contextmanager
def _interruptible() -> Iterator[list[signal.Signals]]:
    """Within it SIGTERM interrupts as Ctrl-C does (Ray's own handler exits at once); yields what came."""
    caught: list[signal.Signals] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        caught.append(signal.Signals(number))
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

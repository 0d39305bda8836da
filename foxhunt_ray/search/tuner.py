"""Run or resume a search: ``trial.run`` under Ray Tune, with every event of it in the run's own log.

Tune places trials, keeps their processes warm and asks the scheduler; it decides nothing else. Searcher,
scheduler and results are built from ``events.jsonl``, so a search that ended in any way can go on. The
surprising part: the log, not Tune, says which trials have finished, and Tune's own files are never read.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.error import TuneError

from foxhunt_ray.cluster import TrialResources
from foxhunt_ray.config import Config
from foxhunt_ray.errors import SearchError
from foxhunt_ray.events import EventLog, RunState
from foxhunt_ray.search.monitor import Monitor
from foxhunt_ray.search.searcher import TrialSearcher, build_scheduler
from foxhunt_ray.search.worker import RunTrial, TrialWorker, one_line

_MAX_RESTARTS = 3
_KILLED = "Caught unexpected exception"  # Tune's words for an error that is neither a task's nor an actor's
_TUNE_ENV = {
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0 and a mute reporter: no table, no box
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # nobody reads its CSV, JSON and TensorBoard files
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours knows which signal came
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the result that carries a failure has no score
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # its state is never read back
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass(frozen=True)
class Outcome:
    """How a search ended; what happened in it is in the log.

    Attributes:
        status: "finished"; "interrupted" by a signal; or "failed", when not one trial has a score.
        reason: why it ended before its number of trials; empty if it did not.
        signal: SIGINT or SIGTERM when one of them ended it, else None.
    """

    status: str
    reason: str = ""
    signal: signal.Signals | None = None


def run_search(
    config: Config,
    prepared: Any,
    *,
    log: EventLog,
    folder: Path,
    resources: TrialResources,
    run_trial: RunTrial,
) -> Outcome:
    """How the search ended, once ``search.trials`` trials have ended, those that ``log`` holds among them.

    While it runs in the main thread, SIGINT and SIGTERM end it in order, with every trial accounted for in
    the log; trials in a long step are killed after 1.5 s. A second signal raises KeyboardInterrupt at once.

    Args:
        config: base config of every trial.
        prepared: what trials read their data from; handed to each process once, by reference.
        log: the run's log; each trial's start, reports and end are appended.
        folder: absolute folder of the run; a trial may write to ``folder/trials/<its id>``.
        resources: what a trial is given, and how many run at once.
        run_trial: the trial itself, ``trial.run``.

    Raises:
        SearchError: the log could not be written, or Tune gave up and could not be started again.
        ConfigError: the search space holds no config that can be built.
    """
    os.environ.update(_TUNE_ENV)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what it has to say is in the log
    monitor = Monitor(log, device="cuda" if resources.gpus else "cpu", minutes=config.search.minutes)
    trainable = tune.with_resources(
        tune.with_parameters(
            TrialWorker,
            base=config,
            prepared=prepared,
            folder=folder,
            resources=resources,
            run_trial=run_trial,
        ),
        _request(resources),
    )
    scratch = folder.parent / ".ray" / folder.name
    with monitor.signals():
        try:
            _fit(
                trainable, config, log=log, scratch=scratch, concurrent=resources.concurrent, monitor=monitor
            )
        finally:
            monitor.end_running("interrupted", monitor.reason or "the search was aborted")
            shutil.rmtree(scratch, ignore_errors=True)
    if monitor.error is not None:
        raise SearchError(f"{log.path}: {monitor.reason} ({one_line(monitor.error)})") from monitor.error
    return Outcome(_status(config, log.state, monitor), monitor.reason, monitor.signal)


def _fit(
    trainable: type[tune.Trainable],
    config: Config,
    *,
    log: EventLog,
    scratch: Path,
    concurrent: int,
    monitor: Monitor,
) -> None:
    """Run what the log leaves to run, again if Tune gives up because Ray killed a worker for memory."""
    for restarts_left in reversed(range(_MAX_RESTARTS + 1)):
        monitor.searcher = TrialSearcher(config, log.state)
        if monitor.searcher.remaining == 0 or monitor.reason:
            return
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            _tuner(trainable, config, log.state, monitor, scratch=scratch, concurrent=concurrent).fit()
            return
        except RuntimeError as err:
            if _KILLED not in str(err) or not restarts_left:
                raise SearchError(f"Ray Tune gave up: {one_line(err)}") from err
            monitor.end_running("failed", "OutOfMemoryError: Ray killed a worker for memory while this ran")
        except (OSError, EOFError, TuneError) as err:
            raise SearchError(f"Ray Tune gave up: {one_line(err)}; is there space in {scratch}?") from err


def _tuner(
    trainable: type[tune.Trainable],
    config: Config,
    state: RunState,
    monitor: Monitor,
    *,
    scratch: Path,
    concurrent: int,
) -> tune.Tuner:
    assert monitor.searcher is not None
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=monitor.searcher,
            scheduler=build_scheduler(config, state),
            num_samples=monitor.searcher.remaining,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config["trial"]),
        ),
        run_config=tune.RunConfig(
            name=scratch.name,
            storage_path=str(scratch.parent),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # trials keep their own
            callbacks=[monitor],
            stop=monitor,
            verbose=0,
            progress_reporter=_Mute(),
        ),
    )


class _Mute(tune.ProgressReporter):  # type: ignore[misc]  # Ray ships no types
    """Keeps Tune's own table away."""

    def should_report(self, trials: list[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: list[Any], done: bool, *sys_info: Any) -> None:
        """Nothing."""


def _request(resources: TrialResources) -> dict[str, float]:
    asked = {"cpu": resources.cpus, "gpu": resources.gpus, "memory": resources.memory_bytes}
    return {name: amount for name, amount in asked.items() if amount}


def _status(config: Config, state: RunState, monitor: Monitor) -> str:
    if monitor.signal is not None:
        return "interrupted"
    search = config.search
    scored = any(trial.best(search.metric, search.mode) for trial in state.trials.values())
    return "finished" if scored else "failed"

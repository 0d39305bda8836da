"""What the driver of a search hears from Tune, written to the run's log; and its say in when to stop.

Tune calls it for each event of a trial and asks it about ten times a second whether to end everything. An
exception raised here would reach the user as Tune's traceback, so the first one is kept, ends the search and
is raised again by ``run_search``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray import tune
from ray.tune.stopper import Stopper

from foxhunt_ray.events import EventLog
from foxhunt_ray.search.searcher import TrialSearcher

_GRACE_S = 1.5  # `ray job stop` kills 3 s after its SIGTERM; Tune waits 10 s for a trial in a long step
_ALIKE = 3  # a fault of the data or the machine fails every trial in the same words


class Monitor(tune.Callback, Stopper):  # type: ignore[misc]  # Ray ships no types
    """Appends trial_started, report and trial_ended to ``log``, and ends the search when it must end.

    Attributes:
        searcher: told how each trial ended; set before each ``fit``.
        reason: why the search ends before its number of trials; empty while it need not.
        signal: SIGINT or SIGTERM, once one came.
        error: the first exception that was kept.
    """

    def __init__(self, log: EventLog, *, device: str, minutes: float) -> None:
        self.searcher: TrialSearcher | None = None
        self.reason = ""
        self.signal: signal.Signals | None = None
        self.error: Exception | None = None
        self._log, self._device, self._minutes = log, device, minutes
        self._deadline = time.monotonic() + 60 * minutes if minutes else float("inf")
        self._actors: dict[str, Any] = {}  # of running trials only: a handle that is kept keeps the process
        self._grace = threading.Timer(_GRACE_S, self._kill_all)
        self._failures: list[str] | None = []  # None once a trial did anything but fail

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Log the start of a trial."""
        self._actors[_name(trial)] = trial.temporary_state.ray_actor
        with self._kept():
            self._start(trial)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Log a report, and the end that may come with it."""
        with self._kept():
            if "failed" in result:
                self._end(trial, "failed", result["failed"])
                return
            fields = {key: result[key] for key in ("step", "report", "metrics", "tier")}
            self._log.append("report", trial=_name(trial), **fields)
            if result["finished"]:
                self._end(trial, "finished", result["reason"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Log the end of a trial that did not end by itself: the scheduler stopped it."""
        with self._kept():
            if self._is_running(trial):
                self._end(trial, "stopped", f"behind its peers at report {trial.last_result['report']}")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Log the failure of a trial that could not report it: its process died, or never started."""
        with self._kept():
            if _name(trial) not in self._log.state.trials:
                self._start(trial)
            if self._is_running(trial):
                self._end(trial, "failed", _cause(trial))

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """False: no trial is stopped here."""
        return False

    def stop_all(self) -> bool:
        """Whether the search must end now; what still runs is then logged as interrupted at once."""
        if not self.reason and time.monotonic() > self._deadline:
            self.reason = f"search.minutes = {self._minutes:g} are over"
        if self.reason:
            with self._kept():
                self.end_running("interrupted", self.reason)
        return bool(self.reason)

    def end_running(self, state: str, reason: str) -> None:
        """Log that every trial which runs has ended in ``state``."""
        for trial in self._log.state.trials.values():
            if trial.state == "running":
                self._log.append("trial_ended", trial=trial.id, state=state, reason=reason)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Within it (in the main thread) SIGINT and SIGTERM end the search in order.

        Raises:
            KeyboardInterrupt: a second signal came.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        previous = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            self._grace.cancel()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles what it is given into its scratch folder, which is never read back

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        self.reason = self.signal.name
        self._grace.start()

    def _kill_all(self) -> None:
        """Kill the trials' processes; Tune, which waits for them, takes that for a stop."""
        for actor in list(self._actors.values()):
            ray.kill(actor)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except Exception as err:
            self.error = self.error or err
            self.reason = self.reason or "the log could not be written"

    def _is_running(self, trial: Any) -> bool:
        return self._log.state.trials[_name(trial)].state == "running"

    def _start(self, trial: Any) -> None:
        values = trial.config["values"]
        self._log.append("trial_started", trial=_name(trial), values=values, device=self._device)

    def _end(self, trial: Any, state: str, reason: str) -> None:
        self._actors.pop(_name(trial), None)
        self._log.append("trial_ended", trial=_name(trial), state=state, reason=reason)
        if self.searcher is not None:
            self.searcher.tell(self._log.state.trials[_name(trial)])
        if state != "failed":
            self._failures = None
        elif self._failures is not None:
            self._failures.append(reason)
            if len(self._failures) >= _ALIKE and len(set(self._failures)) == 1:
                self.reason = self.reason or f"the first {_ALIKE} trials failed alike: {reason}"


def _name(trial: Any) -> str:
    return str(trial.config["trial"])


def _cause(trial: Any) -> str:
    """One line from the error text that Ray kept for ``trial``: of a traceback, the exception."""
    text = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
    if "ray::" in text:  # the head of a traceback from the trial's process
        return text.strip().splitlines()[-1].strip()
    return "the process of the trial died: killed, out of memory, or its machine is gone"

"""The events of a run as plain ``key=value`` lines, for job logs, pipes and files.

A log that nobody watches must stay short and still show life: with more than a dozen trials only every k-th
end is printed, beside new bests and the first failures, and the pause between progress lines grows with
the age of the run.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from foxhunt_ray.events import RunState
from foxhunt_ray.report.standing import Standing, standing
from foxhunt_ray.report.text import number, shown

_EVERY_END = 8  # trials up to which each end has its line
_ENDS = 5  # lines for ends beside those below, in a longer search
_BESTS = 4
_FAILURES = 3
_QUIET_S = 30.0


class PlainLines:
    """Prints an event as at most one flushed line to ``stream``; call it with an event and the state."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._began = self._printed = clock()
        self._best_trial = ""
        self._bests = self._failures = 0

    def __call__(self, event: Mapping[str, Any], state: RunState) -> None:
        """Print what is worth a line now."""
        kind = event["kind"]
        if kind == "trial_ended":
            self._trial_ended(event, state)
        elif kind == "report" and self._quiet_for_long():
            self._progress(event, state)
        elif kind in ("run_started", "run_resumed"):
            now = standing(state)
            self._print(event, kind.replace("_", "="), f"name={shown(state.info['name'])}", *_totals(now))

    def _trial_ended(self, event: Mapping[str, Any], state: RunState) -> None:
        now = standing(state)
        failed = event["state"] == "failed"
        is_best = now.best_trial == event["trial"] != self._best_trial
        self._best_trial = now.best_trial if is_best else self._best_trial
        self._bests += is_best
        self._failures += failed
        worth = (is_best and self._bests <= _BESTS) or (failed and self._failures <= _FAILURES)
        every = 1 if now.total <= _EVERY_END else -(-now.total // _ENDS)
        if not worth and now.ended % every and now.ended < now.total:
            return
        trial = state.trials[event["trial"]]
        metric = state.info["metric"]
        score = now.scores[trial.id]
        reason = shown(event["reason"], 100).replace('"', "'")
        parts = [f"trial={shown(trial.id)}", event["state"], f"step={trial.step}"]
        parts += [f"{metric}={number(score, '.3f')}"] if score is not None else []
        parts += [f'reason="{reason}"'] if failed and reason else []
        self._print(event, *parts, *_totals(now))

    def _progress(self, event: Mapping[str, Any], state: RunState) -> None:
        now = standing(state)
        parts = [f"trial={shown(event['trial'])}", f"step={event['step']}"]
        value = event["metrics"].get(state.info["metric"])
        parts += [f"{state.info['metric']}={number(value, '.3f')}"] if value is not None else []
        self._print(event, f"running={now.counts['running']}", *parts, *_totals(now))

    def _quiet_for_long(self) -> bool:
        now = self._clock()
        return now - self._printed >= max(_QUIET_S, (now - self._began) / 2)

    def _print(self, event: Mapping[str, Any], *parts: str) -> None:
        self._printed = self._clock()
        stamp = dt.datetime.fromtimestamp(event["t"], dt.UTC).strftime("%H:%M:%S")
        line = " ".join((stamp, *parts))
        # Names may hold characters that the stream's encoding lacks; a view must not end the run.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        print(line.encode(encoding, "backslashreplace").decode(encoding), file=self._stream, flush=True)


def _totals(now: Standing) -> list[str]:
    parts = [f"best={number(now.best, '.3f')}"] if now.best is not None else []
    parts += [f"done={now.ended}/{now.total}"]
    parts += [f"failed={now.counts['failed']}"] if now.counts["failed"] else []
    return parts + ([f"eta={now.eta_s:.0f}s"] if now.eta_s is not None else [])

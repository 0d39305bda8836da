"""One warm process of a search: runs one trial after another and hands each report to Tune.

Tune asks for one step at a time and a step is one report, so training never runs ahead of the scheduler. A
trial's error travels to the driver as a result, in one line: its process stays warm and its reason is not a
traceback. Only after an error that is not ours is the process replaced, since CUDA may be broken in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import torch
from ray import tune

from foxhunt_ray.cluster import TrialResources
from foxhunt_ray.config import Config, with_values
from foxhunt_ray.errors import ConfigError, DivergedError, FoxhuntError, SearchError
from foxhunt_ray.search.searcher import SCORE
from foxhunt_ray.trial import pick_device

RunTrial = Callable[..., Iterator[Any]]
"""``trial.run``: (config, prepared, *, folder, device) -> Progress at every report."""


class TrialWorker(tune.Trainable):  # type: ignore[misc]  # Ray ships no types
    """Runs trials that Tune gives as ``{"trial": id, "values": {dotted path: value}}``."""

    def setup(
        self,
        config: dict[str, Any],
        base: Config,
        prepared: Any,
        folder: Path,
        resources: TrialResources,
        run_trial: RunTrial,
    ) -> None:
        """Once a process: what all its trials share."""
        self._base, self._prepared, self._folder, self._run_trial = base, prepared, folder, run_trial
        self._gpus = resources.gpus
        self._progress: Iterator[Any] | None = None
        self._fatal: Exception | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Make the process ready for its next trial; True, as it always can be."""
        self._close()
        return True

    def step(self) -> dict[str, Any]:
        """The trial's next report, or ``{"failed": reason}``."""
        if self._fatal is not None:
            raise self._fatal
        try:
            return self._next_report()
        except FoxhuntError as err:
            self._close()
            return {"failed": one_line(err), "done": True}
        except Exception as err:  # the trial's code may raise anything; raised again at the next step
            self._fatal = err
            return {"failed": one_line(err)}

    def cleanup(self) -> None:
        """Close the trial that runs, so that its threads and files are released."""
        self._close()

    def _next_report(self) -> dict[str, Any]:
        if self._progress is None:
            self._progress = self._open()
        report = next(self._progress, None)
        if report is None:
            raise SearchError("the trial ended without its last report; this is a bug in the trial function")
        result = {
            "step": report.step,
            "report": report.report,
            "metrics": report.metrics,
            "tier": report.tier,
            SCORE: self._score(report),
            "finished": report.finished,
            "reason": report.reason,
            "done": report.finished,
        }
        if report.finished:
            self._close()
        return result

    def _open(self) -> Iterator[Any]:
        config = with_values(self._base, self.config["values"])
        folder = self._folder / "trials" / self.config["trial"]
        device = pick_device(self._gpus)
        if 0 < self._gpus < 1:  # Ray only counts GPUs: without this one trial can take all of the memory
            torch.cuda.set_per_process_memory_fraction(self._gpus)
        return self._run_trial(config, self._prepared, folder=folder, device=device)

    def _score(self, report: Any) -> float:
        metric = self._base.search.metric
        if metric not in report.metrics:
            raise ConfigError(
                f"search.metric = {metric!r} is not reported; use one of {sorted(report.metrics)}"
            )
        score = float(report.metrics[metric])
        if not math.isfinite(score):
            raise DivergedError(f"{metric} is {score} at step {report.step}")
        return score

    def _close(self) -> None:
        if isinstance(self._progress, Generator):
            self._progress.close()
        self._progress = None


def one_line(err: BaseException) -> str:
    """Type and first line of the message of ``err``."""
    lines = str(err).strip().splitlines()
    return f"{type(err).__name__}: {lines[0]}" if lines else type(err).__name__

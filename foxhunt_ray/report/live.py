"""The live view of a run: one table that is redrawn on a terminal, plain lines everywhere else.

It listens to the event log and draws in the caller's thread, on an event, at most four times a second: no
thread of its own, so nothing is read while it changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from foxhunt_ray.events import RunState, TrialState
from foxhunt_ray.report.lines import PlainLines
from foxhunt_ray.report.standing import Standing, standing
from foxhunt_ray.report.text import Column, duration, number, short_names, shown, table_lines

_REDRAW_S = 0.25
_STATES = ("running", "finished", "stopped", "failed", "interrupted")
_STYLES = {"running": "cyan", "finished": "green", "failed": "red"}


class LiveView:
    """Shows a run while the ``with`` block runs; append it to ``EventLog.listeners``.

    Args:
        stream: where to show it; plain lines unless it is a terminal that can redraw.
        clock: seconds that only grow, for throttling.
        console: a console to draw on instead of one made for ``stream``.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        # Asked of the stream, not of FORCE_COLOR: a job log that takes colours still cannot redraw.
        self._console = console or Console(file=stream, force_terminal=stream.isatty(), highlight=False)
        self._clock = clock
        self._drawn = -_REDRAW_S
        self._is_there = True
        self._lines = PlainLines(stream, clock=clock)
        can_redraw = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = (
            # Transient: the closing table takes the place of the last frame.
            Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
            if can_redraw
            else None
        )

    def __enter__(self) -> Self:
        """The view, drawing."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        if self._live is not None:
            with suppress(OSError):  # the terminal may be gone
                self._live.stop()

    def __call__(self, event: Mapping[str, Any], state: RunState) -> None:
        """Show the state after ``event``."""
        try:
            if self._is_there:
                self._show(event, state)
        except OSError:
            # The terminal or the pipe is gone: the run goes on, and its files tell the result.
            self._is_there = False

    def _show(self, event: Mapping[str, Any], state: RunState) -> None:
        if self._live is None:
            self._lines(event, state)
            return
        now = self._clock()
        # Reports may come by the hundred a second; an event that changes a trial's state is always shown.
        if event["kind"] == "report" and now - self._drawn < _REDRAW_S:
            return
        self._drawn = now
        size = self._console.size
        self._live.update(Group(*frame(state, width=size.width, height=size.height)), refresh=True)


def frame(state: RunState, *, width: int, height: int) -> list[Text]:
    """The lines of the view, at most ``height - 1`` of at most ``width`` cells."""
    now = standing(state)
    head = [Text(shown(line, width), no_wrap=True) for line in (*_about(state), *_progress(state, now))]
    head[0].stylize("bold")
    foot = Text(shown("Ctrl-C saves and stops", width), style="dim", no_wrap=True)
    room = max(1, height - 1 - len(head) - 2)  # the table's title, the footer
    trials = _in_order(state, now.scores)[:room]
    if not trials:
        return [*head, foot]
    title, *rows = table_lines(_columns(state, now, trials), width=width)
    body = [
        Text(row, style=_STYLES.get(t.state, ""), no_wrap=True) for row, t in zip(rows, trials, strict=True)
    ]
    return [*head, Text(title, style="bold", no_wrap=True), *body, foot][: max(1, height - 1)]


def _about(state: RunState) -> Iterator[str]:
    """What is searched: name, target, symbols, span; windows and resources."""
    info, data, config = state.info, state.info["data"], state.info["config"]
    symbols = data["symbols"]
    names = " ".join(shown(s, 16) for s in symbols[:4])
    more = f" +{len(symbols) - 4}" if len(symbols) > 4 else ""
    splits = data["splits"].values()
    starts, ends = [s["start"] for s in splits if s["start"]], [s["end"] for s in splits if s["end"]]
    span = f"{min(starts)[:7]}..{max(ends)[:7]}" if starts and ends else ""
    target = f"{config['target']['kind']} h={config['target']['horizon']}"
    yield "  ".join(part for part in (shown(info["name"]), target, names + more, span) if part)
    windows = "  ".join(f"{name} {count:,}" for name, count in data["windows"].items())
    resources = info["resources"]
    each = f"{number(resources['cpus'])} CPU" + (
        f" and {number(resources['gpus'])} GPU" if resources["gpus"] else ""
    )
    yield f"windows {windows}   {resources['concurrent']} trials at once, {each} each"


def _progress(state: RunState, now: Standing) -> Iterator[str]:
    """How far it is; the best beside what it has to beat."""
    counts = [f"{name} {now.counts[name]}" for name in _STATES if now.counts.get(name)]
    failed = [t.reason for t in state.trials.values() if t.state == "failed" and t.reason]
    why = f" ({shown(failed[-1], 30)})" if failed else ""
    left = f"   ETA {duration(now.eta_s)}" if now.eta_s is not None else ""
    yield f"trials {now.ended}/{now.total}{left}   {'  '.join(counts)}{why}"
    best = f"{number(now.best, '.3f')} ({shown(now.best_trial, 16)})" if now.best is not None else "-"
    rival = f"   best baseline {now.baseline[0]} {number(now.baseline[1], '.3f')}" if now.baseline else ""
    running = [t for t in state.trials.values() if t.state == "running" and t.reports]
    waits = [w for t in running if (w := t.last_metrics.get("data/wait_frac")) is not None]
    wait = f"   data wait {number(sum(waits) / len(waits), '.1%')}" if waits else ""
    yield f"best {state.info['metric']} {best}{rival}{wait}"


def _in_order(state: RunState, scores: Mapping[str, float | None]) -> list[TrialState]:
    """Running trials first, then the best; those without a score last."""
    sign = -1 if state.info["mode"] == "max" else 1

    def key(trial: TrialState) -> tuple[bool, bool, float]:
        value = scores[trial.id]
        return trial.state != "running", value is None, sign * (value or 0.0)

    return sorted(state.trials.values(), key=key)


def _columns(state: RunState, now: Standing, trials: Sequence[TrialState]) -> list[Column]:
    length = state.info["config"]["train"]["max_steps"]
    scores = [now.scores[t.id] for t in trials]
    titles = short_names(p for t in state.trials.values() for p in t.values)
    columns = [
        Column("trial", [shown(t.id, 16) for t in trials], left=True),
        Column("state", [t.state for t in trials], left=True),
        Column("step", [f"{t.step}/{t.values.get('train.max_steps', length)}" for t in trials]),
        Column(state.info["metric"], [number(s, ".3f") for s in scores]),
    ]
    if now.baseline is not None:
        name, value = now.baseline
        gains = [None if s is None else s - value for s in scores]
        columns.append(Column(f"vs {shown(name, 12)}", [number(g, "+.3f") for g in gains], rank=1))
    for path, title in titles.items():
        columns.append(Column(title, [number(t.values.get(path)) for t in trials], rank=2))
    waits = [t.last_metrics.get("data/wait_frac") for t in trials]
    columns.append(Column("s/step", [number(_s_per_step(t)) for t in trials], rank=3))
    columns.append(Column("wait", [number(w, ".1%") for w in waits], rank=4))
    depths = [t.last_metrics.get("data/prefetch_depth") for t in trials]
    columns.append(Column("ahead", [number(d, ".0f") for d in depths], rank=5))
    columns.append(
        Column("busy", [number(t.last_metrics.get("device/busy_frac"), ".1%") for t in trials], rank=6)
    )
    columns.append(Column("tier", [t.tier or "-" for t in trials], rank=7, left=True))
    return columns


def _s_per_step(trial: TrialState) -> float | None:
    return (trial.reports[-1]["t"] - trial.started) / trial.step if trial.step else None

"""The live view fits its terminal, shows names as they are, and never ends a run."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from foxhunt_ray.events import RunState
from foxhunt_ray.report.live import LiveView, frame

Events = Callable[..., list[dict[str, Any]]]
Folded = Callable[..., RunState]
HOSTILE = ["[/red]", "bids[amount]", "\x1b]0;owned\x07", "\u202ecba"]


def terminal(width: int = 80, height: int = 24) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, _environ={})


def play(view: LiveView, events: list[dict[str, Any]]) -> RunState:
    state = RunState()
    with view:
        for event in events:
            state.apply(event)
            view(event, state)
    return state


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (80, 10), (60, 6)])
def test_frame_fits_the_terminal(folded: Folded, width: int, height: int) -> None:
    lines = frame(folded([0.1 * (i % 7) for i in range(60)]), width=width, height=height)
    assert len(lines) < height
    assert max(cell_len(line.plain) for line in lines) <= width


def test_frame_states_the_best_beside_the_strongest_baseline(folded: Folded) -> None:
    text = "\n".join(line.plain for line in frame(folded([0.1, 0.412, None], trials=20), width=80, height=24))
    assert "best val/skill 0.412 (t0001)   best baseline ridge 0.350" in text
    assert "+0.062" in text
    assert "trials 3/20   ETA 2 min 33 s   finished 2  failed 1 (loss is not f" in text


def test_running_trials_stand_first_then_the_best(folded: Folded) -> None:
    state = folded([0.1, 0.4, None])
    state.apply({"t": 2000.0, "kind": "trial_started", "trial": "now", "values": {}})
    rows = [line.plain.split()[0] for line in frame(state, width=80, height=24)[5:-1]]
    assert rows == ["now", "t0001", "t0000", "t0002"]


def test_columns_of_least_worth_go_first(folded: Folded) -> None:
    titles = [frame(folded([0.1]), width=w, height=24)[4].plain.split() for w in (120, 80, 40)]
    assert {"lr", "d_model", "s/step", "wait"} <= set(titles[0])
    assert {"lr", "d_model"} <= set(titles[1]) and "wait" not in titles[1]
    assert titles[2] == ["trial", "state", "step", "val/skill"]


def test_loading_is_shown_where_there_is_room(folded: Folded) -> None:
    state = folded([0.1])
    loading = {"data/prefetch_depth": 5.0, "device/busy_frac": 0.973}
    state.apply(
        {"t": 1009.0, "kind": "report", "trial": "t0000", "step": 60, "metrics": loading, "tier": "arena"}
    )
    wide, narrow = ([x.plain.split() for x in frame(state, width=w, height=24)[4:6]] for w in (160, 80))
    assert wide[0][-3:] == ["ahead", "busy", "tier"] and wide[1][-3:] == ["5", "97.3%", "arena"]
    assert not {"ahead", "busy", "tier"} & set(narrow[0])
    silent = frame(folded([0.1]), width=160, height=24)[5].plain  # no report tells it
    assert silent.split()[-3:] == ["-", "-", "-"]


def test_run_without_trials_has_a_frame(folded: Folded) -> None:
    lines = [line.plain for line in frame(folded([], trials=3, baselines={}), width=80, height=24)]
    assert lines[0].startswith("fx  realised_vol h=24  EURUSD GBPUSD  2019-01..2024-12")
    assert lines[2:] == ["trials 0/3   ", "best val/skill -", "Ctrl-C saves and stops"]


def test_names_from_files_are_shown_and_not_obeyed(events: Events) -> None:
    console = terminal(width=120)
    play(LiveView(io.StringIO(), console=console), events([0.1, None], symbols=HOSTILE, reason="[/b]\x1b[2J"))
    text = text_of(console)
    assert "[/red] bids[amount] \\x1b]0;owned\\x07 \\u202ecba" in text
    assert "([/b]\\x1b[2J)" in text
    assert "\x1b]0;" not in text and "\x1b[2J" not in text and "\u202e" not in text


def test_reports_are_drawn_at_most_four_times_a_second(events: Events) -> None:
    console = terminal()
    ticks = iter([0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5])  # the first is read at the start
    view, state, drawn = LiveView(io.StringIO(), console=console, clock=lambda: next(ticks)), RunState(), []
    start, began, report, _, _ = events([0.1], trials=1)
    with view:
        for event in [start, began, *[report] * 5]:
            state.apply(event)
            view(event, state)
            drawn.append(text_of(console).count("Ctrl-C"))
    assert drawn == [1, 2, 2, 2, 3, 3, 3]


def test_view_leaves_the_terminal_empty_for_the_closing_table(events: Events) -> None:
    console = terminal()
    play(LiveView(io.StringIO(), console=console), events([0.1]))
    assert text_of(console).endswith("\x1b[2K")


def test_stream_that_is_no_terminal_gets_plain_lines(events: Events) -> None:
    stream = io.StringIO()
    play(LiveView(stream), events([0.1, 0.2]))
    assert len(stream.getvalue().splitlines()) == 3
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_dumb_terminal_gets_plain_lines(events: Events, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("TERM", kind)
    stream = io.StringIO()
    play(LiveView(stream, console=Console(file=stream, force_terminal=True)), events([0.1]))
    assert "\x1b" not in stream.getvalue() and "trial=t0000 finished" in stream.getvalue()


def test_no_color_is_obeyed(events: Events) -> None:
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=80,
        height=24,
        _environ={"NO_COLOR": "1", "TERM": "xterm"},
    )
    play(LiveView(io.StringIO(), console=console), events([0.1, None]))
    assert not any(f"\x1b[{code}m" in text_of(console) for code in (31, 32, 36))


def test_columns_variable_sets_the_width(events: Events) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, _environ={"COLUMNS": "44", "LINES": "20", "TERM": "xterm"}
    )
    play(LiveView(io.StringIO(), console=console), events([0.1]))
    assert console.width == 44 and "d_model" not in text_of(console)


def test_pipe_that_was_closed_does_not_end_the_run(events: Events) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    state = play(LiveView(stream), events([0.1, 0.2]))
    with pytest.raises(BrokenPipeError):
        stream.close()
    assert [t.state for t in state.trials.values()] == ["finished", "finished"]


def test_job_log_that_takes_colours_gets_plain_lines(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    play(LiveView(stream), events([0.1]))
    assert "\x1b" not in stream.getvalue() and "trial=t0000 finished" in stream.getvalue()

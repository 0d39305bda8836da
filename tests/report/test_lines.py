"""Plain lines: short, flushed, alive, and the same in any job log."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from foxhunt_ray.events import RunState
from foxhunt_ray.report.lines import PlainLines

Events = Callable[..., list[dict[str, Any]]]


def printed(events: list[dict[str, Any]], *, clock: str = "still") -> list[str]:
    """Lines of a run; the clock stands still or follows the events."""
    stream, state = io.StringIO(), RunState(updated=events[0]["t"])
    lines = PlainLines(stream, clock=lambda: state.updated if clock == "events" else 0.0)
    for event in events:
        state.apply(event)
        lines(event, state)
    return stream.getvalue().splitlines()


def test_each_end_of_a_short_search_has_its_line(events: Events) -> None:
    assert printed(events([0.1, 0.412, 0.2, 0.3], trials=5)) == [
        "00:16:40 run=started name=fx done=0/5",
        "00:16:49 trial=t0000 finished step=40 val/skill=0.100 best=0.100 done=1/5",
        "00:16:59 trial=t0001 finished step=40 val/skill=0.412 best=0.412 done=2/5",
        "00:17:09 trial=t0002 finished step=40 val/skill=0.200 best=0.412 done=3/5 eta=18s",
        "00:17:19 trial=t0003 finished step=40 val/skill=0.300 best=0.412 done=4/5 eta=9s",
    ]


@pytest.mark.parametrize("clock", ["still", "events"])
@pytest.mark.parametrize("scores", [[i / 100 for i in range(100)], [0.1] * 100, [None] * 100])
def test_run_of_a_hundred_trials_prints_at_most_thirty_lines(
    events: Events, scores: list[float | None], clock: str
) -> None:
    lines = printed(events(scores), clock=clock)
    assert 5 <= len(lines) <= 14  # a contract and a summary come on top, and 30 lines are the budget of a run
    assert "done=100/100" in lines[-1]


def test_new_best_is_told_between_the_regular_lines(events: Events) -> None:
    lines = printed(events([0.1] * 45 + [0.7] + [0.1] * 54))
    assert any("trial=t0045 finished" in line and "best=0.700 done=46/100" in line for line in lines)


def test_failure_gives_its_reason_on_one_line(events: Events) -> None:
    lines = printed(events([None], reason='loss "nan"\nat step 3\x1b[2J'))
    assert len(lines) == 2
    assert "failed" in lines[1] and "reason=\"loss 'nan'\\nat step 3\\x1b[2J\"" in lines[1]


def test_progress_is_told_after_thirty_quiet_seconds_and_then_less_often(events: Events) -> None:
    log = events([0.1], trials=1)[:2]
    report = {"kind": "report", "trial": "t0000", "step": 20, "report": 1, "metrics": {"val/skill": 0.25}}
    log += [{"t": 1000.0 + i, **report} for i in range(1, 3601)]
    times = [line[:8] for line in printed(log, clock="events")]
    assert times[:6] == ["00:16:40", "00:17:10", "00:17:40", "00:18:40", "00:20:40", "00:24:40"]
    assert len(times) <= 12


def test_progress_line_names_the_trial_and_the_standing(events: Events) -> None:
    log = events([0.1], trials=4)[:3]
    log[2]["t"] += 60
    line = printed(log, clock="events")[1]
    assert line == "00:17:43 running=1 trial=t0000 step=20 val/skill=0.000 best=0.000 done=0/4"


def test_name_that_the_stream_cannot_encode_does_not_end_the_run(events: Events) -> None:
    raw = io.BytesIO()
    stream, state = io.TextIOWrapper(raw, encoding="ascii"), RunState()
    event = events([], trials=1, name="日経")[0]
    state.apply(event)
    PlainLines(stream)(event, state)
    assert b"name=\\u65e5\\u7d4c" in raw.getvalue()  # and it is flushed

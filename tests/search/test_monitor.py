"""Signals, the time limit and the ends that the monitor writes, without Ray."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from foxhunt_ray.events import EventLog, fold
from foxhunt_ray.search.monitor import Monitor


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    log = EventLog(tmp_path / "events.jsonl")
    for name, state in (("t0001", "finished"), ("t0002", "")):
        log.append("trial_started", trial=name, values={}, device="cpu")
        if state:
            log.append("trial_ended", trial=name, state=state, reason="length")
    yield log
    log.close()


def states(log: EventLog) -> list[tuple[str, str]]:
    return [(t.state, t.reason) for t in fold(log.path).trials.values()]


def test_a_search_is_not_ended_without_a_reason(log: EventLog) -> None:
    assert not Monitor(log, device="cpu", minutes=0).stop_all()
    assert states(log) == [("finished", "length"), ("running", "")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_what_runs_is_logged_as_interrupted(
    log: EventLog, number: signal.Signals
) -> None:
    monitor = Monitor(log, device="cpu", minutes=0)
    with monitor.signals():
        os.kill(os.getpid(), number)
        assert monitor.stop_all()
    assert monitor.signal == number
    assert states(log) == [("finished", "length"), ("interrupted", number.name)]


def test_a_second_signal_does_not_wait(log: EventLog) -> None:
    monitor = Monitor(log, device="cpu", minutes=0)
    with pytest.raises(KeyboardInterrupt), monitor.signals():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert monitor.signal == signal.SIGTERM


def test_handlers_are_put_back(log: EventLog) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Monitor(log, device="cpu", minutes=0).signals():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_beside_the_main_thread_no_handler_is_set(log: EventLog) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def elsewhere() -> None:
        with Monitor(log, device="cpu", minutes=0).signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_time_limit_ends_the_search_and_says_so(log: EventLog) -> None:
    monitor = Monitor(log, device="cpu", minutes=1e-9)
    assert monitor.stop_all()
    assert states(log)[1] == ("interrupted", "search.minutes = 1e-09 are over")


def test_only_what_runs_is_ended_and_only_once(log: EventLog) -> None:
    monitor = Monitor(log, device="cpu", minutes=0)
    monitor.end_running("failed", "out of memory")
    size = log.path.stat().st_size
    monitor.end_running("interrupted", "SIGINT")
    assert states(log) == [("finished", "length"), ("failed", "out of memory")]
    assert log.path.stat().st_size == size

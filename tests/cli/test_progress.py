"""Reading that takes long says how far it is, on stderr and not before two seconds."""

from __future__ import annotations

from types import SimpleNamespace

from foxhunt_ray.cli import progress


def test_nothing_is_said_of_a_short_reading(capsys):
    with progress.reading_progress() as report:
        report(1, 10)
    assert capsys.readouterr().err == ""


def test_a_long_reading_says_how_far_it_is_now_and_then(capsys, monkeypatch):
    times = iter([0.0, 1.0, 2.5, 3.0, 40.0, 50.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with progress.reading_progress() as report:
        for done in (100, 200, 300, 400, 500):
            report(done, 500)
    assert capsys.readouterr().err.splitlines() == ["reading: 200 of 500 rows", "reading: 400 of 500 rows"]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    times = iter([0.0, 2.5, 3.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.reading_progress() as report:
        report(200, 500)
        report(300, 500)
    assert "reading" in capsys.readouterr().err

"""The closing table: honest, ASCII, at most 80 columns, from results.json alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foxhunt_ray.events import RunState
from foxhunt_ray.report.summary import print_summary, summary_lines
from foxhunt_ray.search.results import write_results

BASELINES = {
    "zero": {"val/skill": 0.0, "val_full/skill": 0.0, "test/skill": 0.0},
    "mean": {"val/skill": -0.01, "val_full/skill": -0.02, "test/skill": None},
    "last": {"val/skill": 0.1, "val_full/skill": 0.1, "test/skill": 0.1},
    "ridge": {"val/skill": 0.35, "val_full/skill": 0.34, "test/skill": 0.332},
}


@pytest.fixture
def lines(folded: Callable[..., RunState], tmp_path: Path) -> Callable[..., list[str]]:
    """Closing lines of a run with these scores, its winner scored ``test`` on test."""

    def close(scores: list[float | None], *, test: float | None = 0.31, **given: Any) -> list[str]:
        results = results_of(folded(scores, **{"baselines": BASELINES} | given), tmp_path, test)
        stream = io.StringIO()
        print_summary(results, folder="runs/fx", stream=stream)
        return stream.getvalue().splitlines()

    return close


def results_of(state: RunState, folder: Path, test: float | None, **more: float | None) -> dict[str, Any]:
    finished = [t for t in state.trials.values() if t.state == "finished"]
    if test is not None and finished:
        best = max(finished, key=lambda t: t.last_metrics["val_full/skill"])
        state.apply({"t": 1100.0, "kind": "winner", "trial": best.id, "metrics": {"test/skill": test} | more})
    state.apply({"t": 1100.0, "kind": "run_ended", "status": "finished" if finished else "failed"})
    return write_results(folder, state)


def test_top_five_stand_above_every_baseline_in_the_same_columns(lines: Callable[..., list[str]]) -> None:
    out = lines([0.1, 0.4, None, 0.2, 0.3, 0.25, 0.05])
    assert out[0] == "fx finished in 1 min 40 s: 7 trials (6 finished, 1 failed)"
    assert out[1].split()[:5] == ["#", "trial", "val/skill", "val_full", "test"]
    assert [line.split()[1] for line in out[2:7]] == ["t0001", "t0004", "t0005", "t0003", "t0000"]
    assert [line.split() for line in out[7:11]] == [
        ["zero", "0.000", "0.000", "0.000"],
        ["mean", "-0.010", "-0.020", "-"],
        ["last", "0.100", "0.100", "0.100"],
        ["ridge", "0.350", "0.340", "0.332"],
    ]


def test_only_the_winner_has_a_test_skill(lines: Callable[..., list[str]]) -> None:
    out = lines([0.1, 0.4])
    assert out[2].split()[1:5] == ["t0001", "0.400", "0.390", "0.310"]
    assert out[3].split()[1:5] == ["t0000", "0.100", "0.090", "-"]


@pytest.mark.parametrize(
    ("test", "sentence"),
    [
        (0.31, "best trial's test skill 0.310 is below the best baseline's: ridge 0.332"),
        (0.381, "best trial's test skill 0.381 is above the best baseline's: ridge 0.332"),
        (0.335, "best trial's test skill 0.335 is level with the best baseline's: ridge 0.332"),
        (None, "best trial t0000 has no test skill: the test windows were not scored"),
    ],
)
def test_verdict_is_honest(lines: Callable[..., list[str]], test: float | None, sentence: str) -> None:
    assert sentence in lines([0.3], test=test)


def test_verdict_without_a_baseline_says_so(lines: Callable[..., list[str]]) -> None:
    assert "best trial t0000: test skill 0.310, with no baseline to compare it with" in lines(
        [0.3], baselines={}
    )


def test_ceilings_of_the_synthetic_market_stand_beside_the_winner(lines: Callable[..., list[str]]) -> None:
    out = lines([0.3], ceilings={"ridge": 0.2, "best": 0.62})
    assert "test skill 0.310; ridge's ceiling 0.200, best possible 0.620 (synthetic market)" in out
    assert not any("ceiling" in line for line in lines([0.3]))


def test_several_horizons_have_a_test_skill_each(folded: Callable[..., RunState], tmp_path: Path) -> None:
    skills = {"test/skill_h24": None, "test/skill_h6": 0.42, "test/skill_h100": -0.01}
    results = results_of(folded([0.3]), tmp_path, 0.2, **skills)
    out = [line.plain for line in summary_lines(results, folder="runs/fx")]
    assert "best trial's test skill by bars ahead: 0.420 at 6, - at 24, -0.010 at 100" in out
    one = [line.plain for line in summary_lines(results_of(folded([0.3]), tmp_path, 0.2), folder="runs/fx")]
    assert not any("bars ahead" in line for line in one)


def test_run_in_which_all_failed_lists_why_and_offers_no_model(lines: Callable[..., list[str]]) -> None:
    out = lines([None] * 5, reason="out of [/red] memory\x1b")
    assert "failed: t0000 t0001 t0002 +2: out of [/red] memory\\x1b" in out
    assert "no trial left a model" in out
    assert out[-1] == "results  runs/fx/results.json"


def test_run_without_trials_has_a_summary(lines: Callable[..., list[str]]) -> None:
    out = lines([])
    assert out[0] == "fx failed in 1 min 40 s: 0 trials"
    assert "no trial left a model" in out


def test_paths_come_last_and_can_be_pasted(folded: Callable[..., RunState], tmp_path: Path) -> None:
    results = results_of(folded([0.3]), tmp_path, 0.3)
    folder = "/" + "long" * 30 + "/my runs/fx"
    last = [line.plain for line in summary_lines(results, folder=folder)[-2:]]
    assert last[0] == f"results  {folder}/results.json  model  {folder}/best/"
    assert last[1] == f"predict  foxhunt predict '{folder}' --data PATH"


def test_plain_summary_is_short_narrow_and_ascii(lines: Callable[..., list[str]]) -> None:
    out = lines([0.1 * i for i in range(20)], ceilings={"ridge": 0.2, "best": 0.62})
    assert len(out) <= 16
    assert max(map(len, out)) <= 80
    assert all(line.isascii() and line.isprintable() for line in out)


def test_terminal_gets_style_and_the_same_words(
    folded: Callable[..., RunState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    results = results_of(folded([0.3]), tmp_path, 0.3)
    stream = io.StringIO()
    print_summary(results, folder="runs/fx", stream=stream)
    assert "\x1b[1m" in stream.getvalue()
    assert all(line.plain in stream.getvalue() for line in summary_lines(results, folder="runs/fx"))

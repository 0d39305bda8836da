"""results.json -> what is printed when a run ends: best trials beside the baselines, a verdict, the paths.

The verdict compares on test, once, with the baseline that is strongest there, and says so when it lost.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from foxhunt_ray.report.standing import strongest_baseline
from foxhunt_ray.report.text import Column, duration, number, short_names, shown, table_lines

_TOP = 5
_REASONS = 3
_FULL, _TEST = "val_full/skill", "test/skill"
_LEVEL = 0.005
"""Skills closer than this are called level, neither above nor below."""


def summary_lines(results: Mapping[str, Any], *, folder: str, width: int = 80) -> list[Text]:
    """The closing lines, each at most ``width`` cells wide but for paths, which are never cut.

    Args:
        results: what results.json holds.
        folder: the run folder, as the user wrote it.
        width: cells of a line.
    """
    title = Text(shown(_title(results), width), style="bold")
    header, *rows = table_lines(_columns(results), width=width)
    lines = [title, Text(header, style="dim"), *map(Text, rows)]
    if results["best"] is not None:
        lines[2].stylize("green")
    said = [*_failures(results["trials"]), *_ceilings(results), *_verdict(results), *_horizons(results)]
    lines += [Text(shown(line, width)) for line in said]
    return lines + [Text(line) for line in _paths(results, folder)]


def print_summary(results: Mapping[str, Any], *, folder: str, stream: TextIO) -> None:
    """Print the closing lines to ``stream``: styled on a terminal, plain elsewhere."""
    console = Console(file=stream, highlight=False)
    if console.is_terminal:
        for line in summary_lines(results, folder=folder, width=max(40, console.width)):
            console.print(line, soft_wrap=True)
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in summary_lines(results, folder=folder):
        print(line.plain.encode(encoding, "backslashreplace").decode(encoding), file=stream)
    stream.flush()


def _title(results: Mapping[str, Any]) -> str:
    trials = results["trials"]
    counts = Counter(t["state"] for t in trials)
    states = ", ".join(f"{n} {state}" for state, n in counts.most_common())
    many = f"{len(trials)} trial{'' if len(trials) == 1 else 's'}"
    took = duration(results["timing"]["wall_s"])
    return f"{shown(results['name'])} {results['status']} in {took}: {many}" + (
        f" ({states})" if states else ""
    )


def _columns(results: Mapping[str, Any]) -> list[Column]:
    """The leaderboard: the top trials, then every baseline, in the same columns."""
    metric = results["metric"]
    top = _ranking(results)[:_TOP]
    names = list(results["baselines"])
    blank = [""] * len(names)
    scores = [*(_scores(results, t) for t in top), *(results["baselines"][n] for n in names)]
    columns = [
        Column("#", [*(str(i) for i in range(1, len(top) + 1)), *blank]),
        Column("trial", [*(shown(t["id"], 16) for t in top), *(shown(n, 16) for n in names)], left=True),
        Column(metric, [number(s.get(metric), ".3f") for s in scores]),
        Column("val_full", [number(s.get(_FULL), ".3f") for s in scores]),
        Column("test", [number(s.get(_TEST), ".3f") for s in scores]),
        Column("steps", [*(str(t["steps"]) for t in top), *blank], rank=1),
    ]
    for path, title in short_names(p for t in top for p in t["config"]).items():
        columns.append(Column(title, [*(number(t["config"].get(path)) for t in top), *blank], rank=3))
    columns.append(Column("time", [*(duration(t["duration_s"]) for t in top), *blank], rank=2))
    return columns


def _ranking(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Trials that did not fail, best first: the winner, those scored on all windows, then the rest."""
    metric = results["metric"]
    sign = 1 if results["mode"] == "max" else -1
    winner = results["best"]["trial_id"] if results["best"] else None

    def key(trial: Mapping[str, Any]) -> tuple[bool, float, float]:
        full, value = trial["metrics"].get(_FULL), trial["metrics"].get(metric)
        return (
            trial["id"] == winner,
            float("-inf") if full is None or trial["state"] != "finished" else full,
            float("-inf") if value is None else sign * value,
        )

    return sorted((t for t in results["trials"] if t["state"] != "failed"), key=key, reverse=True)


def _scores(results: Mapping[str, Any], trial: Mapping[str, Any]) -> Mapping[str, float | None]:
    best = results["best"]
    metrics: Mapping[str, float | None] = (
        best["metrics"] if best and best["trial_id"] == trial["id"] else trial["metrics"]
    )
    return metrics


def _failures(trials: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line a reason, with the trials that met it; the most frequent first."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        if trial["state"] == "failed":
            by_reason[trial["reason"]].append(shown(trial["id"], 16))
    ranked = sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
    for reason, ids in ranked[:_REASONS]:
        more = f" +{len(ids) - 3}" if len(ids) > 3 else ""
        yield f"failed: {' '.join(ids[:3])}{more}: {reason}"
    if len(ranked) > _REASONS:
        yield f"failed: {sum(len(ids) for _, ids in ranked[_REASONS:])} more, see results.json"


def _ceilings(results: Mapping[str, Any]) -> Iterator[str]:
    """What can be known only of the built-in market: how far a line, and any model, can get."""
    ceilings = results["data"].get("ceilings")
    if ceilings is None:
        return
    mine = number(results["best"]["metrics"].get(_TEST), ".3f") if results["best"] else "-"
    yield (
        f"test skill {mine}; ridge's ceiling {number(ceilings['ridge'], '.3f')}, "
        f"best possible {number(ceilings['best'], '.3f')} (synthetic market)"
    )


def _verdict(results: Mapping[str, Any]) -> Iterator[str]:
    best = results["best"]
    if best is None:
        yield "no trial left a model"
        return
    name = shown(best["trial_id"], 16)
    rival = strongest_baseline(results["baselines"], _TEST)
    mine = best["metrics"].get(_TEST)
    if mine is None:
        yield f"best trial {name} has no test skill: the test windows were not scored"
    elif rival is None:
        yield f"best trial {name}: test skill {mine:.3f}, with no baseline to compare it with"
    else:
        gap = mine - rival[1]
        word = "level with" if abs(gap) < _LEVEL else "above" if gap > 0 else "below"
        yield f"best trial's test skill {mine:.3f} is {word} the best baseline's: {rival[0]} {rival[1]:.3f}"


def _horizons(results: Mapping[str, Any]) -> Iterator[str]:
    """The best trial's test skill at each horizon, where there are several."""
    metrics = results["best"]["metrics"] if results["best"] else {}
    named = {key.removeprefix(f"{_TEST}_h"): v for key, v in metrics.items() if key.startswith(f"{_TEST}_h")}
    if named:
        skills = ", ".join(f"{number(named[bars], '.3f')} at {bars}" for bars in sorted(named, key=int))
        yield f"best trial's test skill by bars ahead: {skills}"


def _paths(results: Mapping[str, Any], folder: str) -> Iterator[str]:
    where = folder.rstrip("/")
    yield f"results  {where}/results.json" + (f"  model  {where}/best/" if results["best"] else "")
    if results["best"]:
        yield f"predict  foxhunt predict {shlex.quote(where)} --data PATH"

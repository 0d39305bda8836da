"""The bars that ``bench_data.py`` holds its figures against, and the table that says which are reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_common import Figures, summary

Source = tuple[str, str]  # an arm, and the name of a figure of it


@dataclass(frozen=True)
class Bar:
    """A figure, or its ratio to one of another arm in the same round, and where its median should lie."""

    name: str
    of: Source
    over: Source | None = None
    low: float | None = None
    high: float | None = None

    def row(self, runs: Mapping[str, Sequence[Figures]]) -> str:
        """The line of the Markdown table; a figure that no round has is not reached."""
        limits = [f"{sign} {x:.4g}" for sign, x in ((">=", self.low), ("<=", self.high)) if x is not None]
        values = self._values(runs)
        if not values:
            return f"| {self.name} | {', '.join(limits)} | not available | | no |"
        shown = summary([{"value": value} for value in values])
        value, spread = shown["value"], shown["value_spread"]
        above = self.low is None or value >= self.low
        reached = above and (self.high is None or value <= self.high)
        cells = (self.name, ", ".join(limits), f"{value:.4g}", f"{spread:.4g}", "yes" if reached else "no")
        return f"| {' | '.join(cells)} |"

    def _values(self, runs: Mapping[str, Sequence[Figures]]) -> list[float]:
        arm, key = self.of
        found = [figures.get(key) for figures in runs[arm]]
        if self.over is not None:
            below = [figures[self.over[1]] for figures in runs[self.over[0]]]
            found = [None if a is None else a / b for a, b in zip(found, below, strict=True)]
        return [value for value in found if value is not None]


_ALL, _STEADY, _CPU = "windows_per_s_all", "windows_per_s", "cpu_us_per_window"
_OURS, _ITEM = "ours through Ray", "DataLoader per item, 0 workers"
_FIRST = "first batches through Ray"
BARS = (
    Bar("windows/s over DataLoader per item", (_OURS, _STEADY), (_ITEM, _STEADY), low=20),
    Bar("windows/s over naive Ray windows", (_OURS, _STEADY), ("naive Ray windows", _STEADY), low=15),
    Bar("windows/s over memcpy", (_OURS, _STEADY), ("memcpy", _STEADY), low=0.5),
    Bar(
        "windows/s through Ray over direct, rows read each epoch",
        ("ours through Ray, a stream an epoch", _ALL),
        ("ours direct, a stream an epoch", _ALL),
        low=0.6,
    ),
    Bar("CPU a window over DataLoader per item", (_OURS, _CPU), (_ITEM, _CPU), high=1 / 15),
    Bar("store bytes over raw rows", ("store", "over_raw"), high=1.15),
    Bar("first batch of later epochs [ms]", (_FIRST, "running_ms"), high=20),
    Bar("first batch of a stream opened anew [ms]", (_FIRST, "later_epoch_ms"), high=20),
    Bar("first batch resumed over fresh", (_FIRST, "resumed_over_fresh"), high=2),
    Bar("resumed batches equal bit by bit [share]", ("resuming", "equal_share"), low=1),
    Bar("producer 0.8 of a step: stall [%]", ("producer 0.8 of a step, 3 ahead", "stall_pct"), high=1),
    Bar("bursts of the chunk stage: stall [%]", ("burst in the chunk stage, 3 ahead", "stall_pct"), high=1),
    Bar(
        "bursts of the batch stage: stall [%]", ("burst in the batch stage, auto ahead", "stall_pct"), high=1
    ),
    Bar(
        "producer 0.28: busy on demand", ("producer 0.28 of a step, on demand", "busy_frac"), None, 0.75, 0.8
    ),
    Bar("producer 0.28: busy with 3 ahead", ("producer 0.28 of a step, 3 ahead", "busy_frac"), low=0.97),
    Bar("design effect of a slow level", ("order", "design_effect"), high=2),
    Bar("private memory of each of 4 trials over one's", ("trials", "each_over_one"), high=1.2),
    Bar("memory of the node with 4 trials over 1", ("trials", "node_four_over_one"), high=1.2),
    Bar("threads left by 100 early breaks", ("early breaks", "threads_left"), high=0),
)
DEVICE_BARS = (
    Bar("arena over host [windows/s]", ("tier arena", _STEADY), ("tier host", _STEADY), low=1),
    Bar("resident over host [windows/s]", ("tier resident", _STEADY), ("tier host", _STEADY), low=1),
    Bar("real step: busy with 3 ahead", ("real step, 3 ahead", "busy_frac"), low=0.97),
    Bar(
        "real step, producer 0.28: busy on demand",
        ("real step, producer 0.28, on demand", "busy_frac"),
        None,
        0.75,
        0.8,
    ),
    Bar(
        "real step, producer 0.28: busy with 3 ahead",
        ("real step, producer 0.28, 3 ahead", "busy_frac"),
        low=0.97,
    ),
)


def table(bars: Sequence[Bar], runs: Mapping[str, Sequence[Figures]]) -> str:
    """All bars as a Markdown table."""
    head = "| figure | bar | measured | spread | reached |\n|---|---|---|---|---|"
    return "\n".join([head, *(bar.row(runs) for bar in bars)])

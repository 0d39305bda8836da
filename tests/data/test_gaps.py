"""Where a series is cut, against a walk over the bars with zoneinfo; what the cuts cost."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foxhunt_ray.config import Config
from foxhunt_ray.data.gaps import gap_findings, segment_starts
from foxhunt_ray.data.schema import scan_market
from foxhunt_ray.errors import ConfigError

HOUR = 3600 * 10**9
START = 1_583_000_000 * 10**9  # 2020-02-29, a week before New York changes its clocks


def walk(stamps, max_gap, policy, zone) -> list[int]:
    """The same from the definition, one bar at a time."""
    starts = [0] if len(stamps) else []
    for row in range(1, len(stamps)):
        days = {dt.datetime.fromtimestamp(stamps[r] / 1e9, ZoneInfo(zone)).date() for r in (row - 1, row)}
        gap = stamps[row] - stamps[row - 1] > max_gap
        if gap and (policy == "break" or (policy == "session" and len(days) == 2)):
            starts.append(row)
    return starts


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.integers(1, 40), max_size=40),
    policy=st.sampled_from(["break", "bridge", "session"]),
    zone=st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata"]),
)
def test_segments_are_those_of_a_walk_over_the_bars(steps, policy, zone):
    stamps = START + np.cumsum(np.array(steps, np.int64)) * HOUR
    found = segment_starts(stamps, max_gap=2 * HOUR, policy=policy, timezone=zone)
    assert found.dtype == np.int64
    assert found.tolist() == walk(stamps, 2 * HOUR, policy, zone)


def test_a_lunch_break_is_crossed_and_a_night_is_not():
    # Tokyo: 09:00 to 11:00 and 13:00 to 15:00; in UTC both halves of a day lie on one date as well.
    day = [0, 1, 2, 4, 5, 6]
    stamps = START // (24 * HOUR) * 24 * HOUR + np.array([*day, *(h + 24 for h in day)]) * HOUR

    def starts(policy: str) -> list[int]:
        return segment_starts(stamps, max_gap=HOUR, policy=policy, timezone="Asia/Tokyo").tolist()

    assert starts("break") == [0, 3, 6, 9]
    assert starts("session") == [0, 6]
    assert starts("bridge") == [0]


def test_the_zone_decides_which_bars_share_a_day():
    evening = START // (24 * HOUR) * 24 * HOUR + 22 * HOUR  # 17:00 in New York
    stamps = np.array([evening, evening + 5 * HOUR])
    assert len(segment_starts(stamps, max_gap=HOUR, policy="session", timezone="")) == 2
    assert len(segment_starts(stamps, max_gap=HOUR, policy="session", timezone="America/New_York")) == 1


def test_an_unknown_zone_is_an_error_that_names_it():
    with pytest.raises(ConfigError, match=r"data\.timezone: 'Mars/Base'"):
        segment_starts(np.array([0, HOUR]), max_gap=1, policy="session", timezone="Mars/Base")


def found(policy="break", across=None, kept=None):
    stamps = {"A": np.array([0, 1, 8, 9]) * HOUR, "B": np.array([0, 1, 2, 160, 200]) * HOUR}
    across, kept = across or {"A": 60, "B": 40}, kept or {"A": 50, "B": 40}
    return gap_findings(stamps, max_gap=3 * HOUR // 2, policy=policy, across=across, kept=kept)


def test_gaps_are_counted_and_the_longest_is_told_with_its_place():
    first = found()[0]
    assert (first.level, first.count) == ("note", 3)
    assert "3 gaps (steps longer than 1 h 30 min) in 2 of 2 symbols" in first.text
    assert "longest is 6 d 14 h, of B after 1970-01-01 02:00 UTC" in first.text


def test_lost_windows_are_a_note_up_to_half_and_then_a_warning():
    few, many = found()[1], found(kept={"A": 9, "B": 40})[1]
    assert (few.level, few.count, many.level, many.count) == ("note", 10, "warning", 51)
    assert "10 of 100 windows (10.0%) are lost to gaps" in few.text
    assert "data.gap" in few.action and "data.max_gap" in few.action


def test_a_symbol_that_loses_every_window_is_named():
    last = found(kept={"A": 60, "B": 0})[-1]
    assert last.level == "warning" and last.text.endswith("because of gaps: B") and last.count == 1


def test_bridged_gaps_cost_nothing_and_are_said_to_be_crossed():
    assert "cross every gap" in found("bridge")[1].text


def test_without_gaps_nothing_is_said():
    stamps = {"A": np.arange(5) * HOUR}
    assert gap_findings(stamps, max_gap=HOUR, policy="break", across={"A": 3}, kept={"A": 3}) == []


def test_gaps_of_real_fx_bars_are_those_counted_by_hand(real_data):
    bars = scan_market(Config.model_validate({"data": {"path": str(real_data / "fx_hourly")}})).bars
    stamps = {b.symbol: b.ts_event for b in bars}
    cuts = [len(segment_starts(of, max_gap=HOUR, policy="break", timezone="")) - 1 for of in stamps.values()]
    assert cuts == [641, 643, 1524]
    first = gap_findings(stamps, max_gap=HOUR, policy="break", across={}, kept={})[0]
    assert first.count == 641 + 643 + 1524 and "the longest is 6 d 8 h" in first.text

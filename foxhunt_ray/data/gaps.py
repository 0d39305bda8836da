"""Where a series is cut at gaps, by ``data.gap``, and what the cuts cost in windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foxhunt_ray.data.discover import listed
from foxhunt_ray.data.findings import Finding, note, warning
from foxhunt_ray.data.split import iso
from foxhunt_ray.errors import ConfigError

Policy = Literal["break", "bridge", "session"]
_UNITS = (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("min", 60 * 10**9), ("s", 10**9), ("ns", 1))
_MANY = 0.5  # share of the windows above which their loss is a warning


def segment_starts(
    ts_event: NDArray[np.int64], *, max_gap: int, policy: Policy, timezone: str
) -> NDArray[np.int64]:
    """First rows of the segments, which no window crosses: int64 [k], the first is 0; none for no rows.

    Args:
        ts_event: int64 [n], increasing, UTC ns.
        max_gap: longest step that is no gap [ns].
        policy: break = every gap starts a segment; bridge = none does; session = a gap does if the bars on
            its two sides lie on different days of the zone.
        timezone: IANA name of that zone; empty = UTC.

    Raises:
        ConfigError: ``timezone`` is not a zone.
    """
    starts = np.flatnonzero(np.diff(ts_event) > max_gap) + 1
    if policy == "bridge":
        starts = starts[:0]
    elif policy == "session":
        before, after = (_local_days(ts_event[rows], timezone) for rows in (starts - 1, starts))
        starts = starts[before != after]
    return np.concatenate([np.zeros(min(len(ts_event), 1), np.int64), starts])


def gap_findings(
    stamps: Mapping[str, NDArray[np.int64]],
    *,
    max_gap: int,
    policy: Policy,
    across: Mapping[str, int],
    kept: Mapping[str, int],
) -> list[Finding]:
    """How many gaps there are, the longest, and the windows that the policy loses to them.

    Args:
        stamps: symbol to its ts_event, int64 [n], increasing, UTC ns.
        max_gap: longest step that is no gap [ns].
        policy: ``data.gap``.
        across: symbol to its valid windows if no gap started a segment (policy bridge).
        kept: symbol to its valid windows under ``policy``.
    """
    gaps = {symbol: _gaps(of, max_gap) for symbol, of in stamps.items()}
    gaps = {symbol: found for symbol, found in gaps.items() if found[0]}
    if not gaps:
        return []
    total = sum(count for count, _, _ in gaps.values())
    symbol, (_, longest, start) = max(gaps.items(), key=lambda item: item[1][1])
    text = (
        f"{_counted(total, 'gap')} (steps longer than {_duration(max_gap)}) in {len(gaps)} of "
        f"{_counted(len(stamps), 'symbol')}; the longest is {_duration(longest)}, of {symbol} after "
        f"{iso(start)[:16].replace('T', ' ')} UTC"
    )
    return [note(text, count=total), *_lost(across, kept, policy)]


def _lost(across: Mapping[str, int], kept: Mapping[str, int], policy: Policy) -> list[Finding]:
    if policy == "bridge":
        return [note("windows cross every gap (data.gap is bridge)")]
    possible, left = sum(across.values()), sum(kept.values())
    lost = possible - left
    if lost <= 0:
        return []
    say = warning if lost > _MANY * possible else note
    other = "session or bridge" if policy == "break" else "bridge"
    action = f"set data.gap to {other}, or a longer data.max_gap, to keep them"
    text = f"{lost:,} of {possible:,} windows ({lost / possible:.1%}) are lost to gaps (data.gap is {policy})"
    found = [say(text, count=lost, action=action)]
    bare = [symbol for symbol, windows in across.items() if windows > 0 and not kept.get(symbol, 0)]
    if bare:
        text = f"{_counted(len(bare), 'symbol')} without any window left because of gaps: {listed(bare)}"
        found.append(warning(text, count=len(bare), action=action))
    return found


def _gaps(ts_event: NDArray[np.int64], max_gap: int) -> tuple[int, int, int]:
    """Number of gaps, length of the longest [ns], and the stamp of the bar before it."""
    steps = np.diff(ts_event)
    count = int((steps > max_gap).sum())
    row = int(steps.argmax()) if count else 0
    return (count, int(steps[row]), int(ts_event[row])) if count else (0, 0, 0)


def _local_days(ts_event: NDArray[np.int64], timezone: str) -> NDArray[np.int64]:
    """Days since 1970 on the calendar of the zone: int64 [m]."""
    try:
        local = pa.array(ts_event, pa.timestamp("ns", tz=timezone or "UTC"))
        days = local.cast(pa.date32()).cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as err:
        raise ConfigError(
            f"data.timezone: {timezone!r} is not a known zone; give an IANA name such as America/New_York"
        ) from err
    return np.asarray(days.to_numpy(), np.int64)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _duration(nanoseconds: int) -> str:
    """The two largest units, such as 6 d 8 h."""
    parts = []
    for unit, size in _UNITS:
        count, nanoseconds = divmod(nanoseconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"

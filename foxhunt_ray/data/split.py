"""Chronological train, validation and test spans, cut at UTC instants.

A window belongs to the span in which its *last input bar* lies, and its target must lie before the span's end
(purge). Look-back into the span before is past data and allowed.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from foxhunt_ray.config import Config, parse_duration
from foxhunt_ray.errors import ConfigError

_SECOND = 10**9
_FIRST, _LAST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Span:
    """Half-open time span ``[start, end)`` of one split.

    Attributes:
        name: train, val or test.
        start: first instant at which a window may end, embargo included [UTC ns].
        end: instant before which its target must lie; the largest int64 = open [UTC ns].
    """

    name: str
    start: int
    end: int


def split_spans(config: Config, first: int, last: int) -> dict[str, Span]:
    """The spans of train, val and test; those of no width are left out.

    Args:
        config: its ``split`` section gives fractions of ``[first, last]`` or start dates.
        first: stamp of the earliest bar of all symbols [UTC ns].
        last: stamp of the latest bar of all symbols [UTC ns].

    Raises:
        ConfigError: dates that are not in order, or lie outside the data.
    """
    split = config.split
    if isinstance(split.val, str) and isinstance(split.test, str):
        start = _instant(split.train) if isinstance(split.train, str) else _FIRST
        cuts = [start, _instant(split.val), _instant(split.test), _LAST]
        if not cuts[0] < cuts[1] < cuts[2] or not first < cuts[1] <= cuts[2] <= last:
            raise ConfigError(
                f"split.val = {split.val}, split.test = {split.test}: expected dates in this order "
                f"inside the data, {iso(first)} to {iso(last)}"
            )
    else:
        train, val = float(split.train), float(split.val)
        cuts = [_FIRST, _part(first, last, train), _part(first, last, train + val), _LAST]
        if float(split.test) == 0:
            cuts[2] = _LAST
    embargo = parse_duration(split.embargo)
    spans = {}
    for name, begin, end in zip(("train", "val", "test"), cuts, cuts[1:], strict=False):
        if begin < end:
            spans[name] = Span(name, begin if name == "train" else begin + embargo, end)
    return spans


def iso(stamp: int) -> str:
    """ISO 8601 text of a UTC stamp in nanoseconds, to the microsecond."""
    moment = dt.datetime.fromtimestamp(stamp // _SECOND, tz=dt.UTC)
    return moment.replace(microsecond=stamp % _SECOND // 1000).isoformat()


def _part(first: int, last: int, fraction: float) -> int:
    # Whole seconds, upwards: exact in ISO text, and for bars at whole seconds the same rows.
    if fraction > 1 - 1e-9:
        return _LAST
    exact = first + int(fraction * (last - first))
    return -(-exact // _SECOND) * _SECOND


def _instant(text: str) -> int:
    moment = dt.datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp()) * _SECOND

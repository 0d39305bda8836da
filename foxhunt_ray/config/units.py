"""Durations and sizes written by people, read into integers."""

from __future__ import annotations

import re

from foxhunt_ray.errors import ConfigError

_UNIT_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9}
_UNIT_NS |= {"h": 3600 * 10**9, "d": 86400 * 10**9}


def parse_duration(text: str) -> int:
    """Nanoseconds in a duration such as ``90s``, ``15m``, ``2h`` or ``1d``.

    Raises:
        ConfigError: the text is not a non-negative number followed by ns, us, ms, s, m, h or d.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if not found or found[2] not in _UNIT_NS:
        raise ConfigError(f"duration {text!r}: expected a number and a unit, like 90s, 15m, 2h or 1d")
    return round(float(found[1]) * _UNIT_NS[found[2]])


def parse_bytes(text: str) -> int:
    """Bytes in a size such as ``512MB`` or ``2GB`` (powers of 1000) or ``2GiB`` (of 1024).

    Raises:
        ConfigError: the text is not a number followed by B, kB, MB, GB, TB or KiB, MiB, GiB, TiB.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B", text.strip())
    if not found:
        raise ConfigError(f"size {text!r}: expected a number and a unit, like 512MB or 2GiB")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** " KMGT".index(found[2].upper() or " "))

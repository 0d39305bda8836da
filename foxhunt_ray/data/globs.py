"""Columns that a config names, in full or by a glob."""

from __future__ import annotations

from fnmatch import fnmatchcase


def fits(name: str, *patterns: str) -> bool:
    """Whether a column is called like one of the patterns, or fits it as a glob; capitals count.

    A name may itself hold ``*`` or ``[``, so the name in full always fits.
    """
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)

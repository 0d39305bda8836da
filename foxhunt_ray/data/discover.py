"""Which files there are, and an account of every one: read, skipped (why), refused (why)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FileEntry:
    """One file under the data path and what becomes of it."""

    path: str
    status: Literal["read", "skipped", "refused"]
    reason: str = ""
    symbol: str = ""
    """Symbol from a hive folder ``symbol=X``; empty when the path does not say."""

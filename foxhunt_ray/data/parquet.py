"""One parquet file, opened so that every fault of it is one sentence that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from foxhunt_ray.errors import DamagedFileError

FAULTS = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError)
"""What pyarrow raises on a damaged file: names in a footer need not be text."""


@contextmanager
def opened(path: str, *, codes: Sequence[str] = ()) -> Iterator[Any]:
    """A parquet file, whose faults of decoding become a sentence that names it.

    Args:
        path: the file.
        codes: text columns to be read as dictionaries.

    Raises:
        DamagedFileError: pyarrow fails on it, here or inside the block.
    """
    try:
        # INT96 wraps around silently in nanoseconds; a page that fails its checksum reads fine unasked.
        with pq.ParquetFile(
            path,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
            read_dictionary=list(codes) or None,
        ) as parquet:
            yield parquet
    except FAULTS as err:
        raise DamagedFileError(
            f"{path}: its data cannot be decoded ({brief(err)}); write or download it again"
        ) from err


def brief(error: Exception) -> str:
    """The first line of a foreign error, at most 120 characters, without a final stop."""
    return str(error).strip().split("\n")[0][:120].rstrip(". ") or type(error).__name__

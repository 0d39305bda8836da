"""Memory for arrays that outlive the decoding of a file: private while small, else in a temporary file.

The file has no name from the start, so that nothing is left however the process ends; once released its pages
belong to the system's cache, which can write them out, and not to the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.errors import DataError

_PRIVATE_BYTES = 64_000_000
_SEGMENT_BYTES = 64_000_000
_ALIGNMENT = 64


class Scratch:
    """Hands out arrays; the first 64 MB of them are ordinary memory."""

    def __init__(self, private_bytes: int = _PRIVATE_BYTES) -> None:
        self._private_left = private_bytes
        self._segments: list[mmap.mmap] = []
        self._used = 0

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array of any content, as ``np.empty`` gives it.

        Raises:
            DataError: the disk of the temporary folder is full.
        """
        dtype = np.dtype(dtype)
        count = prod(shape) if isinstance(shape, tuple) else shape
        nbytes = count * dtype.itemsize
        if nbytes <= self._private_left:
            self._private_left -= nbytes
            return np.empty(shape, dtype)
        if not self._segments or self._used + nbytes > len(self._segments[-1]):
            self._segments.append(_segment(max(nbytes, _SEGMENT_BYTES)))
            self._used = 0
        flat = np.frombuffer(self._segments[-1], dtype, count, self._used)
        self._used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return flat.reshape(shape)

    def keep(self, values: NDArray[Any]) -> NDArray[Any]:
        """A copy of ``values``."""
        kept = self.empty(values.shape, values.dtype)
        kept[...] = values
        return kept

    def release(self) -> None:
        """Hand the pages of the file back to the system; what stands in the arrays stays as it is."""
        for segment in self._segments:
            segment.madvise(mmap.MADV_DONTNEED)


def _segment(nbytes: int) -> mmap.mmap:
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)  # a write beyond a full disk would kill the process
            return mmap.mmap(file.fileno(), nbytes)
    except OSError as err:
        raise DataError(
            f"{folder}: no room for {nbytes:,} bytes of rows while reading ({err.strerror}); free some, or "
            "set TMPDIR to a folder with room"
        ) from err

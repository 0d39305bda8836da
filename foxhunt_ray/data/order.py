"""How rows lie in chunks, which chunk owns a window, and the order of a pass.

The order is a pure function of (seed, epoch): chunks are permuted and filled into pools, and the windows of
a pool are permuted together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foxhunt_ray.data.windows import Rows


@dataclass(frozen=True, eq=False)
class Chunks:
    """Rows [first, last) of symbols, stored together; a chunk owns the windows that end in [owned, last).

    The rows [first, owned) are the halo: look-back of the longest window. All arrays are int64 [n_chunks].
    """

    symbol: Rows
    first: Rows
    owned: Rows
    last: Rows


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows in natural order (by symbol, then time); int64 [N] each: symbol, end row, owning chunk."""

    symbol: Rows
    end: Rows
    chunk: Rows

    def __len__(self) -> int:
        return len(self.end)

    def take(self, positions: Rows) -> Windows:
        """The windows at ``positions`` (int64 [M])."""
        return Windows(self.symbol[positions], self.end[positions], self.chunk[positions])


def cut_chunks(lengths: Sequence[int], *, chunk_rows: int, halo: int) -> Chunks:
    """Chunks of at most ``chunk_rows`` owned rows that cover symbols of the given lengths.

    Args:
        lengths: rows of each symbol.
        chunk_rows: owned rows of a chunk.
        halo: rows before the owned ones that a window may reach back to, the longest L - 1.
    """
    symbol, owned, last = [], [], []
    for number, length in enumerate(lengths):
        starts = np.arange(0, length, chunk_rows, dtype=np.int64)
        symbol.append(np.full(len(starts), number, np.int64))
        owned.append(starts)
        last.append(np.minimum(starts + chunk_rows, length))
    joined = np.concatenate(owned)
    return Chunks(np.concatenate(symbol), np.maximum(joined - halo, 0), joined, np.concatenate(last))


def locate(ends: Sequence[Rows], chunks: Chunks) -> Windows:
    """The windows with the given end rows (one array a symbol), each with its owning chunk."""
    symbol = np.repeat(np.arange(len(ends), dtype=np.int64), [len(e) for e in ends])
    chunk = []
    for number, rows in enumerate(ends):
        first, stop = np.searchsorted(chunks.symbol, [number, number + 1])
        chunk.append(first + np.searchsorted(chunks.owned[first:stop], rows, side="right") - 1)
    return Windows(symbol, np.concatenate(ends), np.concatenate(chunk))


def spread(stamps: Rows, count: int, seed: int) -> Rows:
    """Positions, increasing, of at most ``count`` windows: one from each equal slice of time order, seeded.

    Args:
        stamps: int64 [N], the time of each window.
        count: how many to keep.
        seed: of the draw inside each slice.
    """
    total = len(stamps)
    if count >= total:
        return np.arange(total)
    by_time = np.argsort(stamps, kind="stable")
    place = (np.arange(count) + _stream(seed, 0, 1).random(count)) * total / count
    return np.sort(by_time[place.astype(np.int64)])


def pass_order(
    windows: Windows, chunks: Chunks, *, seed: int, epoch: int, shuffle: bool, pool_rows: int
) -> Iterator[tuple[Rows, Rows]]:
    """The pools of one pass: (chunks to load, windows to yield in this order).

    Chunks are permuted, filled into pools of at most ``pool_rows`` rows, and the windows of a pool are
    permuted together; with one pool this is a permutation of all windows. Every window comes exactly once.

    Args:
        windows: N windows in natural order.
        chunks: the chunks that own them.
        seed: the run's seed.
        epoch: number of the pass.
        shuffle: False = natural order.
        pool_rows: rows that may be held at once.

    Yields:
        int64 [K] chunk numbers and int64 [M] positions in ``windows``.
    """
    used, counts = np.unique(windows.chunk, return_counts=True)
    where = np.split(np.argsort(windows.chunk, kind="stable"), np.cumsum(counts)[:-1])
    turn = np.arange(len(used)) if not shuffle else _stream(seed, epoch, 0).permutation(len(used))
    rows = (chunks.last - chunks.first)[used[turn]]
    pool_of = (np.cumsum(rows) - 1) // pool_rows
    for pool in np.unique(pool_of):
        members = turn[pool_of == pool]
        positions = np.concatenate([where[m] for m in members])
        if shuffle:
            positions = _stream(seed, epoch, 2 + int(pool)).permutation(positions)
        yield used[members], positions


def _stream(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """A counter-based random stream of its own for each (seed, epoch, purpose)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, purpose))))

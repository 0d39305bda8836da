"""How rows lie in units and blocks, which windows a pass yields, and in which order.

A *unit* is what is shuffled, a *block* what is stored and read as a whole. Training units lie in the blocks
in a fixed random order, so that reading whole blocks one after another still mixes symbols and times; all
other units lie in natural order. The order of a pass is a pure function of (seed, epoch): blocks are
permuted and filled into pools, and the windows of a pool are permuted together.

Rows are counted through all symbols, one after another, in the order of the symbols.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.windows import Rows

_FIXED = 0x666F7868  # of the order in which training units are stored; the run's seed decides that of a pass


@dataclass(frozen=True, eq=False)
class Units:
    """Units in natural order (by symbol, then time); int64 [n] each.

    A unit stores the rows [first, last) of one symbol and owns those from ``owned`` on, and with them the
    windows that end there. The rows before are look-back of the longest window.

    Attributes:
        symbol: whose rows they are.
        first: its first row.
        owned: the first row that it owns.
        last: the row after its last one.
        block: the block that stores it.
        offset: the row of that block at which ``first`` lies.
    """

    symbol: Rows
    first: Rows
    owned: Rows
    last: Rows
    block: Rows
    offset: Rows

    @property
    def rows(self) -> Rows:
        """Rows that each stores."""
        return self.last - self.first

    def stored(self, numbers: Rows) -> Rows:
        """The units ``numbers`` in the order in which they are stored, so that no block is read twice."""
        return numbers[np.lexsort((self.offset[numbers], self.block[numbers]))]

    def windows(self, ends: Rows) -> tuple[Rows, Rows]:
        """Where in ``ends`` (increasing) the windows of each unit start and stop, int64 [n] each."""
        start, stop = (np.searchsorted(ends, edge) for edge in (self.owned, self.last))
        return start, stop


@dataclass(frozen=True, eq=False)
class Pool:
    """Windows that are shuffled together; their order is computed when it is asked for.

    Attributes:
        units: int64 [K], what to load.
        count: int64 [K], windows that each owns.
        start: int64 [K], the first of them among all windows of the pass.
        skip: windows of the pool to leave out, in its order.
        stream: of the random numbers: seed, epoch and purpose; None = natural order.
    """

    units: Rows
    count: Rows
    start: Rows
    skip: int
    stream: tuple[int, int, int] | None

    def ordered(self, ends: Rows, shift: Rows) -> Rows:
        """Last rows of the windows in their order, int64 [M], where they lie once the units were moved.

        Args:
            ends: [N], the last row of each window of the pass.
            shift: for each unit, loaded or not, how far its rows were moved.
        """
        spans = zip(self.start, self.start + self.count, shift[self.units], strict=True)
        rows = np.concatenate([ends[a:b] + by for a, b, by in spans])
        if self.stream is not None:
            rows = _stream(*self.stream).permutation(rows)
        return rows[self.skip :]


def cut_units(
    lengths: Sequence[int], train: Sequence[tuple[int, int]], *, unit_rows: int, halo: int, block_rows: int
) -> Units:
    """Units that own every row of symbols of the given lengths, and the blocks that they lie in.

    Args:
        lengths: rows of each symbol.
        train: rows [start, stop) of each symbol that belong to training.
        unit_rows: most rows that a unit owns.
        halo: rows before the owned ones that a window may reach back to, the longest L - 1.
        block_rows: rows of a block; it may have up to a unit more.
    """
    parts, is_train, begin = [], [], 0
    for symbol, (length, (start, stop)) in enumerate(zip(lengths, train, strict=True)):
        for low, high, inside in ((0, start, False), (start, stop, True), (stop, length, False)):
            owned = np.arange(low, high, unit_rows, dtype=np.int64)
            ends = np.minimum(owned + unit_rows, high)
            rows = begin + np.stack([np.maximum(owned - halo, 0), owned, ends])
            parts.append(np.vstack([np.full(len(owned), symbol), rows]))
            is_train.append(np.full(len(owned), inside))
        begin += length
    symbols, first, owned, last = np.concatenate(parts, axis=1)
    block, offset = _stored(last - first, np.concatenate(is_train), block_rows)
    return Units(symbols, first, owned, last, block, offset)


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
    ends: Rows, units: Units, *, seed: int, epoch: int, shuffle: bool, pool_rows: int, skip: int = 0
) -> list[Pool]:
    """The pools of one pass; the windows that they name come in this order, each exactly once.

    With one pool the order is a permutation of all windows.

    Args:
        ends: [N], the last row of each window; increasing.
        units: the units that own them.
        seed: the run's seed.
        epoch: number of the pass.
        shuffle: False = natural order.
        pool_rows: rows after which a pool is full; it may have up to a block more.
        skip: windows at the start of the pass to leave out; a pool of which none is left does not come.
    """
    start, stop = units.windows(ends)
    turn = np.flatnonzero(stop > start)
    if shuffle:
        turn = turn[np.lexsort((units.offset[turn], _shuffled(units.block[turn], seed, epoch)))]
    found = []
    for number, members in enumerate(_pools(units, turn, shuffle, pool_rows)):
        count = (stop - start)[members]
        left_out = min(skip, int(count.sum()))
        skip -= left_out
        if left_out < count.sum():
            stream = (seed, epoch, 2 + number) if shuffle else None
            found.append(Pool(members, count, start[members], left_out, stream))
    return found


@dataclass(frozen=True, eq=False)
class Plan:
    """All that decides which batches a stream yields.

    Attributes:
        units: how rows are cut.
        ends: [N], the last row of each window, increasing; rows counted through all symbols.
        context_length: L, rows of a window.
        batch_size: windows of a batch of all ranks together.
        seed: of the order.
        shuffle: False = natural order.
        pool_rows: rows that are shuffled together.
    """

    units: Units
    ends: Rows
    context_length: int
    batch_size: int
    seed: int
    shuffle: bool
    pool_rows: int

    @property
    def batches(self) -> int:
        """Batches of a pass; the last one may be smaller."""
        return -(-len(self.ends) // self.batch_size)

    @cached_property
    def used(self) -> Rows:
        """Units that own a window."""
        start, stop = self.units.windows(self.ends)
        return np.flatnonzero(stop > start)

    @property
    def fits_one_pool(self) -> bool:
        """Whether all rows that windows need are shuffled together."""
        return int(self.units.rows[self.used].sum()) <= self.pool_rows

    def pools(self, epoch: int, skip: int) -> list[Pool]:
        """The pools of a pass, without its first ``skip`` windows."""
        return pass_order(
            self.ends,
            self.units,
            seed=self.seed,
            epoch=epoch,
            shuffle=self.shuffle,
            pool_rows=self.pool_rows,
            skip=skip,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Digest of which windows there are and how they are shuffled; seed and batch size are not in it."""
        digest = hashlib.blake2b(
            repr((self.context_length, self.shuffle, self.pool_rows)).encode(), digest_size=8
        )
        for array in (self.ends, *vars(self.units).values()):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _stored(rows: Rows, is_train: NDArray[np.bool_], block_rows: int) -> tuple[Rows, Rows]:
    """Block and offset of each unit."""
    mixed = np.random.Generator(np.random.Philox(_FIXED)).permutation(np.flatnonzero(is_train))
    block, offset = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    number = 0
    for units in (mixed, np.flatnonzero(~is_train)):
        before = np.cumsum(rows[units]) - rows[units]
        _, block_of = np.unique(_parts(before, rows[units], block_rows), return_inverse=True)
        block[units] = number + block_of
        offset[units] = before - before[np.searchsorted(block_of, block_of)]
        number += int(block_of[-1]) + 1 if len(units) else 0
    return block, offset


def _shuffled(block: Rows, seed: int, epoch: int) -> Rows:
    """For each unit the turn of its block."""
    names, number = np.unique(block, return_inverse=True)
    return np.argsort(_stream(seed, epoch, 0).permutation(len(names)))[number]


def _pools(units: Units, turn: Rows, shuffle: bool, pool_rows: int) -> list[Rows]:
    """``turn`` cut where a pool is full, between blocks if they are read whole."""
    if not len(turn):
        return []
    before = np.cumsum(units.rows[turn]) - units.rows[turn]
    if shuffle:
        block = units.block[turn]
        begins = np.flatnonzero(np.diff(block, prepend=-1))
        before = before[begins][np.searchsorted(begins, np.arange(len(turn)), side="right") - 1]
    return np.split(turn, np.flatnonzero(np.diff(_parts(before, units.rows[turn], pool_rows))) + 1)


def _parts(before: Rows, rows: Rows, most: int) -> Rows:
    """The part that each of some units lies in, when all are cut into equal ones of about ``most`` rows.

    Equal, since a short last part would be over before the next one is read.

    Args:
        before: rows that lie before each unit, or before what must stay together with it.
        rows: of each unit.
        most: rows of a part, but for what must stay together.
    """
    total = int(rows.sum())
    count = -(-total // most)
    return before * count // max(total, 1)


def _stream(seed: int, epoch: int, purpose: int) -> np.random.Generator:
    """A counter-based random stream of its own for each (seed, epoch, purpose)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, epoch, purpose))))

"""Blocks of rows in Ray's object store, streamed out of it in plan order: the only user of ``ray.data``.

A block is one row of a Dataset, a tensor [R, F]: Ray spends eight bytes on every row of a block. It is read
by ``iter_torch_batches``, which shares memory with the store: what ``read`` yields must be copied, since a
write into it would be seen by every process.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import ray
from numpy.typing import NDArray
from ray.data import DataContext
from ray.data._internal.execution.interfaces.ref_bundle import BlockEntry
from ray.data._internal.logical.interfaces import LogicalPlan
from ray.data._internal.logical.operators import FromBlocks
from ray.data._internal.stats import DatasetStats
from ray.data.block import BlockMetadataWithSchema
from ray.data.dataset import MaterializedDataset
from ray.data.extensions import ArrowTensorArray

from foxhunt_ray.data.order import Units
from foxhunt_ray.data.windows import Rows

UnitRows = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs [T, F] and targets [T, H] of a unit; shared with other processes, to be copied."""

# An iterator of Ray's takes about 20 ms to its first block, and one that is left early keeps a thread for
# ever, so it has to be read to its end: few iterators, and never one that is long.
_BLOCKS_AN_ITERATOR = 64


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows in the object store; picklable, holds references only. A node fetches a block once."""

    units: Units
    blocks: tuple[BlockEntry, ...]
    nbytes: int

    @property
    def widths(self) -> tuple[int, int]:
        """Inputs F and targets H of a row."""
        schema = self.blocks[0].metadata.schema
        features, targets = (int(schema.field(name).type.shape[1]) for name in ("features", "targets"))
        return features, targets

    def read(self, numbers: Rows, *, prefetch_blocks: int) -> Generator[UnitRows, None, None]:
        """The rows of the units ``numbers`` (int64 [K]), in this order.

        Args:
            numbers: units to read; cheap where those of a block stand together.
            prefetch_blocks: blocks that Ray fetches ahead.
        """
        wanted = self.units.block[numbers]
        runs = np.flatnonzero(np.diff(wanted, prepend=-1))
        with closing(self._stream(wanted[runs], prefetch_blocks)) as blocks:
            for members, (features, targets) in zip(np.split(numbers, runs[1:]), blocks, strict=True):
                for unit in members:
                    rows = slice(self.units.offset[unit], self.units.offset[unit] + self.units.rows[unit])
                    yield features[rows], targets[rows]

    def _stream(self, numbers: Rows, prefetch_blocks: int) -> Generator[UnitRows, None, None]:
        for part in iterators(numbers):
            dataset = _dataset([self.blocks[n] for n in part])
            blocks = iter(
                dataset.iter_torch_batches(batch_size=None, prefetch_batches=prefetch_blocks, device="cpu")
            )
            try:
                for block in blocks:
                    yield block["features"][0].numpy(), block["targets"][0].numpy()
            finally:
                _drain(blocks)


def iterators(numbers: Rows) -> list[list[int]]:
    """Blocks to read, in this order, cut into iterators: short ones, and none that has a block twice.

    Ray's prefetching thread complains of a block that it is asked for twice.
    """
    found: list[list[int]] = [[]]
    for number in numbers.tolist():
        if number in found[-1] or len(found[-1]) == _BLOCKS_AN_ITERATOR:
            found.append([])
        found[-1].append(number)
    return found


def put_blocks(
    rows: Sequence[NDArray[np.float32]], targets: Sequence[NDArray[np.float64]], units: Units
) -> StoredRows:
    """Put the rows of every symbol into the object store, block by block.

    Args:
        rows: float32 [n, F] inputs of each symbol.
        targets: float64 [n, H] of each symbol; stored as float32.
        units: how they lie in blocks.
    """
    begin = np.cumsum([0, *map(len, rows)])[units.symbol]
    blocks, nbytes = [], 0
    in_order = units.stored(np.arange(len(units.block)))
    for members in np.split(in_order, np.flatnonzero(np.diff(units.block[in_order])) + 1):
        cuts = [
            (units.symbol[u], slice(units.first[u] - begin[u], units.last[u] - begin[u])) for u in members
        ]
        block = pa.table(
            {
                "features": _tensor([rows[s][part] for s, part in cuts]),
                "targets": _tensor([targets[s][part].astype(np.float32) for s, part in cuts]),
            }
        )
        blocks.append(BlockEntry(ray.put(block), BlockMetadataWithSchema.from_block(block)))
        nbytes += block.nbytes
    return StoredRows(units, tuple(blocks), nbytes)


def _tensor(parts: Sequence[NDArray[np.float32]]) -> ArrowTensorArray:
    return ArrowTensorArray.from_numpy(np.concatenate(parts)[None])


def _drain(blocks: Iterator[object]) -> None:
    for _ in blocks:
        pass


def _dataset(blocks: Sequence[BlockEntry]) -> MaterializedDataset:
    """A Dataset over blocks that are in the store already, in this order, made without running any task.

    Ray 2.60 has no public way: ``from_arrow_refs`` runs a task for each block, which waits for ever in a
    trial that holds every CPU. A test pins order and content.
    """
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it has an INFO line for every pass
    context = DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    operator = FromBlocks([b.ref for b in blocks], [b.metadata for b in blocks])
    return MaterializedDataset(
        LogicalPlan(operator, context), context, DatasetStats(metadata={"FromBlocks": []}, parent=None)
    )

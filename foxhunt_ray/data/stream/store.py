"""Chunks of rows in Ray's object store, and pools of them copied out of it: the only user of ``ray.data``.

A chunk is one row, a tensor [T, F], of one block: Ray spends eight bytes on every row of a block. A pool is
read by ``iter_torch_batches``, whole blocks in plan order, and copied: store memory never leaves this module,
since ``torch.from_numpy`` would make it writable for every process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import ray
import torch
from numpy.typing import NDArray
from ray.data import DataContext
from ray.data._internal.execution.interfaces.ref_bundle import BlockEntry
from ray.data._internal.logical.interfaces import LogicalPlan
from ray.data._internal.logical.operators import FromBlocks
from ray.data._internal.stats import DatasetStats
from ray.data.block import BlockMetadataWithSchema
from ray.data.dataset import MaterializedDataset
from ray.data.extensions import ArrowTensorArray

from foxhunt_ray.data.order import Chunks, cut_chunks
from foxhunt_ray.data.windows import Rows

_MIN_CHUNK_ROWS = 4096
_ROWS_PER_HALO = 64  # so that the halo costs about 1.5 % of the store


@dataclass(frozen=True, eq=False)
class Arena:
    """A pool's chunks in one block of private memory.

    ``features`` [N, F] and ``targets`` [N, H] float32; row r of a symbol that chunk c holds lies at
    ``offset[c] + r``.
    """

    features: torch.Tensor
    targets: torch.Tensor
    offset: Rows


@dataclass(frozen=True, eq=False)
class ChunkStore:
    """Every row of every symbol in the object store, cut into chunks; picklable, holds references only."""

    chunks: Chunks
    blocks: tuple[BlockEntry, ...]
    nbytes: int

    def load(self, numbers: Rows, *, prefetch_blocks: int) -> Arena:
        """Copy the chunks ``numbers`` (int64 [K]) out of the store, in this order.

        Args:
            numbers: chunks to load.
            prefetch_blocks: blocks that Ray fetches ahead of the copy.
        """
        first, last = self.chunks.first[numbers], self.chunks.last[numbers]
        ends = np.cumsum(last - first)
        offset = np.zeros(len(self.blocks), np.int64)
        offset[numbers] = ends - last
        features = torch.empty(int(ends[-1]), self._width("features"))
        targets = torch.empty(int(ends[-1]), self._width("targets"))
        dataset = _dataset([self.blocks[n] for n in numbers])
        blocks = dataset.iter_torch_batches(batch_size=None, prefetch_batches=prefetch_blocks, device="cpu")
        for block, stop, rows in zip(blocks, ends, last - first, strict=True):
            features[stop - rows : stop] = block["features"][0]
            targets[stop - rows : stop] = block["targets"][0]
        return Arena(features, targets, offset)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row: F inputs and H targets, float32."""
        return 4 * (self._width("features") + self._width("targets"))

    def _width(self, column: str) -> int:
        return int(self.blocks[0].metadata.schema.field(column).type.shape[1])


def put_chunks(
    rows: Sequence[NDArray[np.float32]], targets: Sequence[NDArray[np.float64]], *, context_length: int
) -> ChunkStore:
    """Cut the rows of every symbol into chunks and put each into the object store as one block.

    Args:
        rows: float32 [n, F] inputs of each symbol.
        targets: float64 [n, H] of each symbol; stored as float32.
        context_length: longest window, which sets the halo [rows].
    """
    halo = context_length - 1
    size = max(_MIN_CHUNK_ROWS, _ROWS_PER_HALO * halo)
    chunks = cut_chunks([len(r) for r in rows], chunk_rows=size, halo=halo)
    blocks, nbytes = [], 0
    for symbol, first, last in zip(chunks.symbol, chunks.first, chunks.last, strict=True):
        block = pa.table(
            {
                "features": ArrowTensorArray.from_numpy(rows[symbol][None, first:last]),
                "targets": ArrowTensorArray.from_numpy(targets[symbol][None, first:last].astype(np.float32)),
            }
        )
        blocks.append(BlockEntry(ray.put(block), BlockMetadataWithSchema.from_block(block)))
        nbytes += block.nbytes
    return ChunkStore(chunks, tuple(blocks), nbytes)


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

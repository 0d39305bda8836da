"""A pool's rows in one block of memory, out of which windows are gathered; and on which side of the bus.

Windows are gathered after the rows were scaled, by one ``index_select`` over a strided view: 1/L of the
arithmetic, and batches that own their memory. The three tiers give bitwise the same batches and differ in
what crosses to the device: "resident" keeps the whole split there and sends row numbers (8 bytes a window);
"arena" sends the rows of each pool once; "host" sends windows, L times the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foxhunt_ray.batch import Batch
from foxhunt_ray.data.windows import Rows

Tier = Literal["resident", "arena", "host"]

_SLICE_ROWS = 2048  # scaled together: the passes over them stay in the cache
_RESIDENT_SHARE = 0.25  # of the free device memory that a split may take
_ARENA_SHARE = 0.1  # and that a pool may; two of them are alive at once


@dataclass(frozen=True, eq=False)
class Scaling:
    """(x - mean) / std, then a clip at +-clip; float64 [F] statistics of training rows, clip 0 = none.

    What is still missing is 0: in a valid window that can only be an optional input.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    clip: float

    def apply_(self, features: Tensor) -> None:
        """Scale float32 [N, F] rows in place."""
        mean, factor = torch.from_numpy(self.mean).float(), torch.from_numpy(1 / self.std).float()
        for rows in torch.split(features, _SLICE_ROWS):
            rows.sub_(mean).mul_(factor)
            if self.clip:
                rows.clamp_(-self.clip, self.clip)
            rows.nan_to_num_(nan=0.0)


@dataclass(frozen=True, eq=False)
class Arena:
    """N rows: float32 ``features`` [N, F] and ``targets`` [N, H]; int64 ``symbol`` and ``ts_event`` [N]."""

    features: Tensor
    targets: Tensor
    symbol: Tensor
    ts_event: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(t.numel() * t.element_size() for t in self._tensors())

    def to(self, device: torch.device) -> Arena:
        """The rows on ``device``; asynchronous when pinned."""
        return Arena(*(t.to(device, non_blocking=True) for t in self._tensors()))

    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.features, self.targets, self.symbol, self.ts_event


@dataclass(frozen=True, eq=False)
class Filled:
    """M windows of a pool in their order, on the device that the rows lie on.

    Attributes:
        view: float32 [N - L + 1, L F], the windows that begin at each row, shared with the rows.
        starts: int64 [M], the row at which each window begins.
        targets: float32 [M, H].
        symbol: int64 [M].
        ts_event: int64 [M].
        width: F.
        is_last: whether a pass ends with this pool.
        ready: what another stream must wait for before it reads them.
    """

    view: Tensor
    starts: Tensor
    targets: Tensor
    symbol: Tensor
    ts_event: Tensor
    width: int
    is_last: bool
    ready: torch.cuda.Event | None

    def __len__(self) -> int:
        return len(self.starts)

    def windows(self, which: slice, *, pinned: bool) -> Batch:
        """Some of the windows as a batch of its own memory; page-locked if ``pinned``."""
        starts = self.starts[which]
        flat = self.view.new_empty((len(starts), self.view.shape[1]), pin_memory=pinned)
        torch.index_select(self.view, 0, starts, out=flat)
        features = flat.view(len(starts), self.view.shape[1] // self.width, self.width)
        return Batch(features, self.targets[which], self.symbol[which], self.ts_event[which])

    def wait(self) -> None:
        """Order the current stream after the filling, and let it read until then."""
        if self.ready is not None:
            stream = torch.cuda.current_stream(self.view.device)
            stream.wait_event(self.ready)
            for tensor in (self.view, self.starts, self.targets, self.symbol, self.ts_event):
                tensor.record_stream(stream)


def ordered(arena: Arena, ends: Rows, length: int, *, is_last: bool, pinned: bool) -> Filled:
    """The windows of ``length`` rows that end at ``ends`` (int64 [M]), in that order.

    What belongs to a window and not to its rows is put in order here, for the whole pool at once: a batch is
    then one gather and three slices. They are page-locked if ``pinned``.
    """
    device = arena.features.device
    n, width = arena.features.shape
    rows = torch.from_numpy(ends)
    if device.type == "cuda":
        rows = rows.pin_memory().to(device, non_blocking=True)
    targets, symbol, ts_event = (
        torch.index_select(t, 0, rows, out=t.new_empty((len(rows), *t.shape[1:]), pin_memory=pinned))
        for t in (arena.targets, arena.symbol, arena.ts_event)
    )
    return Filled(
        arena.features.as_strided((n - length + 1, length * width), (width, 1)),
        rows - (length - 1),
        targets,
        symbol,
        ts_event,
        width,
        is_last,
        torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None,
    )


def pick_tier(wanted: str, *, free_bytes: int | None, split_bytes: int, pool_bytes: int) -> Tier:
    """Where windows are gathered: as wanted, or the tier that sends least of those that fit.

    Args:
        wanted: a tier, or "auto".
        free_bytes: of the device's memory; None = the device is the CPU, where nothing is sent.
        split_bytes: of all rows that the windows need.
        pool_bytes: of the rows of a pool.
    """
    if wanted != "auto":
        return cast(Tier, wanted)
    if free_bytes is None:
        return "host"
    if split_bytes <= _RESIDENT_SHARE * free_bytes:
        return "resident"
    return "arena" if pool_bytes <= _ARENA_SHARE * free_bytes else "host"


def device_free_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that this process may still take; None for the CPU."""
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    free, total = torch.cuda.mem_get_info(index)
    share = torch.cuda.get_per_process_memory_fraction(index)
    return int(min(free, share * total - torch.cuda.memory_reserved(index)))

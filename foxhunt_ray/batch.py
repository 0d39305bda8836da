"""Batch: the one value that crosses from data to training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """B windows of L bars with F features and H target horizons.

    Attributes:
        features: float32 [B, L, F], oldest bar first; the forecast is made at the last one.
        targets: float32 [B, H] in target units; NaN where the future is not known yet.
        symbol: int64 [B], position in ``Prepared.symbols``.
        ts_event: int64 [B], stamp of the last input bar in UTC nanoseconds.
    """

    features: Tensor
    targets: Tensor
    symbol: Tensor
    ts_event: Tensor

    def __len__(self) -> int:
        return self.features.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes held by the four tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors())

    def pin_memory(self) -> Batch:
        """The same batch in page-locked host memory, from which a GPU copy can overlap compute."""
        return Batch(*(t.pin_memory() for t in self.tensors()))

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on ``device``; asynchronous when pinned and ``non_blocking``."""
        return Batch(*(t.to(device, non_blocking=non_blocking) for t in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, targets, symbol and ts_event."""
        return self.features, self.targets, self.symbol, self.ts_event

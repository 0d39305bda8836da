"""Windows as data sets for torch's DataLoader. Apart from the arms, since its workers import this anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset


@dataclass(frozen=True, eq=False)
class FlatRows:
    """The scaled rows of all symbols in one block, and the training windows in it.

    ``features`` float32 [N, F], ``targets`` float32 [N, H], ``ends`` int64 [M], the last row of each window.
    """

    features: Tensor
    targets: Tensor
    ends: NDArray[np.int64]
    length: int


class PerItem(Dataset[tuple[Tensor, Tensor]]):
    """A window is a view of the rows; DataLoader stacks them."""

    def __init__(self, flat: FlatRows) -> None:
        self.flat, self.ends, self.length = flat, flat.ends.tolist(), flat.length

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        end = self.ends[number]
        return self.flat.features[end + 1 - self.length : end + 1], self.flat.targets[end]


class ByBatch(Dataset[tuple[Tensor, Tensor]]):
    """A batch is gathered at once: what an expert makes of DataLoader."""

    def __init__(self, flat: FlatRows) -> None:
        (n, width), length = flat.features.shape, flat.length
        self.shape = (-1, length, width)
        self.view = flat.features.as_strided((n - length + 1, length * width), (width, 1))
        self.targets, self.ends, self.length = flat.targets, torch.from_numpy(flat.ends), length

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.__getitems__([number])

    def __getitems__(self, numbers: list[int]) -> tuple[Tensor, Tensor]:
        end = self.ends[numbers]
        features = self.view.index_select(0, end + 1 - self.length).view(self.shape)
        return features, self.targets.index_select(0, end)

"""Hand-made windows with a linear signal, and a model small enough to train in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from foxhunt_ray.batch import Batch
from foxhunt_ray.train.metrics import TargetScale

BARS, FEATURES, HORIZONS = 6, 3, 2


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Models of a few hundred numbers gain nothing from threads, and lose much where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def scale() -> TargetScale:
    return TargetScale(center=(1.0, -2.0), scale=(0.5, 3.0), reference=(1.0, 0.0))


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """make_batch(seed, windows=16): targets are a linear function of the last bar, in noise."""

    def make(seed: int, windows: int = 16) -> Batch:
        draw = torch.Generator().manual_seed(seed)
        features = torch.randn(windows, BARS, FEATURES, generator=draw)
        noise = torch.randn(windows, HORIZONS, generator=draw)
        targets = (
            features[:, -1, :HORIZONS] * torch.tensor([0.5, 3.0]) + 0.3 * noise + torch.tensor([1.0, -2.0])
        )
        index = torch.arange(windows)
        return Batch(features, targets, symbol=index % 2, ts_event=index * 60 + seed)

    return make


@pytest.fixture
def endless(make_batch: Callable[..., Batch]) -> Callable[..., Iterator[Batch]]:
    """endless(start=0): batch i is a function of i alone, as a stream's is of its plan."""

    def stream(start: int = 0, device: str = "cpu") -> Iterator[Batch]:
        step = start
        while True:
            yield make_batch(1000 + step).to(device)
            step += 1

    return stream


@pytest.fixture
def new_model() -> Callable[..., nn.Module]:
    """new_model(dropout=0.2, seed=0): also leaves torch's generator where a trial would start."""

    def build(dropout: float = 0.2, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(BARS * FEATURES, 8),
            nn.GELU(),
            nn.LayerNorm(8),
            nn.Dropout(dropout),
            nn.Linear(8, HORIZONS),
        )

    return build

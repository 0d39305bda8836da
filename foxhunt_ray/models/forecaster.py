"""Forecaster: windows of features [B, L, F] become forecasts [B, H], one a horizon, made at the last bar.

Feature projection, residual Mamba-2 blocks, norm, horizon head. The surprise: the last block computes its
last step alone, since nothing reads the others; the result is the same, and two blocks cost a third less.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from foxhunt_ray.config.schema import ModelConfig
from foxhunt_ray.errors import DataError
from foxhunt_ray.models.mamba2 import Mamba2, exempt_from_decay
from foxhunt_ray.models.offload import OffloadedLayers


def build_model(
    model: ModelConfig, *, n_features: int, n_targets: int, device: torch.device | str = "cpu"
) -> Forecaster:
    """A forecaster on ``device`` at its initial values, drawn from torch's global random stream of the CPU.

    Args:
        model: sizes, as configured.
        n_features: columns F of a window.
        n_targets: forecasts H a window.
        device: where it computes; with ``model.offload`` = layers, the blocks' weights stay on the host.
    """
    forecaster = Forecaster(model, n_features=n_features, n_targets=n_targets)
    if model.offload == "none":
        return forecaster.to(device)
    for part in (forecaster.inp, forecaster.norm, forecaster.head):
        part.to(device)
    forecaster.offloaded = OffloadedLayers(forecaster.layers, device)
    return forecaster


class Forecaster(nn.Module):
    """Feature projection, Mamba-2 blocks and horizon head; made by ``build_model``."""

    def __init__(self, model: ModelConfig, *, n_features: int, n_targets: int) -> None:
        super().__init__()
        self.inp = nn.Linear(n_features, model.d_model)
        self.layers = nn.ModuleList(_Block(model) for _ in range(model.n_layer))
        self.offloaded: OffloadedLayers | None = None
        self.norm = nn.RMSNorm(model.d_model, eps=1e-5)
        self.head = nn.Linear(model.d_model, n_targets)
        # Targets are centred, so near zero is a good first forecast. Exactly zero would pass no gradient on.
        nn.init.normal_(self.head.weight, std=0.01 / math.sqrt(model.d_model))
        nn.init.zeros_(self.head.bias)
        exempt_from_decay(self)

    def forward(self, features: Tensor) -> Tensor:
        """Forecasts [B, H] in the type of the features.

        Args:
            features: float32 [B, L, F], oldest bar first, L >= 1.

        Raises:
            DataError: another number of features, or no bar.
        """
        width = self.inp.in_features
        if features.ndim != 3 or features.shape[1] == 0 or features.shape[2] != width:
            raise DataError(
                f"features have shape {list(features.shape)}; this model takes [B, L, {width}] with L >= 1: "
                "give it the columns it was built for"
            )
        run = self.offloaded or self._resident
        forecast: Tensor = self.head(self.norm(run(self.inp(features))))
        return forecast

    def _resident(self, hidden: Tensor) -> Tensor:
        *body, last = self.layers
        for block in body:
            hidden = block(hidden)
        out: Tensor = last(hidden, last_only=True)
        return out


class _Block(nn.Module):
    """x + dropout(mixer(norm(x))), at every step or at the last one alone."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(model.d_model, eps=1e-5)
        self.mixer = Mamba2(
            model.d_model,
            d_state=model.d_state,
            d_conv=model.d_conv,
            expand=model.expand,
            headdim=model.headdim,
            ngroups=model.ngroups,
            chunk_size=model.chunk_size,
        )
        # The blocks' outputs add up: scaled so that the variance of the sum does not grow with their number.
        with torch.no_grad():
            self.mixer.out_proj.weight /= math.sqrt(model.n_layer)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor, last_only: bool = False) -> Tensor:
        mixed: Tensor = self.dropout(self.mixer(self.norm(x), last_only=last_only))
        return mixed + (x[:, -1] if last_only else x)

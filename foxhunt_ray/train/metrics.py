"""Losses and scores, summed over windows in float64, and the passes over a split that fill them.

A model works in scaled units, (target - center) / scale; every score but the loss is in target units. Sums
are kept, not means of batches, so that a result does not depend on how the windows were batched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from foxhunt_ray.batch import Batch
from foxhunt_ray.errors import DataError

_LEAST_CHANCE = 1e-12  # a forecast that is certain and wrong has a finite loss
_BY_HORIZON = ("skill", "ic", "mae", "hit")


@dataclass(frozen=True, slots=True)
class TargetScale:
    """How target units and the model's units relate, one entry a horizon.

    Attributes:
        center: what is subtracted from a target, in target units.
        scale: what it is then divided by, in target units; above 0.
        reference: constant forecast against which skill is measured, in target units.
        link: identity = a model's output is the scaled forecast; logistic = targets lie in [-1, 1], and the
            forecast of an output s is 2 / (1 + exp(-s)) - 1, the expected target.
        is_signed: whether the sign of a target is a direction, of which the share of hits is scored.
        horizons: in bars, by which scores are named if there are several.

    Raises:
        DataError: a scale is not a finite number above 0.
    """

    center: tuple[float, ...]
    scale: tuple[float, ...]
    reference: tuple[float, ...]
    link: Literal["identity", "logistic"] = "identity"
    is_signed: bool = False
    horizons: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.center) == len(self.scale) == len(self.reference)
        for horizon, value in enumerate(self.scale):
            if not (math.isfinite(value) and value > 0):
                raise DataError(
                    f"target {horizon}: its spread over the training rows is {value}; expected a finite "
                    "number above 0; choose a target that varies"
                )

    def scaled(self, target: Tensor) -> Tensor:
        """``target`` [B, H] in scaled units, float64."""
        wide = target.double()
        return (wide - wide.new_tensor(self.center)) / wide.new_tensor(self.scale)

    def in_units(self, scaled: Tensor) -> Tensor:
        """A model's output [B, H] in target units, float64."""
        wide = scaled.double()
        if self.link == "logistic":
            return 2 * torch.sigmoid(wide) - 1
        return wide * wide.new_tensor(self.scale) + wide.new_tensor(self.center)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The training loss, a scalar in the type of ``output``.

        Mean squared error in scaled units; with the logistic link the cross entropy of (1 + target) / 2, a
        proper score of the mean of a variable in [-1, 1] (Gneiting and Raftery 2007).

        Args:
            output: of the model, [B, H].
            target: [B, H] in target units.
        """
        # The difference to the centre is taken in float64: prices near 100 that move by 1e-4 would lose
        # it in float32.
        scaled = self.scaled(target).to(output.dtype)
        assert output.shape == scaled.shape, f"{tuple(output.shape)} against {tuple(scaled.shape)}"
        if self.link == "logistic":
            return nn.functional.binary_cross_entropy_with_logits(output, (1 + scaled) / 2)
        return nn.functional.mse_loss(output, scaled)

    def terms(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The same loss of each forecast [B, H], both float64 in target units; before the mean."""
        if self.link == "logistic":
            chance = ((1 + prediction) / 2).clamp(_LEAST_CHANCE, 1 - _LEAST_CHANCE)
            truth = (1 + target) / 2
            return -(truth * chance.log() + (1 - truth) * (1 - chance).log())
        return ((prediction - target) / prediction.new_tensor(self.scale)) ** 2


class Scores:
    """Running sums over windows, from which the scores of a split are computed once."""

    def __init__(self, scale: TargetScale) -> None:
        self._scale = scale
        self._origin: tuple[Tensor, Tensor] | None = None
        self._sums: Tensor | None = None
        self._windows = 0

    def add(self, prediction: Tensor, target: Tensor) -> None:
        """Adds B windows; those with an unknown target (NaN) are left out.

        Args:
            prediction: [B, H] in target units.
            target: [B, H] in target units.
        """
        assert prediction.shape == target.shape, f"{tuple(prediction.shape)} against {tuple(target.shape)}"
        known = ~target.isnan().any(dim=1)
        p, t = prediction[known].double(), target[known].double()
        if not len(t):
            return
        if self._origin is None:
            # Moments about the first window: no cancellation far from zero, and a constant
            # has exactly no variance.
            self._origin = p[0], t[0]
        error, reference = p - t, t - t.new_tensor(self._scale.reference)
        dp, dt = p - self._origin[0], t - self._origin[1]
        moves = (t != 0).double()
        hits = moves * ((p * t > 0).double() + 0.5 * (p == 0).double())
        loss = self._scale.terms(p, t)
        parts = (error.abs(), error**2, reference**2, dp, dt, dp**2, dt**2, dp * dt, loss, moves, hits)
        terms = torch.stack(parts).sum(dim=1)
        self._sums = terms if self._sums is None else self._sums + terms
        self._windows += len(t)

    def result(self) -> dict[str, float]:
        """``loss`` (see ``TargetScale.loss``), ``skill``, ``ic``, ``mse``, ``mae``, means over the horizons.

        Skill is 1 - MSE / MSE(reference). The information coefficient ``ic`` is Pearson's correlation of
        forecast and target over all windows. It is NaN where either is constant, and skill is NaN where the
        reference is never wrong: there is nothing to divide by, and 0 would claim a measurement. A signed
        target also has ``hit``, the share of targets other than 0 whose sign the forecast has, a forecast of
        0 counting half. With several horizons ``skill_h6`` and so on are those of 6 bars.

        Raises:
            DataError: no window with a known target was added.
        """
        if self._sums is None:
            raise DataError("no windows to score; expected at least one with a known target; widen the split")
        means = (self._sums / self._windows).cpu().numpy()
        mae, mse, reference, p, t, pp, tt, pt, loss, moves, hits = means
        with np.errstate(divide="ignore", invalid="ignore"):
            skill = np.where(reference > 0, 1 - mse / reference, np.nan)
            variance = np.maximum(pp - p**2, 0) * np.maximum(tt - t**2, 0)
            ic = np.where(variance > 0, (pt - p * t) / np.sqrt(variance), np.nan)
            hit = np.where(moves > 0, hits / moves, np.nan)
        scores = {"loss": loss, "skill": skill, "ic": ic, "mse": mse, "mae": mae}
        scores |= {"hit": hit} if self._scale.is_signed else {}
        found = {name: float(values.mean()) for name, values in scores.items()}
        horizons = self._scale.horizons if len(self._scale.center) > 1 else ()
        for number, horizon in enumerate(horizons):
            named = {n: float(v[number]) for n, v in scores.items() if n in _BY_HORIZON}
            found |= {f"{name}_h{horizon}": value for name, value in named.items()}
        return found


@dataclass(frozen=True, slots=True)
class Predictions:
    """Forecasts of N windows in the order in which they came.

    Attributes:
        prediction: float64 [N, H] in target units.
        target: float64 [N, H] in target units; NaN where the future is not known yet.
        symbol: int64 [N], position in ``Prepared.symbols``.
        ts_event: int64 [N], stamp of the last input bar in UTC nanoseconds.
    """

    prediction: npt.NDArray[np.float64]
    target: npt.NDArray[np.float64]
    symbol: npt.NDArray[np.int64]
    ts_event: npt.NDArray[np.int64]


def evaluate(model: nn.Module, batches: Iterable[Batch], scale: TargetScale) -> dict[str, float]:
    """The scores (see ``Scores.result``) of ``model`` over ``batches``, which lie on its device.

    Raises:
        DataError: the batches hold no window with a known target.
    """
    scores = Scores(scale)
    with _inference(model):
        for batch in batches:
            scores.add(scale.in_units(model(batch.features)), batch.targets)
    return scores.result()


def predict(model: nn.Module, batches: Iterable[Batch], scale: TargetScale) -> Predictions:
    """The forecasts of ``model`` for every window of ``batches``, which lie on its device."""
    horizons = len(scale.center)
    rows: list[tuple[npt.NDArray[Any], ...]] = [
        (np.empty((0, horizons)), np.empty((0, horizons)), np.empty(0, np.int64), np.empty(0, np.int64))
    ]
    with _inference(model):
        for batch in batches:
            prediction = scale.in_units(model(batch.features))
            parts = (prediction, batch.targets.double(), batch.symbol, batch.ts_event)
            # Copied: on the CPU .numpy() shares memory, and a loader may refill what it lent.
            rows.append(tuple(part.cpu().numpy().copy() for part in parts))
    return Predictions(*(np.concatenate(column) for column in zip(*rows, strict=True)))


@contextmanager
def _inference(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the model's mode is restored however the block ends."""
    was_training = model.training
    model.eval()
    try:
        # Not inference_mode: a mask that the model caches inside it could never take part in training again.
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)

"""What a forecaster must beat on the same windows: zero, the training mean, the last value, and ridge.

Ridge is solved in closed form from one pass over the training windows, and every penalty is judged in one
pass over the validation windows; only a Gram matrix is held, never the windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from foxhunt_ray.batch import Batch
from foxhunt_ray.errors import DataError
from foxhunt_ray.train.metrics import Scores, TargetScale

_PENALTIES = tuple(10.0**k for k in range(-4, 5))
# The Gram matrix costs windows x inputs^2 operations: beyond this many inputs, only the latest bars are used.
_MAX_INPUTS = 2048


@dataclass(frozen=True, slots=True)
class Ridge:
    """A linear forecast from the flattened window.

    Attributes:
        weight: float64 [bars * F, H], from inputs to scaled units.
        intercept: float64 [H], not penalised.
        penalty: the chosen one, per training window: mean squared error + penalty * squared norm of the
            weights.
        bars: latest bars of the window that are used.
        scale: between scaled units and target units; a linear forecast has no link.
        bound: largest magnitude of a forecast.
    """

    weight: Tensor
    intercept: Tensor
    penalty: float
    bars: int
    scale: TargetScale
    bound: float = math.inf

    def predict(self, features: Tensor) -> Tensor:
        """Forecasts [B, H] in target units, float64, from windows ``features`` [B, L, F]."""
        forecast = self.scale.in_units(_flat(features, self.bars) @ self.weight + self.intercept)
        return forecast.clamp(-self.bound, self.bound)


def fit_ridge(
    train: Iterable[Batch],
    val: Iterable[Batch],
    *,
    scale: TargetScale,
    penalties: Sequence[float] = _PENALTIES,
) -> Ridge:
    """Ridge regression fitted on ``train``, with the penalty of the lowest mean squared error on ``val``.

    Both are iterated once. With centred inputs X and targets Y of n windows, and X'X / n = Q diag(e) Q', the
    weights of every penalty p are Q diag(1 / (e + p)) Q' X'Y / n (Hastie, Tibshirani and Friedman, The
    Elements of Statistical Learning, equation 3.44, there by the singular values of X).

    Args:
        train: features float32 [B, L, F] and known targets [B, H].
        val: the same; chooses the penalty.
        scale: between target units and scaled units.
        penalties: candidates above 0, per training window.

    Raises:
        DataError: one of the two is empty.
    """
    bound = 1.0 if scale.link == "logistic" else math.inf
    scale = replace(scale, link="identity")
    inputs_mean, targets_mean, inputs_gram, cross, bars = _moments(train, scale)
    values, vectors = torch.linalg.eigh(inputs_gram)
    grid = values.new_tensor(penalties)
    # [P, d, H]: all penalties share one eigendecomposition; rounding can leave an eigenvalue just below 0.
    shrunk = (vectors.T @ cross) / (values.clamp(min=0) + grid[:, None])[:, :, None]
    weights = vectors @ shrunk
    intercepts = targets_mean - inputs_mean @ weights
    errors, windows = torch.zeros_like(grid), 0
    for batch in val:
        forecast = _flat(batch.features, bars) @ weights + intercepts[:, None]
        errors += (forecast - scale.scaled(batch.targets)).square().sum(dim=(1, 2))
        windows += len(batch)
    if not windows:
        raise DataError(
            "no validation windows to choose the ridge penalty on; expected one at least; widen split.val"
        )
    best = int(errors.argmin())
    return Ridge(
        weights[best], intercepts[best], penalty=penalties[best], bars=bars, scale=scale, bound=bound
    )


def score_baselines(
    batches: Iterable[Batch],
    *,
    last: npt.NDArray[np.float64],
    mean: Sequence[float],
    ridge: Ridge,
    scale: TargetScale,
) -> dict[str, dict[str, float]]:
    """Scores (see ``Scores.result``) of ``zero``, ``mean``, ``last`` and ``ridge`` over a split's windows.

    Args:
        batches: N windows in all.
        last: float64 [N, H], the quantity over the bars up to each window's end, in the order of
            ``batches``, in target units; NaN where unknown, and the reference is forecast there.
        mean: of the training targets, one entry a horizon, in target units.
        ridge: fitted on the training windows.
        scale: between target units and scaled units.

    Raises:
        DataError: the batches are empty, or ``last`` is not of their length.
    """
    scores = {name: Scores(scale) for name in ("zero", "mean", "last", "ridge")}
    known = torch.from_numpy(np.where(np.isnan(last), np.asarray(scale.reference), last))
    done = 0
    for batch in batches:
        target = batch.targets.double()
        recent = known[done : done + len(batch)].to(target.device)
        done += len(batch)
        if len(recent) < len(batch):
            break
        scores["zero"].add(torch.zeros_like(target), target)
        scores["mean"].add(target.new_tensor(mean).expand_as(target), target)
        scores["last"].add(recent, target)
        scores["ridge"].add(ridge.predict(batch.features), target)
    if done != len(known):
        raise DataError(
            f"{len(known)} last values for {done} windows or more; expected one a window, in their order"
        )
    return {name: score.result() for name, score in scores.items()}


def _flat(features: Tensor, bars: int) -> Tensor:
    """The latest ``bars`` of each window as one float64 row [B, bars * F]."""
    return features[:, -bars:].flatten(start_dim=1).double()


def _moments(train: Iterable[Batch], scale: TargetScale) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Mean input [d] and target [H], centred X'X / n [d, d] and X'Y / n [d, H], and the bars in d."""
    gram: Tensor | None = None
    bars = 0
    for batch in train:
        bars = bars or min(batch.features.shape[1], max(1, _MAX_INPUTS // batch.features.shape[2]))
        inputs, targets = _flat(batch.features, bars), scale.scaled(batch.targets)
        # One product gives every sum at once: the column of ones counts windows and adds up
        # inputs and targets.
        rows = torch.cat((inputs, targets, inputs.new_ones(len(batch), 1)), dim=1)
        gram = rows.T @ rows if gram is None else gram.addmm_(rows.T, rows)
    if gram is None or gram[-1, -1] == 0:
        raise DataError("no training windows to fit ridge on; expected one at least; widen split.train")
    gram /= gram[-1, -1].clone()
    inputs_count = gram.shape[0] - 1 - len(scale.center)
    inputs_mean, targets_mean = gram[-1, :inputs_count], gram[-1, inputs_count:-1]
    # Inputs are normalised and targets scaled: their means are small, and subtracting them here loses
    # nothing.
    inputs_gram = gram[:inputs_count, :inputs_count] - torch.outer(inputs_mean, inputs_mean)
    cross = gram[:inputs_count, inputs_count:-1] - torch.outer(inputs_mean, targets_mean)
    return inputs_mean, targets_mean, inputs_gram, cross, bars

"""Statistics by which inputs are scaled, of training rows only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from foxhunt_ray.data.features import MISSING

Series = NDArray[np.float64]
_BLOCK_VALUES = 2**22  # bounds what is held in float64
_NORMAL_IQR = 1.3489795003921634  # interquartile range of a standard normal variable


def scaling_statistics(
    rows: Sequence[NDArray[np.float32]],
    inside: Sequence[NDArray[np.bool_]],
    names: Sequence[str],
    kind: str,
) -> tuple[Series, Series]:
    """What is subtracted from each input, and what it is divided by: float64 [F] each.

    Args:
        rows: float32 [n, F] of each symbol.
        inside: bool [n] of each symbol, True in the training span.
        names: of the F inputs; flags of missing values pass through as 0 and 1.
        kind: ``features.scale``: robust = median and interquartile range / 1.349, else mean and standard
            deviation. An input whose quartiles are equal is divided by its standard deviation.
    """
    center, scale = train_statistics(rows, inside)
    if kind == "robust":
        for number in range(len(center)):
            parts = [values[mask, number] for values, mask in zip(rows, inside, strict=True)]
            pooled = np.concatenate(parts).astype(np.float64)
            pooled = pooled[np.isfinite(pooled)]
            if len(pooled):
                low, center[number], high = np.quantile(pooled, [0.25, 0.5, 0.75])
                scale[number] = (high - low) / _NORMAL_IQR or scale[number]
    flags = [number for number, name in enumerate(names) if _is_flag(name, names)]
    center[flags], scale[flags] = 0.0, 1.0
    return center, scale


def train_statistics(
    rows: Sequence[NDArray[np.float32]], inside: Sequence[NDArray[np.bool_]]
) -> tuple[Series, Series]:
    """Mean and standard deviation (ddof 0) of each input over the finite training rows of all symbols.

    Float64, merged pairwise over blocks of rows in their order (Chan, Golub and LeVeque 1979), so that the
    result is exact for levels far from zero and bitwise reproducible.

    Args:
        rows: float32 [n, F] of each symbol.
        inside: bool [n] of each symbol, True in the training span.

    Returns:
        float64 [F] each; the deviation of a constant input is 1, so that scaling leaves it at 0.
    """
    width = rows[0].shape[1]
    count, mean, square = np.zeros(width), np.zeros(width), np.zeros(width)
    for part in _blocks(rows, inside):
        n = np.isfinite(part).sum(axis=0)
        average = np.nansum(part, axis=0) / np.maximum(n, 1)
        spread = np.nansum((part - average) ** 2, axis=0)
        total = np.maximum(count + n, 1)
        shift = average - mean
        square += spread + shift**2 * count * n / total
        mean = mean + shift * n / total
        count += n
    deviation = np.sqrt(square / np.maximum(count, 1))
    return mean, np.where(deviation > 0, deviation, 1.0)


def _blocks(rows: Sequence[NDArray[np.float32]], inside: Sequence[NDArray[np.bool_]]) -> Iterator[Series]:
    """The training rows, float64 [k, F] at a time."""
    for values, mask in zip(rows, inside, strict=True):
        step = max(_BLOCK_VALUES // max(values.shape[1], 1), 1)
        for start in range(0, len(values), step):
            yield values[start : start + step][mask[start : start + step]].astype(np.float64)


def _is_flag(name: str, names: Sequence[str]) -> bool:
    return name.endswith(MISSING) and name.removesuffix(MISSING) in names

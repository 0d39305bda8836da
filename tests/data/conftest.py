"""Bars that more than one test of the data needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from foxhunt_ray.data.schema import Bars


@pytest.fixture(scope="session")
def make_bars() -> Callable[..., Bars]:
    """Gives ``make(n=300, seed=0)``: n hourly bars of a random walk, with quotes, a volume and a signal."""

    def make(n: int = 300, seed: int = 0) -> Bars:
        random = np.random.default_rng(seed)
        close = 100 * np.exp(np.cumsum(random.standard_normal(n) * 1e-2))
        columns = {
            "open": close * 0.999,
            "high": close * 1.01,
            "low": close * 0.98,
            "close": close,
            "volume": random.lognormal(5, 1, n),
            "bid_close": close * 0.9995,
            "ask_close": close * (1.0005 + 1e-4 * random.random(n)),
            "signal": random.standard_normal(n),
        }
        return Bars("AAA", 1_577_836_800 * 10**9 + np.arange(n) * 3600 * 10**9, columns)

    return make

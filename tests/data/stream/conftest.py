"""A small market with gaps and missing values, and what streams of it are judged by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.stream import build, prepare
from foxhunt_ray.data.survey import survey_market

HOUR = 3600 * 10**9
LENGTHS = {"AAA": 700, "BBB": 40, "CCC": 391}


@pytest.fixture(scope="session")
def market():
    random, first, bars = np.random.default_rng(5), 0, []
    for number, (symbol, n) in enumerate(LENGTHS.items()):
        stamps = (np.cumsum(np.where(random.random(n) < 0.02, 9, 1)) + 17 * number) * HOUR
        columns = {"row": first + np.arange(n, dtype=float), "noise": random.standard_normal(n)}
        columns["noise"][n // 2] = np.nan
        bars.append(Bars(symbol, stamps, columns))
        first += n
    return Market(tuple(bars))


@pytest.fixture(scope="session")
def make_config():
    """A config for the market, with settings on top."""

    def make(*more: str):
        fixed = ["features.groups=[]", 'features.columns=["row","noise"]', "data.context_length=6"]
        fixed += [f'loader.pool="{400 * 28}B"']  # a few pools in a pass
        fixed += ["target.kind=column", "target.column=noise", "target.horizon=2"]
        return load_config(None, [*fixed, *more])

    return make


@pytest.fixture(scope="session")
def make_prepared(make_config, market):
    """The market in Ray, in many units and blocks, with settings on top."""

    def make(*more: str):
        found = survey_market(make_config("data.stride=1", *more), market)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build, "_UNIT_ROWS", 64)
            patch.setattr(build, "_BLOCK_BYTES", 100 * 12)
            return prepare(found.config, found)

    return make


@pytest.fixture(scope="module")
def prepared(small_ray, make_prepared):
    return make_prepared()


@pytest.fixture(scope="session")
def dump():
    """All that a loader gives, by field: features, targets, symbol, ts_event."""

    def drain(loader) -> tuple[torch.Tensor, ...]:
        with loader:
            batches = list(loader)
        names = ("features", "targets", "symbol", "ts_event")
        return tuple(torch.cat([getattr(b, f) for b in batches]) for f in names)

    return drain

"""The lines that say what a run reads and forecasts."""

from __future__ import annotations

import pytest

from foxhunt_ray.cli.inspect import contract
from foxhunt_ray.config import load_config
from foxhunt_ray.data.survey import survey_market
from foxhunt_ray.data.synthetic import synthetic_market


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"horizon": [6, 24]}, "target: realised_vol, 6, 24 bars ahead; windows: train "),
        ({"kind": "price", "horizon": 3}, "target: price, 3 bars ahead; windows: train "),
        ({"kind": "column", "column": "flow", "horizon": 1}, "target: column of flow, 1 bars ahead; "),
    ],
    ids=["horizons", "price", "column"],
)
def test_the_contract_names_the_target_and_every_horizon(target, words):
    config = load_config(None, {f"target.{name}": value for name, value in target.items()})
    found = survey_market(config, synthetic_market(1, n_symbols=1, n_bars=900))
    assert contract(found, found.summary())[-1].startswith(words)

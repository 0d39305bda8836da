"""The trainer facade is the main path with epochs for steps."""

from __future__ import annotations

import pytest

from foxhunt_ray import Mamba2Trainer
from foxhunt_ray.config import load_config
from foxhunt_ray.data import survey
from foxhunt_ray.errors import ConfigError
from foxhunt_ray.train.loop import resume_state

pytestmark = pytest.mark.cluster
PARAMS = {
    "data.context_length": 16,
    "features.groups": [],
    "features.columns": ["flow", "gate", "tilt"],
    "target.kind": "log_return",
    "target.horizon": 1,
    "model.d_model": 16,
    "model.n_layer": 1,
    "train.batch_size": 500,
    "train.eval_windows": 64,
}


def test_epochs_are_passes_and_loading_ahead_changes_no_result(small_ray, market, tmp_path):
    trained = [
        Mamba2Trainer(str(market), epochs=2, folder=tmp_path / str(enabled))
        .with_async_loading(enabled, prefetch_count=2)
        .train_with_params(PARAMS)
        for enabled in (True, False)
    ]
    (ahead, checkpoint), (on_demand, _) = trained
    for key in ("train/loss", "val/loss", "val_full/skill"):
        assert ahead[key] == on_demand[key]
    assert checkpoint == tmp_path / "True" / "best" / "model.safetensors" and checkpoint.is_file()
    windows = survey(load_config(None, PARAMS | {"data.path": str(market)})).window_counts["train"]
    assert resume_state(tmp_path / "True").step == 2 * -(-windows // 500)


def test_it_can_be_configured_without_being_changed():
    trainer = Mamba2Trainer("bars", epochs=1)
    assert trainer.with_async_loading(False) != trainer == Mamba2Trainer("bars", epochs=1)


@pytest.mark.parametrize(
    ("epochs", "params", "words"), [(0, {}, "epochs = 0"), (1, {"model.x": 1}, "model.x")]
)
def test_what_cannot_be_trained_is_refused(epochs, params, words):
    with pytest.raises(ConfigError, match=words):
        Mamba2Trainer("", epochs=epochs).train_with_params(params)

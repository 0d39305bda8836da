"""The main path on a real Ray: reports, scores, resume, determinism, and that it learns what is planted."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from foxhunt_ray import trial
from foxhunt_ray.config import load_config, with_values
from foxhunt_ray.data import prepare, survey
from foxhunt_ray.errors import CheckpointError, ClusterError
from foxhunt_ray.predict import forecast_table

pytestmark = pytest.mark.cluster
TIMED = (
    *("data/wait_s", "data/wait_frac", "data/prefetch_depth", "train/windows_per_s"),
    *("device/memory_peak_bytes", "device/busy_frac"),
)


def config(market: Path, **more: object):
    fixed = {"data.path": str(market), "data.context_length": 16, "features.groups": []}
    fixed |= {"features.columns": ["flow", "gate", "tilt"], "target.kind": "log_return", "target.horizon": 1}
    fixed |= {"model.d_model": 16, "model.n_layer": 1, "model.d_state": 8, "model.dropout": 0.1}
    fixed |= {
        "train.max_steps": 12,
        "train.report_every": 3,
        "train.batch_size": 32,
        "train.eval_windows": 64,
    }
    return load_config(None, fixed | {"search.space": {}} | more)


@pytest.fixture(scope="module")
def base(market):
    return config(market)


@pytest.fixture(scope="module")
def found(base):
    return survey(base)


@pytest.fixture(scope="module")
def prepared(small_ray, base, found):
    return prepare(base, found)


def steady(progress):
    """A report without what depends on the clock and on how far ahead batches are loaded."""
    return progress.step, progress.reason, {k: v for k, v in progress.metrics.items() if k not in TIMED}


def test_a_trial_reports_on_the_way_and_is_scored_in_full_at_its_end(base, prepared, tmp_path):
    reports = list(trial.run(base, prepared, folder=tmp_path))
    assert [p.step for p in reports] == [3, 6, 9, 12]
    assert reports[-1].reason == "length" and not any(p.finished for p in reports[:-1])
    assert [any(k.startswith("val_full/") for k in p.metrics) for p in reports] == [False] * 3 + [True]
    assert (tmp_path / "best" / "model.safetensors").is_file()


def test_the_full_score_is_that_of_the_best_weights(base, prepared, tmp_path):
    last = list(trial.run(base, prepared, folder=tmp_path))[-1]
    scored = trial.score(base, prepared, tmp_path / "best" / "model.safetensors", splits=("val",))
    scores, forecasts = scored["val"]
    assert scores
    for key, value in scores.items():
        assert last.metrics[f"val_full/{key}"] == pytest.approx(value)
    assert len(forecasts.prediction) == len(prepared.windows("val"))


def test_one_seed_gives_equal_losses_with_and_without_look_ahead(base, prepared):
    settings = ({}, {}, {"loader.prefetch_batches": "auto"}, {"loader.mode": "sync"})
    found = [list(trial.run(with_values(base, s), prepared)) for s in settings]
    runs = [[steady(p) for p in reports] for reports in found]
    assert all(run == runs[0] for run in runs)
    assert {p.tier for reports in found for p in reports} == {"host"}
    depths = [{p.metrics["data/prefetch_depth"] for p in reports} for reports in found]
    assert depths[0] == {3} and min(depths[2]) >= 1 and depths[3] == {0}
    other = [steady(p) for p in trial.run(with_values(base, {"seed": 1}), prepared)]
    assert other != runs[0]


def test_a_resumed_trial_repeats_the_uninterrupted_one_bitwise(base, prepared, tmp_path):
    whole = [steady(p) for p in trial.run(base, prepared, folder=tmp_path / "whole")]
    first = trial.run(base, prepared, folder=tmp_path / "cut")
    before = [steady(next(first)) for _ in range(2)]
    first.close()
    after = [steady(p) for p in trial.run(base, prepared, folder=tmp_path / "cut", resume=True)]
    assert before + after == whole


def test_weights_on_the_host_give_the_same_reports(base, prepared, tmp_path):
    deep = with_values(base, {"model.n_layer": 3})
    ours = with_values(deep, {"model.offload": "layers"})
    whole, reports = ([steady(p) for p in trial.run(c, prepared, folder=tmp_path)] for c in (deep, ours))
    assert reports == whole
    weights = tmp_path / "best" / "model.safetensors"
    scores = [trial.score(c, prepared, weights, splits=("val",))["val"][0] for c in (deep, ours)]
    assert scores[0] == scores[1]


def test_a_resume_across_an_epoch_goes_on_at_the_right_batch(base, prepared, tmp_path):
    # 2,000 training windows in batches of 900: three steps an epoch, so the cut at step 5 lies in the second
    wide = with_values(base, {"train.batch_size": 900, "train.max_steps": 7, "train.report_every": 5})
    whole = [steady(p) for p in trial.run(wide, prepared, folder=tmp_path / "whole")]
    first = trial.run(wide, prepared, folder=tmp_path / "cut")
    next(first)
    first.close()
    after = [steady(p) for p in trial.run(wide, prepared, folder=tmp_path / "cut", resume=True)]
    assert after == whole[1:]


def test_closing_early_leaves_no_thread(base, prepared):
    before = set(threading.enumerate())
    for _ in range(3):
        running = trial.run(base, prepared)
        next(running)
        running.close()
    left = {t.name for t in set(threading.enumerate()) - before if t.is_alive()}
    assert not {name for name in left if "ThreadPool" not in name}


def test_weights_of_another_model_are_refused(base, prepared, tmp_path):
    list(trial.run(base, prepared, folder=tmp_path))
    other = with_values(base, {"model.d_model": 32})
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        trial.score(other, prepared, tmp_path / "best" / "model.safetensors", splits=("val",))


def test_baselines_are_scored_on_the_windows_of_the_trials(base, prepared, found):
    scores = trial.baselines(prepared, found)
    assert set(scores) == {"zero", "mean", "last", "ridge"}
    ends = found.ends("test")
    truth = np.concatenate([t[e, 0] for t, e in zip(found.targets, ends, strict=True)]).astype(np.float32)
    last = found.last("test")[:, 0]
    assert scores["zero"]["test/mse"] == pytest.approx(np.mean(truth.astype(float) ** 2), rel=1e-6)
    known = np.where(np.isnan(last), 0, last)
    assert scores["last"]["test/mse"] == pytest.approx(np.mean((truth - known) ** 2), rel=1e-6)
    assert scores["zero"]["val/skill"] == scores["zero"]["val_full/skill"] == 0
    shown = prepared.subset(prepared.windows("val"), prepared.config.train.eval_windows)
    values = np.concatenate([t[e, 0] for t, e in zip(found.targets, found.ends("val"), strict=True)])[shown]
    assert scores["zero"]["val/mse"] == pytest.approx(np.mean(values.astype(np.float32).astype(float) ** 2))


KINDS = ["log_return", "realised_vol", "vol_scaled_return", "range", "direction", "price", "column"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_target_is_trained_for_two_horizons_and_scored_in_its_units(small_ray, market, tmp_path, kind):
    two = config(market, **{"target.kind": kind, "target.column": "flow", "target.horizon": [1, 4]})
    found = survey(two)
    prepared = prepare(two, found)
    *_, last = trial.run(two, prepared, folder=tmp_path)
    scores = trial.baselines(prepared, found)
    weights = tmp_path / "best" / "model.safetensors"
    scored, forecasts = trial.score(two, prepared, weights, splits=("val",))["val"]
    error = forecasts.prediction - forecasts.target
    assert error.shape == (len(prepared.windows("val")), 2)
    for number, horizon in enumerate((1, 4)):
        mae = scored[f"mae_h{horizon}"]
        assert (
            mae == pytest.approx(np.abs(error[:, number]).mean()) == last.metrics[f"val_full/mae_h{horizon}"]
        )
    assert scored["skill"] == pytest.approx((scored["skill_h1"] + scored["skill_h4"]) / 2)
    signed = kind in ("log_return", "vol_scaled_return", "direction", "price")
    assert ("hit" in scored) == ("test/hit" in scores["ridge"]) == signed
    table = forecast_table(prepared, {"val": forecasts}).to_pandas()
    assert len(table) == 2 * len(error) and table["horizon"].tolist()[:4] == [1, 4, 1, 4]
    if kind == "direction":
        assert (np.abs(forecasts.prediction) < 1).all() and set(np.unique(forecasts.target)) <= {-1, 0, 1}
    if kind == "price":
        bars = found.market.bars[0]
        row = table[table["symbol"] == bars.symbol].iloc[0]
        at = int(np.searchsorted(bars.ts_event, row["ts_event"].value))
        assert row["target"] == pytest.approx(bars.columns["close"][at + row["horizon"]], rel=1e-7)
        assert row["prediction"] == bars.columns["close"][at] + forecasts.prediction[0, 0]


def test_the_device_is_what_ray_gave_and_torch_sees():
    import torch

    assert trial.pick_device(0) == "cpu"
    if torch.cuda.is_available():
        assert trial.pick_device(1) == "cuda"
    else:
        with pytest.raises(ClusterError, match=r"given 1 GPU, but torch .* sees none"):
            trial.pick_device(1)


@pytest.mark.slow
def test_it_finds_what_no_linear_forecast_can(small_ray):
    quick = load_config("quickstart", {"train.max_steps": 240, "train.report_every": 60, "search.space": {}})
    found = survey(quick)
    prepared = prepare(quick, found)
    ridge = trial.baselines(prepared, found)["ridge"]["val/skill"]
    *_, last = trial.run(quick, prepared)
    assert last.metrics["val_full/skill"] > ridge + 0.1


@pytest.mark.gpu
@pytest.mark.parametrize("offload", ["none", "layers"])
def test_a_trial_on_a_gpu_agrees_with_the_cpu(base, prepared, offload):
    base = with_values(base, {"model.offload": offload})
    cpu = list(trial.run(base, prepared))[-1].metrics["val/loss"]
    gpu = list(trial.run(base, prepared, device="cuda"))[-1].metrics["val/loss"]
    assert gpu == pytest.approx(cpu, rel=0.05)

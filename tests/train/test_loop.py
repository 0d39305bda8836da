"""fit() is reproducible, resumes bitwise, stops when it should, and explains why it cannot go on."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import threading
from functools import partial

import pytest
import torch
from torch import nn

from foxhunt_ray.batch import Batch
from foxhunt_ray.config import Config, load_config, with_values
from foxhunt_ray.errors import CheckpointError, DataError, DivergedError
from foxhunt_ray.train.checkpoint import load_weights
from foxhunt_ray.train.loop import Progress, fit, resume_state
from foxhunt_ray.train.metrics import evaluate
from foxhunt_ray.train.optimizer import build_optimizer, clip_gradients, learning_rate

CLOCKED = (
    *("train/windows_per_s", "data/wait_s", "data/wait_frac"),
    *("device/memory_peak_bytes", "device/busy_frac"),
)


@pytest.fixture
def config() -> Config:
    values = {"train.max_steps": 30, "train.report_every": 5, "train.patience": 0, "optimizer.lr": 0.02}
    return load_config(overrides=values)


@pytest.fixture
def score(make_batch, scale):
    """Validation on three fixed batches."""
    val = [make_batch(seed) for seed in range(3)]
    return lambda model: evaluate(model, val, scale)


@pytest.fixture
def train(config, score, scale):
    """fit() with what every test here shares."""
    return partial(fit, config=config, scale=scale, evaluate=score)


def timeless(progress: Progress) -> dict[str, object]:
    """All of a report that must repeat; what a clock measured need not."""
    metrics = {k: v for k, v in progress.metrics.items() if k not in CLOCKED}
    return dataclasses.asdict(progress) | {"metrics": metrics}


def scripted(losses):
    """Validation losses by report, whatever the model."""
    values = iter(losses)
    return lambda model: {"loss": next(values), "skill": 0.0, "ic": math.nan}


def test_training_learns_the_planted_signal(train, new_model, endless) -> None:
    reports = list(train(new_model(dropout=0.0), endless()))
    assert reports[-1].metrics["val/skill"] > 0.5 > reports[0].metrics["val/skill"]
    assert reports[-1].metrics["train/loss"] < 0.5 * reports[0].metrics["train/loss"]


def test_reports_come_every_n_steps_and_at_the_end(train, config, new_model, endless) -> None:
    config = with_values(config, {"train.max_steps": 12})
    reports = list(train(new_model(), endless(), config=config))
    assert [(r.step, r.report) for r in reports] == [(5, 1), (10, 2), (12, 3)]
    assert [(r.finished, r.reason) for r in reports] == [(False, ""), (False, ""), (True, "length")]


def test_a_report_carries_the_agreed_keys(train, new_model, endless) -> None:
    metrics = next(train(new_model(), endless())).metrics
    assert {"train/loss", "val/loss", "val/skill", "val/ic", "optimizer/lr", "optimizer/grad_norm"} <= {
        *metrics
    }
    assert {*CLOCKED} <= {*metrics}
    assert 0 <= metrics["data/wait_frac"] <= 1
    assert all(isinstance(value, float) for value in metrics.values())


def test_one_batch_is_pulled_a_step(train, new_model, endless) -> None:
    stream = endless()
    next(train(new_model(), stream))
    assert next(stream).ts_event[0] == 1000 + 5


def test_a_step_is_a_clipped_adamw_step_on_the_mean_square_in_scaled_units(
    train, config, scale, new_model, endless
) -> None:
    config = with_values(config, {"train.max_steps": 3, "train.report_every": 1, "optimizer.grad_clip": 0.1})
    model, plain = new_model(dropout=0.0), new_model(dropout=0.0)
    reports = list(train(model, endless(), config=config))
    optimizer = build_optimizer(plain, config.optimizer)
    for step, batch in enumerate(itertools.islice(endless(), 3)):
        target = (batch.targets - torch.tensor(scale.center)) / torch.tensor(scale.scale)
        loss = (plain(batch.features) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = clip_gradients(plain, 0.1)
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = learning_rate(
            step, optimizer=config.optimizer, max_steps=3
        )
        optimizer.step()
        assert reports[step].metrics["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert reports[step].metrics["optimizer/grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-6)


def test_the_same_seed_gives_bitwise_the_same_reports(train, new_model, endless) -> None:
    first, second = ([timeless(r) for r in train(new_model(), endless())] for _ in range(2))
    assert first == second
    assert first != [timeless(r) for r in train(new_model(seed=1), endless())]


@pytest.mark.parametrize("reports_before", [1, 3, 5])
def test_a_resumed_trial_repeats_the_uninterrupted_one_bitwise(
    train, new_model, endless, tmp_path, reports_before: int
) -> None:
    model = new_model()
    whole = [timeless(r) for r in train(model, endless())]
    interrupted = train(new_model(), endless(), folder=tmp_path)
    first = [timeless(r) for r in itertools.islice(interrupted, reports_before)]
    interrupted.close()
    resumed = new_model(seed=77)  # neither its weights nor the generator's place may matter
    start = resume_state(tmp_path).step
    rest = [timeless(r) for r in train(resumed, endless(start), folder=tmp_path, resume=True)]
    assert start == 5 * reports_before
    assert first + rest == whole
    torch.testing.assert_close(resumed.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_patience_and_the_best_report_survive_a_resume(train, config, new_model, endless, tmp_path) -> None:
    config = with_values(config, {"train.patience": 3})
    losses = [3.0, 1.0, 2.0, 2.0, 2.0]
    run = train(new_model(), endless(), config=config, evaluate=scripted(losses), folder=tmp_path)
    assert [r.is_best for r in itertools.islice(run, 3)] == [True, True, False]
    run.close()
    again = train(
        new_model(), endless(15), config=config, evaluate=scripted(losses[3:]), folder=tmp_path, resume=True
    )
    assert [(r.report, r.is_best, r.reason) for r in again] == [(4, False, ""), (5, False, "patience")]
    assert json.loads((tmp_path / "best" / "model.json").read_text())["step"] == 10


def test_seconds_waited_are_counted_across_a_resume(train, new_model, endless, tmp_path) -> None:
    before = next(train(new_model(), endless(), folder=tmp_path)).metrics["data/wait_s"]
    after = next(train(new_model(), endless(5), folder=tmp_path, resume=True)).metrics["data/wait_s"]
    assert after > before > 0


def test_resuming_a_finished_trial_yields_its_last_report_and_pulls_nothing(
    train, new_model, endless, tmp_path
) -> None:
    *_, last = train(new_model(), endless(), folder=tmp_path)
    again = list(train(new_model(seed=1), iter(()), folder=tmp_path, resume=True))
    assert again == [last]
    assert last.finished


def test_resuming_without_a_state_starts_at_the_beginning(train, new_model, endless, tmp_path) -> None:
    assert resume_state(tmp_path).step == 0
    fresh = next(train(new_model(), endless(), folder=tmp_path, resume=True))
    assert timeless(fresh) == timeless(next(train(new_model(), endless())))


def test_a_new_trial_in_an_old_folder_forgets_its_state(train, new_model, endless, tmp_path) -> None:
    next(train(new_model(), endless(), folder=tmp_path))
    with pytest.raises(DataError):
        next(train(new_model(), [], folder=tmp_path))
    assert resume_state(tmp_path).step == 0


@pytest.mark.parametrize(
    ("path", "value"), [("optimizer.lr", 0.01), ("train.max_steps", 40), ("data.stride", 2), ("seed", 1)]
)
def test_a_resume_under_another_config_is_refused(
    train, config, new_model, endless, tmp_path, path: str, value: float
) -> None:
    next(train(new_model(), endless(), folder=tmp_path))
    changed = with_values(config, {path: value})
    with pytest.raises(CheckpointError, match=f"{path} was .* and is now {value}"):
        next(train(new_model(), endless(5), config=changed, folder=tmp_path, resume=True))


@pytest.mark.parametrize(
    ("path", "value"), [("data.path", "moved/"), ("loader.mode", "sync"), ("search.trials", 99)]
)
def test_a_resume_may_move_files_and_change_how_batches_travel(
    train, config, new_model, endless, tmp_path, path: str, value: object
) -> None:
    next(train(new_model(), endless(), folder=tmp_path))
    changed = with_values(config, {path: value})
    assert next(train(new_model(), endless(5), config=changed, folder=tmp_path, resume=True)).step == 10


def test_training_stops_after_patience_reports_without_a_better_loss(
    train, config, new_model, endless
) -> None:
    config = with_values(config, {"train.patience": 2})
    losses = [5.0, 4.0, 4.0, 3.0, 3.5, 3.0, 9.0]
    reports = list(train(new_model(), endless(), config=config, evaluate=scripted(losses)))
    assert [r.is_best for r in reports] == [True, True, False, True, False, False]
    assert [r.reason for r in reports] == ["", "", "", "", "", "length"]
    reports = list(train(new_model(), endless(), config=config, evaluate=scripted([1.0] * 7)))
    assert [r.reason for r in reports] == ["", "", "patience"]


def test_no_patience_means_that_every_step_is_taken(train, new_model, endless) -> None:
    reports = list(train(new_model(), endless(), evaluate=scripted([1.0] * 6)))
    assert reports[-1].step == 30


def test_the_best_weights_are_those_of_the_best_report(train, new_model, endless, tmp_path) -> None:
    model, states = new_model(), []
    losses = [3.0, 1.0, 2.0, 2.0, 1.0, 2.0]
    for _ in train(model, endless(), evaluate=scripted(losses), folder=tmp_path):
        states.append({n: t.clone() for n, t in model.state_dict().items()})
    best = new_model(seed=8)
    load_weights(tmp_path / "best" / "model.safetensors", best)
    torch.testing.assert_close(best.state_dict(), states[1], rtol=0, atol=0)
    notes = json.loads((tmp_path / "best" / "model.json").read_text())
    assert (notes["step"], notes["report"], notes["val/loss"], notes["val/ic"]) == (10, 2, 1.0, None)


def spoiled(batches, at: int):
    """The same batches, with targets of infinity in batch ``at``."""
    for index, batch in enumerate(batches):
        targets = torch.full_like(batch.targets, torch.inf) if index == at else batch.targets
        yield Batch(batch.features, targets, batch.symbol, batch.ts_event)


def test_a_loss_that_is_not_finite_ends_the_trial_at_once(train, new_model, endless, tmp_path) -> None:
    run = train(new_model(), spoiled(endless(), at=6), folder=tmp_path)
    next(run)
    with pytest.raises(
        DivergedError, match=r"step 7: loss is inf at learning rate 0\.0.*; .* lower optimizer\.lr"
    ):
        next(run)
    assert resume_state(tmp_path).step == 5


def test_a_gradient_that_is_not_finite_ends_the_trial_before_it_moves_the_weights(train, endless) -> None:
    class Steep(nn.Linear):
        def forward(self, features):
            return super().forward(features.flatten(1)).clamp(min=0).sqrt()  # its slope at 0 is infinite

    model = Steep(18, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    with pytest.raises(DivergedError, match=r"step 1: gradient norm is (nan|inf)"):
        next(train(model, endless()))
    assert not model.weight.any()


def test_a_validation_loss_that_is_not_finite_ends_the_trial(train, new_model, endless) -> None:
    with pytest.raises(DivergedError, match="step 5: validation loss is nan"):
        next(train(new_model(), endless(), evaluate=scripted([math.nan])))


@pytest.mark.parametrize("count", [0, 7])
def test_batches_that_end_are_refused(train, new_model, endless, count: int) -> None:
    finite = itertools.islice(endless(), count)
    with pytest.raises(DataError, match=f"ended after {count} steps; expected train.max_steps = 30"):
        list(train(new_model(), finite))


def test_an_error_of_the_stream_arrives_as_it_is(train, new_model) -> None:
    def broken():
        raise OSError("store lost")
        yield

    with pytest.raises(OSError, match="store lost"):
        next(train(new_model(), broken()))


def test_steps_train_and_reports_evaluate(train, new_model, endless) -> None:
    model, modes = new_model(), []
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    run = train(model, endless())
    next(run)
    model.eval()  # a caller who predicts between reports must not switch dropout off
    next(run)
    assert modes == ([True] * 5 + [False] * 3) * 2


def test_closing_early_leaves_nothing_running_and_the_state_on_disk(
    train, new_model, endless, tmp_path
) -> None:
    threads, closed = threading.active_count(), []

    def stream():
        try:
            yield from endless()
        finally:
            closed.append(True)

    run = train(new_model(), stream(), folder=tmp_path)
    next(run)
    run.close()
    assert closed == [True]
    assert threading.active_count() == threads
    assert sorted(p.name for p in tmp_path.rglob("*.*")) == [
        "checkpoint.safetensors", "model.json", "model.safetensors",
    ]  # fmt: skip


def test_without_a_folder_nothing_is_written(train, new_model, endless, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    list(train(new_model(), endless()))
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_resume_on_a_gpu_is_bitwise_too(config, scale, make_batch, new_model, endless, tmp_path) -> None:
    val = [make_batch(0).to("cuda")]
    train = partial(
        fit,
        config=config,
        scale=scale,
        evaluate=lambda m: evaluate(m, val, scale),
        device="cuda",
        folder=tmp_path,
    )
    whole = [timeless(r) for r in train(new_model().cuda(), endless(device="cuda"))]
    run = train(new_model().cuda(), endless(device="cuda"))
    first = [timeless(r) for r in itertools.islice(run, 2)]
    run.close()
    rest = train(new_model(seed=5).cuda(), endless(10, device="cuda"), resume=True)
    assert first + [timeless(r) for r in rest] == whole
    assert all(r["metrics"]["val/loss"] > 0 for r in whole)

"""A checkpoint is whole or refused, and a kill at any moment leaves the old one or the new one."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import nn

from foxhunt_ray.config.schema import OptimizerConfig
from foxhunt_ray.errors import CheckpointError
from foxhunt_ray.train.checkpoint import (
    TrainState,
    load_checkpoint,
    load_weights,
    read_state,
    save_checkpoint,
    save_weights,
)
from foxhunt_ray.train.optimizer import build_optimizer

STATE = TrainState(
    step=3, report=1, best_value=0.5, best_step=3, metrics={"val/loss": 0.5, "val/ic": math.nan}
)
PRINT = {"optimizer.lr": 1e-3, "split.train": "2016-01-01", "seed": 0}


def trained(build, make_batch, steps: int = 3, **kwargs) -> tuple[nn.Module, torch.optim.AdamW]:
    model = build(**kwargs)
    optimizer = build_optimizer(model, OptimizerConfig())
    for step in range(steps):
        optimizer.zero_grad()
        model(make_batch(step).features).square().mean().backward()
        optimizer.step()
    return model, optimizer


@pytest.fixture
def saved(tmp_path, new_model, make_batch) -> Path:
    """File of a checkpoint of a model trained for three steps."""
    return save_checkpoint(tmp_path, *trained(new_model, make_batch), state=STATE, fingerprint=PRINT)


def restore(saved: Path, model: nn.Module, fingerprint=PRINT) -> TrainState | None:
    optimizer = build_optimizer(model, OptimizerConfig())
    return load_checkpoint(saved.parent, model, optimizer, fingerprint=fingerprint)


def rewrite(path: Path, change, notes: dict[str, str] | None = None) -> None:
    """The same file with its tensors changed by ``change`` and its notes by ``notes``."""
    tensors = safetensors.torch.load(path.read_bytes())
    with safe_open(path, "pt") as file:
        header = file.metadata()
    change(tensors)
    path.write_bytes(safetensors.torch.save(tensors, {**header, **(notes or {})}))


def test_everything_comes_back(saved, new_model, make_batch) -> None:
    generator = torch.get_rng_state()
    model, optimizer = trained(new_model, make_batch)
    other = new_model(seed=5)
    fresh = build_optimizer(other, OptimizerConfig())
    state = load_checkpoint(saved.parent, other, fresh, fingerprint=PRINT)
    assert state is not None
    assert math.isnan(state.metrics.pop("val/ic"))
    assert state == TrainState(step=3, report=1, best_value=0.5, best_step=3, metrics={"val/loss": 0.5})
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    before, after = optimizer.state_dict()["state"], fresh.state_dict()["state"]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_header_alone_tells_the_counters(saved) -> None:
    state = read_state(saved.parent)
    assert state is not None
    assert state.step == 3


def test_without_a_checkpoint_there_is_no_state(tmp_path, new_model) -> None:
    assert read_state(tmp_path / "nowhere") is None
    assert restore(tmp_path / "nowhere" / "checkpoint.safetensors", new_model()) is None


def test_a_parameter_that_was_never_trained_is_restored_as_such(tmp_path, new_model) -> None:
    model = new_model()
    path = save_checkpoint(
        tmp_path, model, build_optimizer(model, OptimizerConfig()), state=STATE, fingerprint={}
    )
    other = new_model(seed=1)
    fresh = build_optimizer(other, OptimizerConfig())
    assert load_checkpoint(path.parent, other, fresh, fingerprint={}) is not None
    assert not any(t.any() for moments in fresh.state.values() for t in moments.values())


def test_nothing_is_pickled_and_no_number_is_infinite(saved) -> None:
    with safe_open(saved, "pt") as file:
        notes = file.metadata()
    assert json.loads(notes["fingerprint"]) == PRINT
    assert json.loads(notes["state"], parse_constant=pytest.fail)["metrics"]["val/ic"] is None


def test_every_truncation_is_refused_with_the_file_named(saved, new_model) -> None:
    whole, model = saved.read_bytes(), new_model()
    for length in [*range(40), *range(40, len(whole), 1009), len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: .*(truncated|damaged)"):
            restore(saved, model)


@pytest.mark.parametrize(
    "damage",
    [
        b"\x80\x04\x95pickle, once upon a time",
        (50_000_000).to_bytes(8, "little") + b"{" * 60_000_000,
        (100).to_bytes(8, "little") + b"{not json" * 100,
        (40_000).to_bytes(8, "little") + b'{"a":' * 8_000,
    ],
    ids=["pickle", "huge header", "not json", "deep json"],
)
def test_what_is_no_checkpoint_is_refused(saved, new_model, damage: bytes) -> None:
    saved.write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: "):
        restore(saved, new_model())


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({"version": "0"}, "format version '0'; expected '1'"),
        ({"state": "{"}, "header is damaged"),
        ({"state": "[]"}, "counters are damaged"),
        ({"state": json.dumps({"step": "3"})}, "counters are damaged"),
        ({"fingerprint": "nonsense"}, "header is damaged"),
    ],
)
def test_damaged_notes_are_refused(saved, new_model, notes: dict[str, str], reason: str) -> None:
    rewrite(saved, lambda tensors: None, notes)
    with pytest.raises(CheckpointError, match=reason):
        restore(saved, new_model())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("model.1.bias"), r"model\.1\.bias is absent in the file and float32 \[8\]"),
        (lambda t: t.update(extra=torch.zeros(2)), r"extra is float32 \[2\] in the file and absent"),
        (
            lambda t: t.update({"model.1.bias": torch.zeros(9)}),
            r"float32 \[9\] in the file and float32 \[8\]",
        ),
        (lambda t: t.update({"model.1.bias": torch.zeros(8).double()}), r"float64 \[8\] in the file"),
        (lambda t: t.update({"optimizer.exp_avg.1.bias": torch.zeros(1)}), r"optimizer\.exp_avg\.1\.bias"),
        (lambda t: t.pop("rng.cpu"), r"rng\.cpu is absent"),
    ],
)
def test_tensors_that_do_not_belong_are_refused(saved, new_model, change, reason: str) -> None:
    rewrite(saved, change)
    with pytest.raises(CheckpointError, match=reason):
        restore(saved, new_model())


def test_a_refused_checkpoint_changes_nothing(saved, new_model) -> None:
    rewrite(saved, lambda tensors: tensors.pop("rng.cpu"))
    model = new_model(seed=9)
    before, generator = {n: t.clone() for n, t in model.state_dict().items()}, torch.get_rng_state()
    with pytest.raises(CheckpointError):
        restore(saved, model)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(
    ("fingerprint", "reason"),
    [
        (PRINT | {"optimizer.lr": 2e-3}, r"optimizer\.lr was 0\.001 and is now 0\.002"),
        (PRINT | {"new.key": 1}, r"new\.key was None and is now 1"),
        ({"seed": 0, "optimizer.lr": 1e-3}, r"split\.train was '2016-01-01' and is now None"),
    ],
)
def test_another_config_is_refused_by_the_path_that_differs(
    saved, new_model, fingerprint, reason: str
) -> None:
    with pytest.raises(CheckpointError, match=reason):
        restore(saved, new_model(), fingerprint)


# In a process of its own: a child that is forked here would share pytest's threads.
KILL = """
import os, sys
from pathlib import Path
import torch
from foxhunt_ray.train.checkpoint import TrainState, read_state, save_checkpoint
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
def save(step):
    save_checkpoint(Path(sys.argv[1]), model, optimizer, state=TrainState(step=step), fingerprint={})
for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
    save(1)
    child = os.fork()
    if child == 0:
        setattr(owner, name, lambda *args, **kwargs: os._exit(9))
        save(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    print(read_state(Path(sys.argv[1])).step)
"""


def test_a_kill_at_any_moment_leaves_the_old_or_the_new_one(tmp_path) -> None:
    command = [sys.executable, "-c", KILL, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [
        "1",
        "1",
        "2",
    ]  # killed before the write was safe, before the rename, after it


def test_the_leftover_of_a_killed_write_is_ignored_and_then_replaced(saved, new_model, make_batch) -> None:
    leftover = saved.with_name(saved.name + ".tmp")
    leftover.write_bytes(b"half a")
    assert restore(saved, new_model()) is not None
    save_checkpoint(saved.parent, *trained(new_model, make_batch), state=STATE, fingerprint=PRINT)
    assert os.listdir(saved.parent) == ["checkpoint.safetensors"]


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="/dev/full, a disk that is always full, is Linux only"
)
def test_full_storage_is_said_and_the_old_checkpoint_stays(saved, new_model, make_batch) -> None:
    saved.with_name(saved.name + ".tmp").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors: .*No space left on device"):
        save_checkpoint(saved.parent, *trained(new_model, make_batch), state=STATE, fingerprint=PRINT)
    assert restore(saved, new_model()) is not None
    assert os.listdir(saved.parent) == ["checkpoint.safetensors"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path, new_model) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"file/best/model\.safetensors: cannot be written \(Not a dir"):
        save_weights(tmp_path / "file" / "best" / "model.safetensors", new_model())


def test_weights_come_back_with_their_notes_beside_them(tmp_path, new_model) -> None:
    model, other = new_model(), new_model(seed=3)
    save_weights(tmp_path / "best" / "model.safetensors", model, notes={"step": 40, "val/ic": math.nan})
    load_weights(tmp_path / "best" / "model.safetensors", other)
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert json.loads((tmp_path / "best" / "model.json").read_text()) == {"step": 40, "val/ic": None}


def test_weights_of_another_model_are_refused(tmp_path, new_model) -> None:
    save_weights(tmp_path / "model.safetensors", nn.Sequential(nn.Flatten(), nn.Linear(18, 4)))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: 1\.bias is float32 \[4\] in the file"):
        load_weights(tmp_path / "model.safetensors", new_model())


def test_missing_weights_are_named(tmp_path, new_model) -> None:
    with pytest.raises(CheckpointError, match=r"best\.safetensors: cannot be read \(No such file"):
        load_weights(tmp_path / "best.safetensors", new_model())

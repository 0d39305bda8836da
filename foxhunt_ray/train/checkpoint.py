"""Weights, and all that a resumed trial needs, in safetensors files that are replaced in one piece.

A checkpoint is one file: tensors (weights, AdamW moments by parameter name, state of the random generators)
and, in its header, JSON (counters, and the config it belongs to). One file because a folder cannot be
replaced
atomically: killed at any moment, this leaves the old state or the new one. Nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from foxhunt_ray.durable import sync
from foxhunt_ray.errors import CheckpointError

_VERSION = "1"
_FILE = "checkpoint.safetensors"
_MAX_HEADER_BYTES = 16_000_000  # a header names tensors; one larger than this was not written here


@dataclass(frozen=True)
class TrainState:
    """Where a trial stands at a report.

    Attributes:
        step: optimiser steps taken.
        report: reports made.
        best_value: lowest val/loss so far; the largest float (JSON has no infinity) before the first report.
        best_step: step of that report.
        stale_reports: reports since then.
        wait_s: seconds spent waiting for batches so far.
        reason: why the trial ended ("length", "patience"); empty while it has not.
        metrics: of the last report.
        position: where the batches go on, as the loader's ``state_dict`` says; empty if it says nothing.
    """

    step: int = 0
    report: int = 0
    best_value: float = sys.float_info.max
    best_step: int = 0
    stale_reports: int = 0
    wait_s: float = 0.0
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    position: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    state: TrainState,
    fingerprint: Mapping[str, Any],
    device: str = "cpu",
) -> Path:
    """The file in ``folder`` that now holds everything a resume needs, in place of an older one.

    Args:
        folder: created where it does not exist.
        model: its state dict is saved.
        optimizer: AdamW over parameters of ``model``.
        state: counters of the trial.
        fingerprint: values, JSON each, that a resume must repeat, such as dotted config paths.
        device: where the trial runs; on CUDA its generator is saved too.

    Raises:
        CheckpointError: the folder cannot be written or the storage is full.
    """
    counters = dataclasses.asdict(state) | {"metrics": _finite_or_null(state.metrics)}
    notes = {
        "version": _VERSION,
        "state": json.dumps(counters, allow_nan=False),
        "fingerprint": json.dumps(dict(fingerprint), allow_nan=False),
    }
    path = folder / _FILE
    # Bytes first, then one write: safetensors' own save to a path neither syncs nor tells a full disk apart.
    _replace(path, _encode(_all_tensors(model, optimizer, device), notes))
    return path


def load_checkpoint(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    fingerprint: Mapping[str, Any],
    device: str = "cpu",
) -> TrainState | None:
    """The saved counters, once model, optimizer and torch's generators are as they were; None without a save.

    Everything is checked before anything is changed.

    Raises:
        CheckpointError: the file is damaged, of another version, or of another model or config.
    """
    path = folder / _FILE
    if not path.exists():
        return None
    notes = _read_notes(path)
    state = _parse_state(path, notes)
    saved = _parse_json(path, notes["fingerprint"])
    for key in sorted({*saved, *fingerprint}):
        if saved.get(key) != fingerprint.get(key):
            raise CheckpointError(
                f"{path}: {key} was {saved.get(key)!r} and is now {fingerprint.get(key)!r}; "
                "a resume needs the same value; restore it or start under a new name"
            )
    tensors = _read_tensors(path, expected=_all_tensors(model, optimizer, device))
    model.load_state_dict({name: tensors[f"model.{name}"] for name in model.state_dict()})
    for name, parameter in _optimised(model, optimizer).items():
        # Where the fused optimiser keeps them, its step count too: beside the parameter.
        optimizer.state[parameter] = {
            kind: tensors[f"optimizer.{kind}.{name}"].to(parameter.device)
            for kind in ("step", "exp_avg", "exp_avg_sq")
        }
    torch.set_rng_state(tensors["rng.cpu"])
    if "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"], device)
    return state


def read_state(folder: Path) -> TrainState | None:
    """The counters of the checkpoint in ``folder``, read from its header alone; None if there is none.

    Raises:
        CheckpointError: the header is damaged or of another version.
    """
    path = folder / _FILE
    return _parse_state(path, _read_notes(path)) if path.exists() else None


def save_weights(path: Path, model: nn.Module, *, notes: Mapping[str, float] | None = None) -> None:
    """Writes the state dict of ``model`` to ``path``, and ``notes`` beside it as .json (NaN as null).

    Raises:
        CheckpointError: the folder cannot be written or the storage is full.
    """
    _replace(path, _encode(model.state_dict(), {"version": _VERSION}))
    if notes is not None:
        text = json.dumps(_finite_or_null(notes), indent=2, allow_nan=False)
        _replace(path.with_suffix(".json"), text.encode() + b"\n")


def load_weights(path: Path, model: nn.Module) -> None:
    """Sets the weights of ``model`` from ``path``; names, shapes and types must all be its own.

    Raises:
        CheckpointError: the file is missing, damaged, or of another model.
    """
    _read_notes(path)
    model.load_state_dict(_read_tensors(path, expected=model.state_dict()))


def _optimised(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
    """Parameters that ``optimizer`` moves, by their name in ``model``."""
    moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name: p for name, p in model.named_parameters() if id(p) in moved}


def _all_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> dict[str, Tensor]:
    """What a checkpoint holds, by name; before a save the content, before a load the expected shapes."""
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    for name, parameter in _optimised(model, optimizer).items():
        # AdamW starts a parameter's state at its first gradient, from zeros: absent and zero are the same.
        moments = optimizer.state.get(parameter, {})
        tensors[f"optimizer.step.{name}"] = moments.get("step", torch.zeros(()))
        for kind in ("exp_avg", "exp_avg_sq"):
            tensors[f"optimizer.{kind}.{name}"] = moments.get(kind, torch.zeros_like(parameter))
    tensors["rng.cpu"] = torch.get_rng_state()
    if torch.device(device).type == "cuda":
        tensors["rng.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def _encode(tensors: Mapping[str, Tensor], notes: dict[str, str]) -> bytes:
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(ready, notes)


def _replace(path: Path, data: bytes) -> None:
    """Puts ``data`` at ``path`` in one step; a leftover of a killed write is overwritten, never read."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)  # the rename itself must survive a power cut
    except OSError as err:
        raise CheckpointError(
            f"{path}: cannot be written ({err.strerror}); expected room for {len(data):,} bytes in a "
            "folder that can be written; free space or choose another --out"
        ) from err


def _read_notes(path: Path) -> dict[str, str]:
    """The text fields of a file's header, its size and version checked before anything large is read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER_BYTES, path.stat().st_size - 8):
                raise CheckpointError(f"{path}: truncated or not safetensors; delete it and train again")
            header = _parse_json(path, file.read(length))
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read ({err.strerror}); give a run that has it") from err
    notes = header.get("__metadata__")
    version = notes.get("version") if isinstance(notes, dict) else None
    if not isinstance(notes, dict) or version != _VERSION:
        raise CheckpointError(
            f"{path}: format version {version!r}; expected {_VERSION!r}; use the release that wrote it"
        )
    return notes


def _read_tensors(path: Path, *, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as err:
        raise CheckpointError(f"{path}: truncated or damaged ({err}); delete it and train again") from err
    for name in sorted({*tensors, *expected}):
        found, wanted = _describe(tensors.get(name)), _describe(expected.get(name))
        if found != wanted:
            raise CheckpointError(
                f"{path}: {name} is {found} in the file and {wanted} in the model; "
                "expected the same; use the config that it was trained with"
            )
    return tensors


def _describe(tensor: Tensor | None) -> str:
    if tensor is None:
        return "absent"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _parse_json(path: Path, text: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise CheckpointError(f"{path}: its header is damaged ({err}); delete it and train again") from err
    return value if isinstance(value, dict) else {}


def _parse_state(path: Path, notes: dict[str, str]) -> TrainState:
    fields = _parse_json(path, notes.get("state", "{}"))
    # An exact match of names and types: a file of the same version holds neither more nor less.
    kinds = {name: type(value) for name, value in dataclasses.asdict(TrainState()).items()}
    if {name: type(value) for name, value in fields.items()} != kinds or "fingerprint" not in notes:
        raise CheckpointError(f"{path}: its counters are damaged; delete it and train again")
    fields["metrics"] = {k: math.nan if v is None else v for k, v in fields["metrics"].items()}
    return TrainState(**fields)


def _finite_or_null(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}

"""A small config, and the program run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Foxhunt = Callable[..., subprocess.CompletedProcess[str]]
TINY = """
[data]
context_length = 16
[features]
groups = []
columns = ["flow", "gate", "tilt"]
[target]
kind = "log_return"
horizon = 1
[model]
d_model = 16
n_layer = 1
d_state = 8
headdim = 16
[train]
batch_size = 32
max_steps = 24
report_every = 4
eval_windows = 128
[search]
trials = 3
[search.space]
"optimizer.lr" = { low = 1e-3, high = 1e-2, log = true }
"model.d_state" = { choices = [8, 16] }
"""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def foxhunt() -> Foxhunt:
    def run(*arguments: object, cwd: Path | None = None, **more: object) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        return subprocess.run(
            [sys.executable, "-m", "foxhunt_ray", *map(str, arguments)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            **more,
        )

    return run

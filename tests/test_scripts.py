"""The scripts: what they need to work from a bare clone (.ci/run and the README's reader run them whole)."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("scripts/quickstart", "scripts/test", ".ci/run")


@pytest.mark.parametrize("name", (*PROGRAMS, "scripts/setup"))
def test_it_is_bash_that_parses_and_is_short(name):
    path = ROOT / name
    subprocess.run(["bash", "-n", str(path)], check=True)
    assert len(path.read_text().splitlines()) < 20


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_can_be_executed(name):
    assert os.access(ROOT / name, os.X_OK)


def test_a_python_that_is_too_old_is_refused_with_the_remedy(tmp_path):
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "test")],
        env=os.environ | {"PYTHON": str(old)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "is not Python 3.11 or newer" in done.stderr and "PYTHON=" in done.stderr


def test_a_second_call_does_not_install_again(tmp_path):
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "setup").write_text((ROOT / "scripts" / "setup").read_text())
    (tmp_path / ".venv").mkdir()
    state = subprocess.run(
        "cat pyproject.toml constraints.txt | cksum", cwd=tmp_path, shell=True, capture_output=True
    )
    (tmp_path / ".venv" / "installed").write_bytes(state.stdout)
    done = subprocess.run(
        ["bash", "-euc", ". scripts/setup; echo ready"],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")


def test_the_tune_script_runs_where_the_package_is_not_installed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "scripts" / "tune.py"), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "--trials" in done.stdout


def test_every_requirement_is_pinned():
    pins = (ROOT / "constraints.txt").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {w.split("[")[0].split(">")[0].split("=")[0].strip().lower().replace("_", "-") for w in wanted}
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in pins.splitlines() if "==" in line}
    assert names <= pinned

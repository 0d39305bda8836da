"""The scripts: what they need to work from a bare clone (.ci/run and the README's reader run them whole)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("scripts/quickstart", "scripts/test", ".ci/run")
BENCH_BARS = (ROOT / "scripts" / "bench_bars.py").read_text().split("DEVICE_BARS")[0].count("    Bar(")
BENCH_ARMS = {
    "DataLoader per item, 0 workers",
    "DataLoader per item, 2 workers",
    "DataLoader __getitems__, 0 workers",
    "ours through Ray",
    "ours through Ray, 3 ahead",
    "ours through Ray, a stream an epoch",
    "ours direct",
    "ours direct, a stream an epoch",
    "memcpy",
    "naive Ray windows",
    "Ray materialised windows",
    "first batches through Ray",
    "first batches direct",
    "store",
    "steps alone",
    *(f"producer {p} of a step, {a}" for p in (0.28, 0.8) for a in ("on demand", "3 ahead", "auto ahead")),
    *(f"burst in the {stage} stage, {a} ahead" for stage in ("batch", "chunk") for a in (3, "auto")),
    "early breaks",
    "resuming",
    "order",
    "trials",
}


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


def _bench(tmp_path, *options):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "bench_data.py"), *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.cluster
def test_the_loaders_bench_prints_a_line_for_every_arm_and_a_table_of_every_bar(tmp_path):
    done = _bench(tmp_path, "--quick")
    assert done.returncode == 0, done.stderr
    text, _, table = done.stdout.partition("\n\n")
    lines = [json.loads(line) for line in text.splitlines()]
    assert {line["arm"] for line in lines} == BENCH_ARMS and len(lines) == len(BENCH_ARMS)
    for line in lines:
        assert {"commit", "versions", "hardware", "config", "windows"} <= line.keys()
        figures = [key.removesuffix("_spread") for key in line if key.endswith("_spread")]
        assert figures and all(isinstance(line[key], float) for key in figures)
    head, rule, *rows = table.splitlines()
    assert head == "| figure | bar | measured | spread | reached |" and rule == "|---|---|---|---|---|"
    assert len(rows) == BENCH_BARS and all(
        row.count("|") == 6 and row.endswith((" yes |", " no |")) for row in rows
    )
    assert "not available" not in table


@pytest.mark.slow
@pytest.mark.cluster
def test_the_sweep_of_the_loaders_bench_ends_with_a_table_of_its_sizes(tmp_path):
    done = _bench(tmp_path, "--sweep", "--quick")
    assert done.returncode == 0, done.stderr
    text, _, table = done.stdout.partition("\n\n")
    lines = [json.loads(line) for line in text.splitlines()]
    cases = list(dict.fromkeys(line["case"] for line in lines))
    assert len(lines) == 3 * len(cases) and cases[0] == "as given"
    assert [row.split("|")[1].strip() for row in table.splitlines()[2:]] == cases


@pytest.mark.slow
def test_the_loaders_bench_refuses_a_gpu_that_is_not_there(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = _bench(tmp_path, "--device", "cuda", "--quick")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "torch sees no CUDA device here; leave out --device cuda\n"

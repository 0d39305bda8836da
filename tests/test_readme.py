"""The README is true: every command in it is run, and what it names is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foxhunt_ray.config import load_config

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", TEXT, re.DOTALL | re.MULTILINE)
SHELL = [re.sub(r"^ +", "", code, flags=re.MULTILINE) for kind, code in BLOCKS if kind == "sh"]
# The scripts would run this test in turn; .ci/run calls them.
RUN = [code for code in SHELL if "scripts/quickstart" not in code]
LAUNCH = next(code for code in RUN if "ray start" in code)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, market) -> Path:
    """A copy of the checkout with a folder of bars in it."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    copy = tmp_path_factory.mktemp("readme") / "foxhunt_ray"
    for name in filter(lambda n: (ROOT / n).is_file(), listed):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    shutil.copytree(market, copy / "bars")
    return copy


def environment(home: Path) -> dict[str, str]:
    """The user's, with a home of its own (Ray keeps its token there) and this Python's programs first."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return kept | {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def sh(code: str, checkout: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=checkout,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=400,
    )


@pytest.fixture(scope="module")
def launched(checkout, tmp_path_factory):
    """What the launch block printed, with its cluster still up; afterwards it is ended by process id."""
    home = tmp_path_factory.mktemp("home")
    start, submit = LAUNCH.split("ray job submit")
    submit = f"export RAY_AUTH_MODE=token\nray job submit{submit}"
    try:
        done = sh(start, checkout, home)
        for _ in range(20 if done.returncode == 0 else 0):
            done = sh(submit, checkout, home)
            if "No available agent" not in done.stderr:
                break
            time.sleep(3)  # a person types slower than a head that has just started gets ready
        yield done, home
    finally:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                mine = f"HOME={home}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if mine:
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("code", [c for c in RUN if c != LAUNCH], ids=lambda c: c.split("\n")[0])
def test_commands_run_as_written(code, checkout, tmp_path):
    done = sh(code, checkout, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.cluster
def test_the_launch_lines_bring_a_job_to_its_end(launched):
    done, home = launched
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout.lower()
    found = json.loads((home / "foxhunt_runs" / "job" / "results.json").read_text())
    assert found["status"] == "finished" and len(found["trials"]) == 2


@pytest.mark.slow
@pytest.mark.cluster
def test_a_job_with_a_wrong_path_fails_with_our_sentence_in_its_log(launched, checkout):
    submit = (
        "export RAY_AUTH_MODE=token; ray job submit --working-dir . -- python scripts/tune.py --data /nowhere"
    )
    done = sh(submit, checkout, launched[1])
    assert done.returncode == 1
    assert "foxhunt: /nowhere" in done.stdout + done.stderr
    assert "failed" in (done.stdout + done.stderr).lower()


def test_the_config_example_is_a_search_space_that_loads(tmp_path):
    (toml,) = [code for kind, code in BLOCKS if kind == "toml"]
    (tmp_path / "space.toml").write_text(toml)
    assert "data.context_length" in load_config(tmp_path / "space.toml").search.space


def test_every_path_it_names_exists():
    named = re.findall(r"`((?:scripts|clusters|foxhunt_ray|tests)/[\w./]*)`", TEXT)
    assert named and all((ROOT / name).exists() for name in named), named
    tree = re.findall(r"^  (\w+(?:\.py|/)) ", TEXT, re.MULTILINE)
    assert len(tree) > 8 and all((ROOT / "foxhunt_ray" / name).exists() for name in tree), tree


def test_it_stays_readable():
    assert len(TEXT.splitlines()) <= 150

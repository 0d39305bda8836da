"""An independent conformance runner, where one lies beside the checkout, judges the scan and the mixer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runner() -> Path:
    """The runner's script: in FOXHUNT_ORACLES, else in shared/oracles beside the checkout; skips without."""
    folder = Path(os.environ.get("FOXHUNT_ORACLES", CHECKOUT.parent / "shared" / "oracles"))
    script = folder / "ssd_oracle.py"
    if not script.is_file():
        pytest.skip(f"no conformance runner: {script} does not exist; set FOXHUNT_ORACLES")
    return script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "target", "cases"),
    [
        ("scan", "foxhunt_ray.models.ssd:ssd_chunked", 97),
        ("scan", "foxhunt_ray.models.ssd:ssd_recurrent", 97),
        ("block", "foxhunt_ray.models.mamba2:make_block", 12),
    ],
)
def test_every_case_passes_and_none_is_skipped(runner: Path, kind: str, target: str, cases: int) -> None:
    command = [sys.executable, str(runner), kind, target, "--suite", "fp64,fp32", "--full", "--json"]
    limits = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=CHECKOUT, env=limits, capture_output=True, text=True)
    report = json.loads(done.stdout)
    rows = [row for group in report["report"] for row in group["rows"]]
    assert [row for row in rows if row["ok"] is not True] == []
    assert len(rows) >= cases

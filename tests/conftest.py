"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real market files: FOXHUNT_TEST_DATA, else shared/data beside the checkout; skips without."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FOXHUNT_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real market files: {folder} does not exist; set FOXHUNT_TEST_DATA")
    return folder

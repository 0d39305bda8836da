"""Fixtures that more than one part of the tests needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, visibly, what needs a GPU where torch sees none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real market files: FOXHUNT_TEST_DATA, else shared/data beside the checkout; skips without."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FOXHUNT_TEST_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no real market files: {folder} does not exist; set FOXHUNT_TEST_DATA")
    return folder


@pytest.fixture(scope="module")
def small_ray() -> Iterator[None]:
    """A real Ray of two CPUs on this machine, for one test module."""
    import ray

    ray.init(
        address="local",  # never another Ray of this machine
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=150_000_000,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small market, one file a symbol, as users have them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from foxhunt_ray.data.synthetic import synthetic_market

    folder = tmp_path_factory.mktemp("market") / "bars"
    folder.mkdir()
    for bars in synthetic_market(3, n_symbols=2, n_bars=1500).bars:
        table = pa.table({"ts": pa.array(bars.ts_event, pa.timestamp("ns", tz="UTC")), **bars.columns})
        pq.write_table(table, folder / f"{bars.symbol}.parquet")
    return folder

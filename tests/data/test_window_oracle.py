"""The independent window oracle judges what a stream yields: on its own nasty data, when it is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foxhunt_ray.cli import main
from foxhunt_ray.config import load_config
from foxhunt_ray.data import prepare, survey

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
FEATURES = ["rid", "open", "high", "low", "close", "volume", "ret1", "vol20"]
SECOND = 10**9


@pytest.fixture(scope="module")
def verify():
    beside = Path(__file__).resolve().parents[3] / "shared" / "oracles"
    script = Path(os.environ.get("FOXHUNT_ORACLES", beside)) / "window_oracle.py"
    if not script.is_file():
        pytest.skip(f"no window oracle: {script} does not exist; set FOXHUNT_ORACLES")

    def judge(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return judge


@pytest.fixture(scope="module", params=[0, 7, 42])
def nasty(request, verify, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nasty") / str(request.param)
    verify("make", folder, "--symbols", 6, "--rows", 700, "--seed", request.param)
    return folder


def streamed(data: Path, out: Path, split: str = "train", normalise: bool = False, **settings: object):
    """Write what two epochs of a stream yield to ``out``; the survey and the prepared data."""
    fixed = {"data.path": str(data), "features.groups": [], "features.columns": FEATURES}
    fixed |= {"target.kind": "column", "target.column": "close"}
    config = load_config(None, fixed | {key.replace("__", "."): v for key, v in settings.items()})
    found = survey(config)
    prepared = prepare(config, found)
    columns: dict[str, list[np.ndarray]] = {k: [] for k in ("x", "y", "symbol", "end_ts", "epoch")}
    for epoch in range(2):
        for b in prepared.stream(split, batch_size=64, seed=1, epoch=epoch, normalise=normalise):
            columns["x"].append(b.features.numpy())
            columns["y"].append(b.targets[:, 0].numpy())
            columns["symbol"].append(np.array(prepared.symbols)[b.symbol.numpy()])
            columns["end_ts"].append(b.ts_event.numpy())
            columns["epoch"].append(np.full(len(b), epoch))
    np.savez(out, **{k: np.concatenate(v) for k, v in columns.items()})
    return found, prepared


WHOLE = {"split__train": 1.0, "split__val": 0.0, "split__test": 0.0}
PART = {"split__train": 0.6, "split__val": 0.2, "split__test": 0.2}


@pytest.mark.parametrize(
    ("length", "stride", "horizon", "gap_s"),
    [(16, 1, 1, 90), (16, 3, 5, 90), (8, 4, 3, 600), (33, 1, 24, 10**7), (1, 1, 1, 60)],
)
def test_coverage_values_and_borders(small_ray, verify, nasty, tmp_path, length, stride, horizon, gap_s):
    dump = tmp_path / "dump.npz"
    sizes = {"data__context_length": length, "data__stride": stride, "target__horizon": horizon}
    streamed(nasty, dump, **WHOLE, **sizes, data__max_gap=f"{gap_s}s")
    spec = ("--seq-len", length, "--stride", stride, "--horizon", horizon, "--max-gap-ns", gap_s * SECOND)
    assert not verify("check", nasty, dump, *spec).startswith("0 windows")
    verify("check", nasty, dump, *spec, "--rid", "rid")


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_splits_purge_their_targets(small_ray, verify, nasty, tmp_path, split):
    dump = tmp_path / "dump.npz"
    found, _ = streamed(
        nasty, dump, split, **PART, data__context_length=16, target__horizon=5, data__max_gap="90s"
    )
    span, spec = found.spans[split], ["--seq-len", 16, "--horizon", 5, "--max-gap-ns", 90 * SECOND]
    spec += ["--lo", span.start] if split != "train" else []
    spec += ["--hi", span.end] if split != "test" else []
    verify("check", nasty, dump, *spec, "--rid", "rid")


def test_log_returns(small_ray, verify, nasty, tmp_path):
    dump, sizes = tmp_path / "dump.npz", {"data__context_length": 16, "target__horizon": 5}
    streamed(nasty, dump, **WHOLE, **sizes, target__kind="log_return", data__max_gap="90s")
    spec = ("--seq-len", 16, "--horizon", 5, "--max-gap-ns", 90 * SECOND, "--mode", "logret")
    verify("check", nasty, dump, *spec, "--rid", "rid")


def test_nothing_before_the_training_end_depends_on_what_comes_after(small_ray, verify, nasty, tmp_path):
    sizes = {"data__context_length": 16, "target__horizon": 1, "data__max_gap": "90s"}
    found, prepared = streamed(nasty, tmp_path / "a.npz", normalise=True, **PART, **sizes)
    end = found.spans["train"].end
    statistics = zip(prepared.features, prepared.mean, prepared.std, strict=True)
    (tmp_path / "s.json").write_text(json.dumps({n: {"mean": m, "std": s} for n, m, s in statistics}))
    verify("stats", nasty, tmp_path / "s.json", "--until", end)
    verify("perturb", nasty, tmp_path / "later", "--after", end)
    streamed(tmp_path / "later", tmp_path / "b.npz", normalise=True, **PART, **sizes)
    verify("leak", tmp_path / "a.npz", tmp_path / "b.npz", "--after", end, "--data", nasty)


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        ("us_equity_daily_spark", {}),
        ("binance_snapshots/production_*", {"data__duplicates": "latest_by:collection_time"}),
    ],
)
def test_prepared_files_give_bitwise_the_same_windows(
    small_ray, verify, real_data, tmp_path, source, settings
):
    given = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
    assert main(["prepare", str(real_data / source), str(tmp_path / "out"), *given]) == 0
    sizes = {"data__context_length": 16, "target__horizon": 3, "target__kind": "log_return"}
    sizes |= {"features__groups": ["returns", "range"], "features__columns": []}
    streamed(real_data / source, tmp_path / "a.npz", **PART, **sizes, **settings)
    streamed(tmp_path / "out", tmp_path / "b.npz", **PART, **sizes)
    told = verify("same", tmp_path / "a.npz", tmp_path / "b.npz")
    assert len(np.load(tmp_path / "a.npz")["x"]) > 0, told

"""The independent window oracle judges what a stream yields: on its own nasty data, when it is at hand."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foxhunt_ray.cli import main
from foxhunt_ray.config import load_config
from foxhunt_ray.data import prepare, survey
from foxhunt_ray.data.stream import build
from foxhunt_ray.data.stream.rows import FileRows

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
FEATURES = ["rid", "open", "high", "low", "close", "volume", "ret1", "vol20"]
SECOND = 10**9


@pytest.fixture(scope="module")
def script():
    beside = Path(__file__).resolve().parents[3] / "shared" / "oracles"
    script = Path(os.environ.get("FOXHUNT_ORACLES", beside)) / "window_oracle.py"
    if not script.is_file():
        pytest.skip(f"no window oracle: {script} does not exist; set FOXHUNT_ORACLES")
    return script


@pytest.fixture(scope="module")
def verify(script):
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


@pytest.fixture
def small_units(monkeypatch):
    """Units and blocks so small that the data fill many pools."""
    monkeypatch.setattr(build, "_UNIT_ROWS", 64)
    monkeypatch.setattr(build, "_BLOCK_BYTES", 4 * 64 * 36)


def made(data: Path, **settings: object):
    """The survey of the oracle's data, and the prepared data."""
    fixed = {"data.path": str(data), "features.groups": [], "features.columns": FEATURES}
    fixed |= {"target.kind": "column", "target.column": "close"}
    config = load_config(None, fixed | {key.replace("__", "."): v for key, v in settings.items()})
    found = survey(config)
    return found, prepare(config, found)


def written(prepared, out: Path, *epochs) -> Path:
    """A file with all that the loaders ``epochs`` yield."""
    columns: dict[str, list[np.ndarray]] = {k: [] for k in ("x", "y", "symbol", "end_ts", "epoch")}
    for epoch, batches in enumerate(epochs):
        for b in batches:
            columns["x"].append(b.features.numpy())
            columns["y"].append(b.targets[:, 0].numpy())
            columns["symbol"].append(np.array(prepared.symbols)[b.symbol.numpy()])
            columns["end_ts"].append(b.ts_event.numpy())
            columns["epoch"].append(np.full(len(b), epoch))
    np.savez(out, **{k: np.concatenate(v) for k, v in columns.items()})
    return out


def streamed(data: Path, out: Path, split: str = "train", normalise: bool = False, **settings: object):
    """Write what two epochs of a stream yield to ``out``; the survey and the prepared data."""
    found, prepared = made(data, **settings)
    same = {"batch_size": 64, "seed": 1, "normalise": normalise}
    written(prepared, out, *(prepared.stream(split, epoch=epoch, **same) for epoch in range(2)))
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


SIZES = {"data__context_length": 16, "target__horizon": 5, "data__max_gap": "90s"}
SPEC = ("--seq-len", 16, "--horizon", 5, "--max-gap-ns", 90 * SECOND, "--rid", "rid")


@pytest.mark.parametrize("nasty", [7], indirect=True)
@pytest.mark.parametrize("place", [{"memory_frac": 0}, {"tier": "resident"}, {"tier": "arena"}], ids=str)
def test_coverage_wherever_rows_lie_and_windows_are_gathered(
    small_ray, verify, nasty, tmp_path, small_units, place
):
    loader = {f"loader__{key}": v for key, v in place.items()} | {"loader__cache_dir": str(tmp_path / "rows")}
    _, prepared = streamed(nasty, tmp_path / "dump.npz", **WHOLE, **SIZES, **loader, loader__pool="20KB")
    assert isinstance(prepared._rows, FileRows) == ("memory_frac" in place)
    verify("check", nasty, tmp_path / "dump.npz", *SPEC)


@pytest.mark.parametrize("nasty", [7], indirect=True)
def test_coverage_where_much_is_missing(small_ray, verify, nasty, tmp_path):
    random, data = np.random.default_rng(1), tmp_path / "holes"
    for file in nasty.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        holes = {n: np.where(random.random(len(table)) < 0.005, np.nan, table[n]) for n in FEATURES[1:]}
        columns = {"ts": table["ts"], "rid": table["rid"]}
        columns |= {name: pa.array(values, pa.float32()) for name, values in holes.items()}
        (data / file.relative_to(nasty)).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), data / file.relative_to(nasty))
    streamed(data, tmp_path / "dump.npz", **WHOLE, **SIZES)
    few, all_of_them = (int(verify("expect", d, *SPEC).split()[1].rstrip(",")) for d in (data, nasty))
    assert 0.3 * all_of_them < few < 0.9 * all_of_them
    verify("check", data, tmp_path / "dump.npz", *SPEC)


@pytest.mark.parametrize("nasty", [42], indirect=True)
def test_ranks_get_disjoint_shards_that_together_are_the_pass(
    small_ray, verify, nasty, tmp_path, small_units
):
    _, prepared = made(nasty, **PART, **SIZES, loader__pool="20KB")
    same = {"batch_size": 64, "seed": 1, "normalise": False}
    full = written(prepared, tmp_path / "full.npz", prepared.stream("train", **same))
    shards = [
        written(prepared, tmp_path / f"{r}.npz", prepared.stream("train", rank=r, world_size=3, **same))
        for r in range(3)
    ]
    verify("shards", *shards, "--full", full)
    sizes = [len(np.load(shard)["y"]) for shard in shards]
    assert max(sizes) - min(sizes) <= -(-sum(sizes) // 64)  # at most one window of each batch


@pytest.mark.parametrize("nasty", [42], indirect=True)
@pytest.mark.parametrize("consumed", [0, 7])
def test_a_saved_position_goes_on_in_the_same_order(
    small_ray, verify, nasty, tmp_path, small_units, consumed
):
    _, prepared = made(nasty, **PART, **SIZES, loader__pool="20KB")
    same = {"batch_size": 64, "seed": 1, "epoch": 3, "normalise": False}
    with prepared.stream("train", prefetch_batches=7, **same) as cut:
        assert len(list(itertools.islice(iter(cut.next_batch, None), consumed))) == consumed
        state = cut.state_dict()
    full = written(prepared, tmp_path / "full.npz", prepared.stream("train", **same))
    rest = written(prepared, tmp_path / "rest.npz", prepared.stream("train", **same | {"state": state}))
    verify("same", full, rest, "--skip-batches", consumed, "--batch", 64)


def test_a_pool_of_a_fourteenth_mixes_well(small_ray, script, verify, tmp_path, small_units, monkeypatch):
    monkeypatch.setattr(build, "_BLOCK_BYTES", 10 * 64 * 36)  # a sixth of a pool, as with the defaults
    verify("make", tmp_path / "data", "--symbols", 4, "--rows", 20_000)
    sizes = {"data__context_length": 4, "data__max_gap": "90s", "target__horizon": 1}
    _, prepared = made(tmp_path / "data", **WHOLE, **sizes, loader__pool=f"{50_000 * 52 // 14}B")
    batches = prepared.stream("train", batch_size=32, seed=1, normalise=False)
    dump = written(prepared, tmp_path / "dump.npz", batches)
    told = json.loads(verify("order", dump, "--batch", 32, "--seq-len", 4))
    assert abs(told["rank_corr"]) < 0.05 and told["spread"] > 0.95
    assert told["overlap_pairs_vs_random"] < 20  # 14 where the windows of a pool are mixed perfectly
    spec = importlib.util.spec_from_file_location("window_oracle", script)
    assert spec and spec.loader
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    found = np.load(dump)
    place = np.empty(len(found["y"]), np.int64)
    place[np.lexsort((found["end_ts"], found["symbol"]))] = np.arange(len(place))
    level = np.empty(len(place))
    level[place] = found["x"][:, -1, FEATURES.index("close")]
    figures = oracle.order_figures(place, 32, sym=found["symbol"][np.argsort(place)], label=level)
    assert figures["design_effect"] <= 3 and figures["symbols_per_batch"] > 2.5


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

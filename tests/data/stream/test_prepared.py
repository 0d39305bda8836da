"""Streams out of a real object store: every window once, bitwise as in the file, in an order that resumes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import ray
import torch

from foxhunt_ray.config import load_config
from foxhunt_ray.data.schema import Bars, Market
from foxhunt_ray.data.stream import prepare
from foxhunt_ray.data.survey import survey_market
from foxhunt_ray.errors import DataError

pytestmark = pytest.mark.cluster
HOUR = 3600 * 10**9


def reference(split: str, found) -> list[tuple[int, int]]:
    return [(s, t) for s, ends in enumerate(found.ends(split)) for t in ends.tolist()]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_every_window_comes_once_with_the_rows_of_the_file(prepared, split, market, dump):
    found = survey_market(prepared.config, market)
    x, y, symbol, stamp = dump(prepared.stream(split, batch_size=7, normalise=False))
    rows = {
        float(b.columns["row"][t]): (s, t)
        for s, b in enumerate(found.market.bars)
        for t in range(len(b.ts_event))
    }
    got = [rows[float(v)] for v in x[:, -1, 0]]
    assert sorted(got) == reference(split, found) and len(got) > 20
    for n, (s, t) in enumerate(got):
        want = found.rows[s][t - 5 : t + 1]
        assert x[n].numpy().tobytes() == want.tobytes()
        assert y[n, 0] == np.float32(found.targets[s][t])
        assert (int(symbol[n]), int(stamp[n])) == (s, int(found.market.bars[s].ts_event[t]))


def test_the_order_is_that_of_seed_and_epoch_and_not_of_the_look_ahead(prepared, dump):
    ahead = dump(prepared.stream("train", batch_size=16, seed=3, epoch=1))
    on_demand = dump(prepared.stream("train", batch_size=16, seed=3, epoch=1, prefetch_batches=0))
    other = dump(prepared.stream("train", batch_size=16, seed=3, epoch=2))
    assert all(torch.equal(a, b) for a, b in zip(ahead, on_demand, strict=True))
    assert not torch.equal(ahead[3], other[3])
    assert torch.equal(ahead[3].sort().values, other[3].sort().values)


@pytest.mark.parametrize("batch", [1, 9, 20])
def test_a_stream_goes_on_bitwise_at_any_batch(prepared, batch, dump):
    whole = dump(prepared.stream("train", batch_size=16, seed=1))
    rest = dump(prepared.stream("train", batch_size=16, seed=1, start_batch=batch))
    assert all(torch.equal(a[batch * 16 :], b) for a, b in zip(whole, rest, strict=True))


def test_the_last_batch_is_partial_and_the_total_is_known(prepared):
    loader = prepared.stream("val", batch_size=16)
    sizes = [len(b) for b in loader]
    count = len(prepared.windows("val"))
    assert sizes == [16] * (count // 16) + [count % 16]
    assert loader.progress.batches_total == len(sizes)


def test_an_endless_stream_goes_through_epoch_after_epoch(prepared, dump):
    count = -(-len(prepared.windows("train")) // 100)
    with prepared.stream("train", batch_size=100, seed=2, endless=True) as loader:
        stamps = [next(iter([loader.next_batch()])).ts_event for _ in range(2 * count)]
    for epoch in (0, 1):
        want = dump(prepared.stream("train", batch_size=100, seed=2, epoch=epoch))[3]
        assert torch.equal(torch.cat(stamps[epoch * count : (epoch + 1) * count]), want)


def test_normalised_windows_use_training_statistics_and_the_clip(prepared, dump):
    x = dump(prepared.stream("test", batch_size=64, shuffle=False))[0]
    raw = dump(prepared.stream("test", batch_size=64, shuffle=False, normalise=False))[0]
    want = ((raw.double() - torch.from_numpy(prepared.mean)) / torch.from_numpy(prepared.std)).clamp(-10, 10)
    torch.testing.assert_close(x.double(), want, rtol=1e-5, atol=1e-5)


def test_unscaled_inputs_are_not_clipped(small_ray, make_config, market, dump):
    found = survey_market(make_config("features.scale=none"), market)
    x = dump(prepare(found.config, found).stream("val", batch_size=64, shuffle=False))[0]
    assert x[..., 0].max() > 100  # row numbers, as they are


def test_writing_into_a_batch_leaves_the_store_as_it_was(prepared, dump):
    before = dump(prepared.stream("val", batch_size=16, shuffle=False))[0]
    for batch in prepared.stream("val", batch_size=16, shuffle=False):
        batch.features.fill_(-1)
        batch.targets.fill_(-1)
    assert torch.equal(before, dump(prepared.stream("val", batch_size=16, shuffle=False))[0])


def test_evaluation_windows_are_a_fixed_subset_spread_over_time(prepared, dump):
    some = dump(prepared.stream("val", batch_size=16, windows=20, shuffle=False))[3]
    again = dump(prepared.stream("val", batch_size=64, windows=20, shuffle=False))[3]
    every = dump(prepared.stream("val", batch_size=16, shuffle=False))[3]
    assert len(some) == 20 and torch.equal(some, again)
    assert set(some.tolist()) <= set(every.tolist())


def test_a_shorter_context_is_scored_on_the_same_windows(prepared, dump):
    short = dump(prepared.stream("val", batch_size=64, context_length=2, shuffle=False, normalise=False))
    whole = dump(prepared.stream("val", batch_size=64, shuffle=False, normalise=False))
    assert torch.equal(short[3], whole[3]) and torch.equal(short[1], whole[1])
    assert torch.equal(short[0], whole[0][:, -2:])
    assert len(prepared.windows("train", context_length=2)) > len(prepared.windows("train"))


def test_all_windows_include_those_whose_future_is_not_known(prepared, market, dump):
    x, y, symbol, stamp = dump(prepared.stream("all", batch_size=64, shuffle=False, normalise=False))
    newest = {s: int(stamp[symbol == s].max()) for s in (0, 2)}
    bars = market.bars
    assert newest == {s: int(bars[s].ts_event[-1]) for s in (0, 2)}
    assert torch.isnan(y).any() and torch.isfinite(x).all()


def test_a_split_without_windows_and_a_context_too_long_are_refused(prepared):
    with pytest.raises(DataError, match="no window in split 'nowhere'"):
        prepared.stream("nowhere", batch_size=4)
    with pytest.raises(DataError, match="context_length 7 is longer than the 6 bars"):
        prepared.stream("train", batch_size=4, context_length=7)


def test_it_streams_where_a_task_holds_every_cpu(prepared, dump):
    @ray.remote(num_cpus=2)
    def stamps(p):
        return torch.cat([b.ts_event for b in p.stream("train", batch_size=50, seed=4)])

    inside = ray.get(stamps.remote(prepared), timeout=60)
    assert torch.equal(inside, dump(prepared.stream("train", batch_size=50, seed=4))[3])


def test_the_store_holds_rows_not_windows(small_ray):
    # 13 inputs, the default set on hourly quotes; 8 bytes of stamp and 4 of target come on top, and the halo.
    n, random = 20_000, np.random.default_rng(0)
    columns = {f"c{k}": random.standard_normal(n) for k in range(13)}
    bars = Bars("AAA", np.arange(n) * HOUR, columns)
    chosen = load_config(
        None, ["features.groups=[]", 'features.columns=["c*"]', "target.kind=column", "target.column=c0"]
    )
    found = survey_market(chosen, Market((bars,)))
    assert prepare(chosen, found).nbytes <= 1.3 * n * 13 * 4


def test_a_target_that_does_not_vary_has_scale_one(small_ray, make_config, market):
    bars = [Bars(b.symbol, b.ts_event, b.columns | {"still": 0.1 + 0 * b.ts_event}) for b in market.bars]
    settings = make_config("target.column=still", "target.horizon=[1,2]")
    target = prepare(settings, survey_market(settings, Market(tuple(bars)))).target
    assert target.scale == (1.0, 1.0) and target.mean == pytest.approx((0.1, 0.1))


def test_the_last_price_of_a_window_is_that_of_its_end(small_ray, make_config, market):
    prices = [
        Bars(b.symbol, b.ts_event, b.columns | {"close": 5 + b.columns["row"] / 7}) for b in market.bars
    ]
    settings = make_config("target.kind=price")
    ready = prepare(settings, survey_market(settings, Market(tuple(prices))))
    symbol, rows = np.array([2, 0, 1, 0]), [3, 699, 39, 0]
    stamps = np.array([prices[s].ts_event[t] for s, t in zip(symbol, rows, strict=True)])
    want = [prices[s].columns["close"][t] for s, t in zip(symbol, rows, strict=True)]
    assert ready.last_prices(symbol, stamps).tolist() == want


def test_the_example_of_the_docs_goes_on_with_the_second_batch(prepared):
    text = (Path(__file__).resolve().parents[3] / "docs" / "loading.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names = {"prepared": prepared}
    exec(code, names)
    with prepared.stream("train", batch_size=64) as whole, names["again"] as again:
        whole.next_batch()
        assert torch.equal(whole.next_batch().features, again.next_batch().features)

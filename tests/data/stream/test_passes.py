"""One pass on every tier, source, rank and cut: the same windows in the same order, bit for bit."""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
import torch

from foxhunt_ray.data.prefetch.ahead import Ahead
from foxhunt_ray.data.stream.pools import PoolReader
from foxhunt_ray.data.stream.rows import FileRows
from foxhunt_ray.errors import CheckpointError, ConfigError

pytestmark = pytest.mark.cluster
WAIT_S = 10.0
TIERS = ("host", "arena", "resident")


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("foxhunt") or t.name == "Prefetcher"]


@pytest.fixture(autouse=True)
def no_thread_survives():
    before = threads()
    yield
    deadline = time.monotonic() + WAIT_S
    while threads() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == before


@pytest.fixture(scope="module")
def on_tiers(small_ray, make_prepared):
    return {tier: make_prepared(f"loader.tier={tier}") for tier in TIERS}


@pytest.mark.parametrize("depth", [0, 3, "auto"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_every_tier_gives_bitwise_the_same_batches(on_tiers, dump, split, depth):
    loaders = [
        p.stream(split, batch_size=16, seed=3, epoch=1, prefetch_batches=depth) for p in on_tiers.values()
    ]
    assert [loader.progress.tier for loader in loaders] == list(TIERS)
    host, *others = map(dump, loaders)
    assert len(host[0]) > 50
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(host, other, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("split", ["train", "val"])
def test_every_tier_gives_the_same_batches_on_the_gpu(on_tiers, prepared, dump, split):
    want = dump(prepared.stream(split, batch_size=16, seed=3))
    sent = {}
    for tier, ready in on_tiers.items():
        loader = ready.stream(split, batch_size=16, seed=3, device="cuda")
        got = dump(loader)
        sent[tier] = loader.progress.device_bytes
        assert loader.progress.tier == tier and got[0].is_cuda
        assert all(torch.equal(a, b.cpu()) for a, b in zip(want, got, strict=True))
    assert sent["resident"] <= sent["arena"] < sent["host"]


def test_rows_in_mapped_files_give_the_same_batches(prepared, make_prepared, dump, tmp_path):
    filed = make_prepared("loader.memory_frac=0", f"loader.cache_dir={tmp_path}")
    assert isinstance(filed._rows, FileRows) and filed.nbytes < prepared.nbytes / 2
    for split in ("train", "val", "test"):
        one, other = (dump(p.stream(split, batch_size=16, seed=3)) for p in (prepared, filed))
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("world", [2, 3, 20])
def test_ranks_share_every_batch_and_the_order_does_not_depend_on_their_number(prepared, world):
    whole = list(prepared.stream("train", batch_size=16, seed=1))
    ranks = [
        list(prepared.stream("train", batch_size=16, seed=1, rank=r, world_size=world)) for r in range(world)
    ]
    for number, batch in enumerate(whole):
        for rank, own in enumerate(ranks):
            assert torch.equal(own[number].features, batch.features[rank::world])
            assert torch.equal(own[number].ts_event, batch.ts_event[rank::world])


@pytest.mark.parametrize("consumed", [0, 1, 9, 30])
@pytest.mark.parametrize("depth", [0, 7])
def test_a_stream_goes_on_from_its_saved_state_bitwise_whatever_was_prepared(prepared, consumed, depth):
    def take(loader, count):
        return [loader.next_batch() for _ in range(count)]

    with prepared.stream("train", batch_size=50, seed=1, endless=True, prefetch_batches=depth) as loader:
        take(loader, consumed)
        state = loader.state_dict()
        want = take(loader, 25)
    each = -(-len(prepared.windows("train")) // 50)
    assert (state["epoch"], state["batch"]) == divmod(consumed, each)
    with prepared.stream("train", batch_size=50, seed=1, endless=True, state=state) as again:
        for a, b in zip(want, take(again, 25), strict=True):
            assert torch.equal(a.features, b.features) and torch.equal(a.ts_event, b.ts_event)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"batch_size": 8}, "of other batch_size .batch_size 16, now 8.; go on with"),
        ({"seed": 2}, "of other seed .seed 1, now 2."),
        ({"context_length": 3}, "of other windows or their pools"),
        ({"stride": 2}, "of other windows or their pools"),
    ],
)
def test_a_state_of_another_plan_is_refused_in_one_sentence(prepared, changed, words):
    with prepared.stream("train", batch_size=16, seed=1) as loader:
        state = loader.state_dict()
    with pytest.raises(CheckpointError, match=words) as caught:
        prepared.stream("train", **({"batch_size": 16, "seed": 1, "state": state} | changed))
    assert "\n" not in str(caught.value)


def test_pools_before_the_position_are_not_read(prepared, monkeypatch):
    read = []
    source = type(prepared._rows)
    real = source.read

    def counted(self, units, **more):
        read.append(len(units))
        return real(self, units, **more)

    monkeypatch.setattr(source, "read", counted)
    whole, late = (list(prepared.stream("train", batch_size=16, seed=1, start_batch=b)) for b in (0, 42))
    assert len(late) == len(whole) - 42 and 0 < read[1] < read[0] / 2


def test_a_batch_that_straddles_pools_is_whole(prepared):
    # Pools hold about 300 windows, so batches of 450 lie in two pools each.
    sizes = [len(b) for b in prepared.stream("train", batch_size=450, seed=1)]
    count = len(prepared.windows("train"))
    assert sizes == [450] * (count // 450) + [count % 450]


def test_rows_that_stay_are_read_once_for_all_epochs(make_prepared, monkeypatch):
    ready = make_prepared("loader.pool=1MB")
    reads, source = [], type(ready._rows)
    monkeypatch.setattr(
        source, "read", lambda self, *a, real=source.read, **more: reads.append(a) or real(self, *a, **more)
    )
    each = -(-len(ready.windows("train")) // 100)
    with ready.stream("train", batch_size=100, endless=True) as loader:
        for _ in range(5 * each):
            loader.next_batch()
    assert len(reads) == 1


def test_close_gives_the_consumer_back_while_the_second_pool_stalls(prepared, monkeypatch):
    source, release = type(prepared._rows), threading.Event()
    real, reached = source.read, threading.Event()

    def read(self, units, **more):
        for number, rows in enumerate(real(self, units, **more)):
            if number == len(units) - 1:  # of the last pool
                reached.set()
                release.wait(WAIT_S)
            yield rows

    monkeypatch.setattr(source, "read", read)
    loader = prepared.stream("train", batch_size=450)
    while not reached.is_set():
        loader.next_batch()
    waiting = threading.Thread(target=lambda: [None for _ in iter(loader.next_batch, None)])
    waiting.start()
    loader.close()  # joins for a second at most; what it leaves ends when the reading gives in
    waiting.join(WAIT_S)
    assert not waiting.is_alive() and not release.is_set() and loader.next_batch() is None
    release.set()


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_error_of_the_reading_arrives_with_its_type_and_the_number_of_the_batch(
    prepared, monkeypatch, depth, error
):
    source, real = type(prepared._rows), type(prepared._rows).read

    def read(self, units, **more):
        yield from list(real(self, units, **more))[: len(units) // 2]
        raise error

    monkeypatch.setattr(source, "read", read)
    with pytest.raises(type(error)) as caught:
        list(prepared.stream("train", batch_size=16, prefetch_batches=depth))
    assert caught.value is error and "at batch" in error.__notes__[-1]


def test_a_hundred_early_breaks_leave_no_thread(prepared):
    for number in range(100):
        for _ in prepared.stream("train", batch_size=16, epoch=number):
            break
    assert threads() == []


def test_one_warning_where_no_thread_can_start_and_the_same_batches(prepared, dump, monkeypatch):
    want = dump(prepared.stream("train", batch_size=16, seed=1))
    real = threading.Thread.start

    def refuse(self):
        if self.name.startswith("foxhunt"):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.warns(RuntimeWarning, match="no thread to load ahead") as caught:
        got = dump(prepared.stream("train", batch_size=16, seed=1))
    assert len(caught) == 1 and all(torch.equal(a, b) for a, b in zip(want, got, strict=True))


def test_no_more_than_one_pool_is_filled_beside_the_one_in_use(prepared, monkeypatch):
    loads, taken, excess = [], [], []
    load, free_slot = PoolReader._load, Ahead.free_slot

    def counted(self, rows, numbers):
        loads.append(numbers)
        excess.append(len(loads) - len(taken))  # one that is not taken yet, this one
        return load(self, rows, numbers)

    def noted(self):
        if self._thread.name == "foxhunt-pools":
            taken.append(self)
        free_slot(self)

    monkeypatch.setattr(PoolReader, "_load", counted)
    monkeypatch.setattr(Ahead, "free_slot", noted)
    assert len(list(prepared.stream("train", batch_size=16))) > 30
    assert len(loads) == len(taken) > 2 and max(excess) <= 1


def test_writing_into_a_batch_changes_neither_the_store_nor_what_comes_after(prepared, dump):
    before = dump(prepared.stream("train", batch_size=16, seed=2))
    rest = []
    for batch in prepared.stream("train", batch_size=16, seed=2):
        rest.append([t.clone() for t in (batch.features, batch.targets, batch.symbol, batch.ts_event)])
        for tensor in (batch.features, batch.targets, batch.symbol, batch.ts_event):
            tensor.fill_(-1)
    for field, want in zip(zip(*rest, strict=True), before, strict=True):
        assert torch.equal(torch.cat(field), want)


def test_the_store_holds_the_same_bytes_for_another_process_after_a_write(prepared):
    import ray

    @ray.remote(num_cpus=0)
    def digest(ready):
        blocks = ray.get([b.ref for b in ready._rows.blocks])
        flat = [block["features"].combine_chunks().storage.flatten().to_numpy() for block in blocks]
        return [hashlib.sha256(values.tobytes()).hexdigest() for values in flat]

    before = ray.get(digest.remote(prepared))
    for batch in prepared.stream("train", batch_size=16, normalise=False):
        batch.features.sub_(1e6)
        batch.targets.sub_(1e6)
    assert ray.get(digest.remote(prepared)) == before and len(set(before)) > 1


@pytest.mark.parametrize(
    "wrong",
    [{"batch_size": 0}, {"start_batch": -1}, {"rank": 3, "world_size": 3}, {"rank": -1}, {"world_size": 0}],
)
def test_sizes_and_ranks_that_make_no_sense_are_refused(prepared, wrong):
    with pytest.raises(ConfigError, match="expected at least 1, at least 0, and a rank from 0"):
        prepared.stream("train", **({"batch_size": 16} | wrong))

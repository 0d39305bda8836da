"""AsyncDataLoader: every batch once and in order, bounded look-ahead, honest errors, no thread left."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch

from foxhunt_ray.batch import Batch
from foxhunt_ray.data.prefetch import AsyncDataLoader, LoaderProgress, loader
from foxhunt_ray.errors import ConfigError, DataError

WAIT_S = 10.0  # for events that must come; a test that waits this long has failed


def make_batch(number: int, size: int = 10) -> Batch:
    random = torch.Generator().manual_seed(number)
    stamps = torch.arange(size) + number * size
    return Batch(
        torch.randn(size, 10, 5, generator=random),
        torch.randn(size, 1, generator=random),
        torch.full((size,), number),
        stamps,
    )


def batches(samples: int, size: int = 10) -> list[Batch]:
    """Host batches that hold ``samples`` windows; the last one may be smaller."""
    return [make_batch(i, min(size, samples - i * size)) for i in range(-(-samples // size))]


def numbers(loader: AsyncDataLoader) -> list[int]:
    return [int(batch.symbol[0]) for batch in loader]


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "foxhunt-prefetch"]


@pytest.fixture(autouse=True)
def no_worker_survives() -> Iterator[None]:
    yield
    for thread in workers():
        thread.join(WAIT_S)
    assert workers() == []


class Failing:
    """Gives ``good`` batches, then raises."""

    def __init__(self, good: int, error: BaseException) -> None:
        self.good, self.error = good, error

    def __iter__(self) -> Iterator[Batch]:
        yield from batches(10 * self.good)
        raise self.error


class Stalling:
    """Gives one batch, then nothing until it is released."""

    def __init__(self) -> None:
        self.reached, self.release, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[Batch]:
        try:
            yield make_batch(0)
            self.reached.set()
            self.release.wait(WAIT_S)
            yield make_batch(1)
        finally:
            self.closed.set()


class Custom(BaseException):
    pass


# The whole of the data, in order


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_100_samples_by_10_give_10_batches(depth: int) -> None:
    with AsyncDataLoader(batches(100), depth) as loader:
        assert [len(batch) for batch in loader] == [10] * 10


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_95_samples_by_10_end_with_a_batch_of_5(depth: int) -> None:
    with AsyncDataLoader(batches(95), depth) as loader:
        assert [len(batch) for batch in loader] == [10] * 9 + [5]


def test_a_batch_of_10_windows_of_10_steps_and_5_features_has_that_shape() -> None:
    with AsyncDataLoader(batches(100)) as loader:
        batch = loader.next_batch()
    assert batch is not None and batch.features.shape == (10, 10, 5) and batch.targets.shape == (10, 1)


@pytest.mark.parametrize("depth", [1, 2, 3, 50])
def test_ahead_and_on_demand_are_bitwise_equal(depth: int) -> None:
    ahead, demand = list(AsyncDataLoader(batches(195), depth)), list(AsyncDataLoader(batches(195), 0))
    assert len(ahead) == len(demand) == 20
    for a, b in zip(ahead, demand, strict=True):
        assert torch.equal(a.features, b.features) and torch.equal(a.targets, b.targets)
        assert torch.equal(a.symbol, b.symbol) and torch.equal(a.ts_event, b.ts_event)


@pytest.mark.parametrize("depth", [0, 3])
def test_a_function_is_a_source(depth: int) -> None:
    assert numbers(AsyncDataLoader(lambda: (make_batch(i) for i in range(7)), depth)) == list(range(7))


def test_the_end_is_given_again() -> None:
    loader = AsyncDataLoader(batches(10))
    assert loader.next_batch() is not None
    assert loader.next_batch() is None and loader.next_batch() is None


def test_loaders_nest() -> None:
    with AsyncDataLoader(AsyncDataLoader(batches(100), 2), 3) as loader:
        assert numbers(loader) == list(range(10))


# Progress


def test_progress_counts_batches_and_windows() -> None:
    with AsyncDataLoader(batches(95)) as loader:
        done = [(p.batches_done, p.batches_total, p.windows_done) for p in progress_of(loader)]
    assert done == [(i, 10, min(10 * i, 95)) for i in range(11)]


def progress_of(loader: AsyncDataLoader) -> Iterator[LoaderProgress]:
    yield loader.progress
    while loader.next_batch() is not None:
        yield loader.progress


def test_total_is_unknown_without_a_length() -> None:
    with AsyncDataLoader(iter(batches(100))) as loader:
        assert loader.progress.batches_total is None


def test_waiting_is_counted_only_while_nothing_is_ready() -> None:
    source = Stalling()
    with AsyncDataLoader(source) as loader:
        loader.next_batch()
        before = loader.progress.wait_s
        threading.Timer(0.05, source.release.set).start()
        loader.next_batch()
        waited = loader.progress.wait_s
        assert waited - before > 0.01
        assert loader.next_batch() is None and loader.progress.wait_s >= waited


# Bounds


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_no_more_than_the_depth_is_prepared_beside_the_one_in_use(depth: int) -> None:
    asked = threading.Semaphore(0)
    pulled = 0

    def source() -> Iterator[Batch]:
        nonlocal pulled
        for i in range(30):
            pulled += 1
            asked.release()
            yield make_batch(i)

    with AsyncDataLoader(source, depth) as loader:
        for handed_out in range(31 - depth):
            for _ in range(depth if handed_out == 0 else 1):
                assert asked.acquire(timeout=WAIT_S)
            assert not asked.acquire(timeout=0.01)
            assert pulled == handed_out + depth
            loader.next_batch()


@pytest.mark.parametrize("depth", [1, 3])
def test_a_batch_that_the_consumer_drops_is_freed_while_the_source_works(depth: int) -> None:
    source = Stalling()
    with AsyncDataLoader(source, depth) as loader:
        batch = loader.next_batch()
        assert batch is not None and source.reached.wait(WAIT_S)
        features = weakref.ref(batch.features)
        del batch
        assert features() is None
        source.release.set()


def test_close_frees_what_was_prepared() -> None:
    born: list[weakref.ref[torch.Tensor]] = []
    loader = AsyncDataLoader(born_batch(born, i) for i in range(9))
    loader.close()
    assert born and not any(ref() is not None for ref in born)


def born_batch(born: list[weakref.ref[torch.Tensor]], number: int) -> Batch:
    batch = make_batch(number)
    born.append(weakref.ref(batch.features))
    return batch


def test_no_thread_without_depth() -> None:
    with AsyncDataLoader(batches(100), 0) as loader:
        loader.next_batch()
        assert workers() == []


@pytest.mark.parametrize("count", [-1, True, 1.5, "3", None])
def test_a_depth_that_is_no_count_is_refused(count: object) -> None:
    with pytest.raises(ConfigError, match=r"prefetch_count = .*: expected a whole number"):
        AsyncDataLoader(batches(10), count)  # type: ignore[arg-type]


# Errors


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("source", [[], iter([]), list])
def test_an_empty_source_is_refused(source: object, depth: int) -> None:
    with pytest.raises(DataError, match=r"is empty: expected at least one batch; check"):
        AsyncDataLoader(source, depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize(
    "error", [OSError("disk"), KeyboardInterrupt(), SystemExit(3), Custom(), GeneratorExit()]
)
def test_an_error_of_any_kind_arrives_after_the_good_batches(depth: int, error: BaseException) -> None:
    loader = AsyncDataLoader(Failing(4, error), depth)
    for number in range(4):
        batch = loader.next_batch()
        assert batch is not None and int(batch.symbol[0]) == number
    for _ in range(2):  # and again when asked again
        with pytest.raises(type(error)) as caught:
            loader.next_batch()
        assert caught.value is error
    assert error.__notes__[-1:] == ["raised by the source of batches at batch 4 (counted from 0)"]


@pytest.mark.parametrize("depth", [0, 3])
def test_an_error_at_the_first_batch_arrives_at_construction(depth: int) -> None:
    with pytest.raises(Custom) as caught:
        AsyncDataLoader(Failing(0, Custom()), depth)
    assert "batch 0" in caught.value.__notes__[0]


@pytest.mark.parametrize("depth", [0, 3])
def test_an_error_of_the_function_that_makes_the_source_arrives(depth: int) -> None:
    with pytest.raises(ZeroDivisionError):
        AsyncDataLoader(lambda: [make_batch(1 // 0)], depth)


@pytest.mark.parametrize("depth", [0, 3])
def test_a_leaked_stop_iteration_is_an_error_and_not_an_end(depth: int) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        AsyncDataLoader(lambda: [next(iter(()))], depth)
    loader = AsyncDataLoader(Failing(2, StopIteration()), depth)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)
    assert loader.progress.batches_done == 2


def test_a_for_loop_raises_the_error_and_closes() -> None:
    loader = AsyncDataLoader(Failing(2, Custom()))
    with pytest.raises(Custom):
        numbers(loader)
    assert workers() == []
    with pytest.raises(Custom):
        loader.next_batch()


# Ends


def test_an_early_break_joins_the_worker() -> None:
    loader = AsyncDataLoader(batches(1000))
    for _ in loader:
        break
    assert workers() == []
    assert loader.next_batch() is None and loader.progress.batches_done == 1


def test_a_hundred_early_breaks_leave_no_thread() -> None:
    before = threading.active_count()
    for _ in range(100):
        for _ in AsyncDataLoader(batches(100)):
            break
    assert threading.active_count() == before


def test_close_joins_a_worker_that_waits_for_a_slot() -> None:
    last_ahead = threading.Event()

    def source() -> Iterator[Batch]:
        for i in range(100):
            yield make_batch(i)
            if i == 2:
                last_ahead.set()

    loader = AsyncDataLoader(source, 3)
    loader.next_batch()
    assert last_ahead.wait(WAIT_S)
    loader.close()
    loader.close()
    assert workers() == []


def test_a_loader_that_nobody_holds_is_collected_with_its_worker() -> None:
    loader = AsyncDataLoader(batches(100))
    gone = weakref.ref(loader)
    assert len(workers()) == 1
    del loader
    gc.collect()
    assert gone() is None and workers() == []


def test_an_error_in_the_loop_body_joins_the_worker() -> None:
    with pytest.raises(Custom):
        for _ in AsyncDataLoader(batches(100)):
            raise Custom
    assert workers() == []


def test_close_leaves_a_stalled_source_which_ends_when_it_gives_in() -> None:
    source = Stalling()
    loader = AsyncDataLoader(source)
    assert source.reached.wait(WAIT_S)
    (worker,) = workers()
    loader.close()
    assert worker.is_alive() and worker.daemon and loader.next_batch() is None
    source.release.set()
    worker.join(WAIT_S)
    assert not worker.is_alive() and source.closed.is_set()


def test_close_wakes_a_consumer_that_waits_in_another_thread() -> None:
    source, got = Stalling(), []
    loader = AsyncDataLoader(source)
    loader.next_batch()
    consumer = threading.Thread(target=lambda: got.append(loader.next_batch()))
    consumer.start()
    assert source.reached.wait(WAIT_S)
    loader.close()
    consumer.join(WAIT_S)
    source.release.set()
    assert got == [None]


@pytest.mark.skipif(sys.platform == "win32", reason="a wait for a lock cannot be interrupted on Windows")
def test_ctrl_c_interrupts_the_wait_for_a_batch() -> None:
    # A process started in the background of a script inherits an ignored SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    source = Stalling()
    main = threading.main_thread().ident
    assert main is not None
    with AsyncDataLoader(source) as loader:
        loader.next_batch()
        timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            loader.next_batch()
        timer.join()
        source.release.set()
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("depth", [0, 3])
def test_the_source_is_closed_on_the_thread_that_ran_it(depth: int) -> None:
    where: list[int] = []

    def source() -> Iterator[Batch]:
        where.append(threading.get_ident())
        try:
            yield from batches(100)
        finally:
            where.append(threading.get_ident())

    with AsyncDataLoader(source, depth) as loader:
        loader.next_batch()
    assert len(where) == 2 and where[0] == where[1]
    assert (where[0] == threading.get_ident()) == (depth == 0)


class Closable:
    """An iterator, not a generator, that holds a resource."""

    closed = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return make_batch(0)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("depth", [0, 3])
def test_an_iterator_with_a_close_method_is_closed_once(depth: int) -> None:
    source = Closable()
    with AsyncDataLoader(source, depth) as loader:
        loader.next_batch()
    assert source.closed == 1


# Without a thread


def test_a_refused_thread_means_on_demand_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.warns(RuntimeWarning, match="no thread to load ahead") as caught:
        loader = AsyncDataLoader(batches(95))
    assert numbers(loader) == list(range(10))
    assert len(caught) == 1 and caught[0].filename == __file__


# Devices


def test_batches_are_passed_through_on_the_cpu() -> None:
    source = batches(100)
    for given, got in zip(source, AsyncDataLoader(source), strict=True):
        assert got.features is given.features and got.ts_event is given.ts_event


class StandInStream:
    """Logs what a CUDA stream would be asked for; the copies themselves run on the host."""

    device = torch.device("cpu")

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def record_event(self) -> str:
        self.log.append(f"{self.name}: record")
        return f"copied by {self.name}"

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name}: wait for {event}")


def logged(log: list[str], text: str) -> Callable[..., object]:
    """A tensor method that logs and returns a copy."""

    def method(tensor: torch.Tensor, stream: StandInStream | None = None) -> torch.Tensor:
        log.append(f"{text} {stream.name}" if stream else text)
        return tensor.clone()

    return method


def test_the_consumer_is_ordered_after_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    streams = {name: StandInStream(name, log) for name in ("copying", "consuming")}
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: streams["copying"])
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams["consuming"])
    monkeypatch.setattr(loader, "place_near", lambda device: log.append(f"thread near {device}"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", logged(log, "pin"), raising=False)
    monkeypatch.setattr(torch.Tensor, "record_stream", logged(log, "used by"), raising=False)
    (batch,) = AsyncDataLoader(batches(10), 3, "cuda")
    assert torch.equal(batch.features, make_batch(0).features)
    assert log == (
        ["thread near cuda"]
        + ["pin"] * 4
        + ["copying: record", "consuming: wait for copied by copying"]
        + ["used by consuming"] * 4
    )


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_batches_on_the_gpu_equal_those_on_the_host(depth: int) -> None:
    source = batches(500)
    for given, got in zip(source, AsyncDataLoader(iter(source), depth, "cuda"), strict=True):
        busy = torch.ones(512, 512, device="cuda") @ torch.ones(512, 512, device="cuda")
        assert got.features.is_cuda and busy.is_cuda
        assert torch.equal((got.features * 1).cpu(), given.features)
        assert torch.equal(got.ts_event.cpu(), given.ts_event)


@pytest.mark.gpu
@needs_gpu
def test_copies_do_not_wait_for_the_consumers_work() -> None:
    with AsyncDataLoader(batches(100), 3, "cuda") as loader:
        loader.next_batch()
        torch.cuda._sleep(2_000_000_000)  # cycles on the consumer's stream: about a second
        copying = loader._copy.stream
        assert copying is not None
        copying.synchronize()
        assert not torch.cuda.current_stream().query()


def test_a_loader_in_a_cycle_may_be_collected_on_its_own_thread_at_any_moment() -> None:
    # A collection may begin at any allocation, on the worker too, and then stops the worker from within.
    class Node:
        def __init__(self, loader: AsyncDataLoader) -> None:
            self.me, self.loader = self, loader

    before = gc.get_threshold()
    gc.set_threshold(5, 2, 2)
    try:
        for number in range(300):
            node = Node(AsyncDataLoader(lambda: iter(batches(200)), 2))
            for _ in range(number % 5):
                node.loader.next_batch()
            del node
    finally:
        gc.set_threshold(*before)
    gc.collect()

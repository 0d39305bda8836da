"""AsyncDataLoader: host batches in, the same batches on the device out, prepared ahead on one thread.

    source -> pull and copy (worker thread) -> queue -> next_batch (consumer)
                     ^---- one free slot for each batch handed out ----'

The worker takes a slot before it asks the source, so a slow consumer holds the source back. Errors cross the
queue as values. The worker knows the queue but not the loader: a loader that is dropped is collected, and its
finaliser stops the worker.
"""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

import torch

from foxhunt_ray.batch import Batch
from foxhunt_ray.errors import ConfigError, DataError

_JOIN_S = 1.0


@dataclass(frozen=True)
class LoaderProgress:
    """How far a loader is.

    Attributes:
        batches_done: batches handed out.
        batches_total: batches of the whole source; None when it has no length.
        windows_done: windows in the batches handed out.
        wait_s: seconds that the consumer waited for batches, the first one included.
    """

    batches_done: int
    batches_total: int | None
    windows_done: int
    wait_s: float


class AsyncDataLoader:
    """One pass over a source of batches, prepared ahead of the consumer.

    Iterate it, or call ``next_batch``. The end of a ``for`` loop, early or not, closes the loader, as do
    ``with``, ``close`` and garbage collection: the worker is joined, and the source's iterator is closed on
    the thread that ran it. A worker stuck inside the source is left behind after one second, as a daemon
    thread that ends when the source gives in. A second pass needs a second loader.
    """

    def __init__(
        self,
        source: Iterable[Batch] | Callable[[], Iterable[Batch]],
        prefetch_count: int = 3,
        device: torch.device | str = "cpu",
    ) -> None:
        """A loader whose first batch is ready.

        Args:
            source: host batches, or a function that makes an iterable of them. Each batch must own its
                memory: a view of a buffer that the source refills would change while it waits.
                ``StopIteration`` out of an iterator's own ``__next__`` is its end; out of the function it
                becomes ``RuntimeError``.
            prefetch_count: most batches prepared beside the one in use; 0 = no thread, bitwise the same
                batches, which is also what is done, with a warning, where the system refuses a thread.
            device: where batches are handed out; for CUDA pinned and copied on a stream of their own.

        Raises:
            ConfigError: ``prefetch_count`` is not a whole number of at least 0.
            DataError: the source is empty. (What it raises before its first batch comes as it is.)
        """
        if type(prefetch_count) is not int or prefetch_count < 0:
            raise ConfigError(
                f"prefetch_count = {prefetch_count!r}: expected a whole number of batches, 0 or more; "
                "use 0 to load without a thread"
            )
        self._copy = _Copy(torch.device(device))
        self._total = len(source) if isinstance(source, Sized) else None
        self._batches_done, self._windows_done, self._wait_s = 0, 0, 0.0
        self._end: _End | None = None
        self._feed = _Feed(_prepared(source, self._copy), prefetch_count)
        self._stop = weakref.finalize(self, self._feed.stop)
        try:
            self._first: _Item | None = self._wait()
            if isinstance(self._first, _End):
                raise self._first.error or DataError(
                    f"the source of batches ({type(source).__name__}) is empty: expected at least one batch; "
                    "check that the split holds windows"
                )
        except BaseException:
            self.close()
            raise

    def next_batch(self) -> Batch | None:
        """The next batch on the device, or None at the end and after ``close``.

        Raises:
            BaseException: what the source raised, after the batches before it and with a note of the batch's
                number; again at each further call.
        """
        item = self._end or self._first or self._wait()
        self._first = None
        if isinstance(item, _End):
            self._end = item
            if item.error is not None:
                raise item.error
            return None
        self._feed.free.release()
        self._batches_done += 1
        self._windows_done += len(item.batch)
        return self._copy.receive(item)

    @property
    def progress(self) -> LoaderProgress:
        """What was handed out so far, and the time spent waiting for it."""
        return LoaderProgress(self._batches_done, self._total, self._windows_done, self._wait_s)

    def close(self) -> None:
        """Stop the worker and drop what it prepared; from then on ``next_batch`` gives None, or its error."""
        self._end = self._end or _End()
        self._first = None
        self._stop()

    def __iter__(self) -> Iterator[Batch]:
        with self:
            while (batch := self.next_batch()) is not None:
                yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self) -> _Item:
        started = time.perf_counter()
        try:
            return self._feed.get()
        finally:
            self._wait_s += time.perf_counter() - started


@dataclass(frozen=True)
class _Ready:
    """A batch on the device, and what the consumer's stream has to wait for before it may read it."""

    batch: Batch
    copied: torch.cuda.Event | None = None


@dataclass(frozen=True)
class _End:
    """Nothing follows; with the reason unless the source just ended."""

    error: BaseException | None = None


_Item = _Ready | _End


class _Copy:
    """Host to device; for CUDA on a stream of its own, so that copies overlap what the consumer computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, batch: Batch) -> _Ready:
        """Start the copy, on the worker's side."""
        if self.stream is None:
            return _Ready(batch.to(self.device))
        with torch.cuda.stream(self.stream):  # also makes its device current, for the pinning
            moved = batch.pin_memory().to(self.stream.device, non_blocking=True)
            return _Ready(moved, self.stream.record_event())

    def receive(self, ready: _Ready) -> Batch:
        """Order the consumer's current stream after the copy, without waiting on the host."""
        if ready.copied is not None:
            batch = ready.batch
            stream = torch.cuda.current_stream(batch.features.device)
            stream.wait_event(ready.copied)
            for tensor in (batch.features, batch.targets, batch.symbol, batch.ts_event):
                tensor.record_stream(stream)  # its memory belongs to the copying stream's pool
        return ready.batch


class _Feed:
    """Items from the source to one consumer, by way of a thread or, with no depth or no thread, on demand."""

    def __init__(self, batches: Generator[_Ready, None, None], depth: int) -> None:
        self.batches = batches
        self.pulled = 0
        self.free = threading.Semaphore(depth)
        self.queue: SimpleQueue[_Item] = SimpleQueue()
        self.stopped = threading.Event()
        self.thread = _started(self.work) if depth else None

    def get(self) -> _Item:
        return self.pull() if self.thread is None else self.queue.get()

    def pull(self) -> _Item:
        try:
            item = next(self.batches, None)
        except BaseException as error:  # any kind: the consumer may be on another thread
            error.add_note(f"raised by the source of batches at batch {self.pulled} (counted from 0)")
            return _End(error)
        self.pulled += 1
        return item or _End()

    def work(self) -> None:
        with closing(self.batches):
            while self.free.acquire() and not self.stopped.is_set():
                item = self.pull()
                self.queue.put(item)
                if isinstance(item, _End):
                    return
                del item  # the consumer may free it while the source works on the next

    def stop(self) -> None:
        if self.thread is None:
            self.batches.close()
            return
        self.stopped.set()
        self.free.release()
        if self.thread is not threading.current_thread():  # the garbage collector may run on any
            self.thread.join(_JOIN_S)
        while True:
            try:
                self.queue.get_nowait()
            except Empty:
                break
        self.queue.put(_End())  # for a consumer that waits in another thread


def _prepared(
    source: Iterable[Batch] | Callable[[], Iterable[Batch]], copy: _Copy
) -> Generator[_Ready, None, None]:
    """Batches on their way to the device. As in any generator a leaked StopIteration is a RuntimeError."""
    batches = iter(source if isinstance(source, Iterable) else source())
    try:
        yield from map(copy.send, batches)  # which, unlike a loop variable, holds no batch
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _started(work: Callable[[], None]) -> threading.Thread | None:
    thread = threading.Thread(target=work, name="foxhunt-prefetch", daemon=True)
    try:
        thread.start()
    except RuntimeError as err:
        warnings.warn(
            f"no thread to load ahead ({err}); loading each batch on demand, which is slower; "
            "raise the limit on processes (ulimit -u), or ask for no loading ahead",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    return thread

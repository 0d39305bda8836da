"""AsyncDataLoader: host batches in, the same batches on the device out, prepared ahead on one thread.

Pinning, copying and, for a source that gathers on the device, gathering run on a stream of their own.
Page-locked memory comes from torch's caching allocator, which hands a block out again once the copy out of
it has ended: a ring that needs no code here.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import torch

from foxhunt_ray.batch import Batch
from foxhunt_ray.data.prefetch.ahead import Ahead, End, warn_of_no_thread
from foxhunt_ray.data.prefetch.depth import AdaptiveDepth
from foxhunt_ray.data.prefetch.numa import pci_address, place_thread
from foxhunt_ray.errors import ConfigError, DataError

_JOIN_S = 1.0
_MAX_BYTES = 256_000_000  # of batches prepared at an adaptive depth
_NOTE = "raised by the source of batches at batch {} (counted from 0)"


@dataclass(frozen=True)
class LoaderProgress:
    """How far a loader is.

    Attributes:
        batches_done: batches handed out.
        batches_total: batches of the whole source; None when it has no length.
        windows_done: windows in the batches handed out.
        wait_s: seconds that the consumer waited for batches, the first one included.
        depth: batches prepared ahead, at most; 0 = on demand.
        tier: where windows are gathered ("resident", "arena", "host"); empty when the source does not say.
        device_bytes: bytes sent to the device so far; 0 on the CPU.
    """

    batches_done: int
    batches_total: int | None
    windows_done: int
    wait_s: float
    depth: int
    tier: str
    device_bytes: int


class AsyncDataLoader:
    """One pass over a source of batches, prepared ahead of the consumer.

    Iterate it, or call ``next_batch``. The end of a ``for`` loop, early or not, closes the loader, as do
    ``with``, ``close`` and garbage collection: the worker is joined, and the source's iterator is closed on
    the thread that ran it. A worker stuck inside the source is left behind after one second, as a daemon
    thread that ends when the source gives in. A second pass needs a second loader.

    A source may also have ``cancel()``, called by ``close`` from the consumer's thread to wake a pull that
    waits; ``state_dict(consumed)``, where to go on after that many batches; ``tier`` and ``device_bytes``.
    """

    def __init__(
        self,
        source: Iterable[Batch] | Callable[[], Iterable[Batch]],
        prefetch_count: int | Literal["auto"] = 3,
        device: torch.device | str = "cpu",
    ) -> None:
        """A loader whose first batch is ready.

        Args:
            source: host batches, or a function that makes an iterable of them; batches that lie on the device
                already stay as they are. Each batch must own its memory: a view of a buffer that the source
                refills would change while it waits. ``StopIteration`` out of an iterator's own ``__next__``
                is its end; out of the function it becomes ``RuntimeError``.
            prefetch_count: most batches prepared beside the one in use; 0 = no thread, bitwise the same
                batches, which is also what is done, with a warning, where the system refuses a thread; "auto"
                = more after the consumer had to wait, fewer when it has long not had to, within 256 MB.
            device: where batches are handed out; for CUDA pinned and copied on a stream of their own.

        Raises:
            ConfigError: ``prefetch_count`` is neither a whole number of at least 0 nor "auto".
            DataError: the source is empty. (What it raises before its first batch comes as it is.)
        """
        self._adaptive = AdaptiveDepth(_MAX_BYTES) if prefetch_count == "auto" else None
        self._depth: Any = self._adaptive.depth if self._adaptive else prefetch_count
        if type(self._depth) is not int or self._depth < 0:
            raise ConfigError(
                f"prefetch_count = {prefetch_count!r}: expected a whole number of batches, 0 or more, or "
                '"auto"; use 0 to load without a thread'
            )
        self._source, self._copy = source, _Copy(torch.device(device))
        self._total = len(source) if isinstance(source, Sized) else None
        self._batches_done, self._windows_done, self._wait_s = 0, 0, 0.0
        self._end: End | None = None
        self._ahead = Ahead(
            _prepared(source, self._copy),
            self._depth,
            name="foxhunt-prefetch",
            join_s=_JOIN_S,
            note=_NOTE,
            on_start=partial(place_near, self._copy.device),
            cancel=getattr(source, "cancel", None),
        )
        if self._depth and not self._ahead.has_thread:
            warn_of_no_thread()
        self._stop = weakref.finalize(self, self._ahead.stop)
        self._handed = time.perf_counter()
        try:
            self._first: _Ready | End | None = self._wait()
            if isinstance(self._first, End):
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
        asked, waited = time.perf_counter(), self._wait_s
        item = self._end or self._first or self._wait()
        if isinstance(item, End):
            self._end = item
            if item.error is not None:
                raise item.error
            return None
        if self._adaptive and not self._first:
            self._adapt(item, wait_s=self._wait_s - waited, step_s=asked - self._handed)
        self._first = None
        self._ahead.free_slot()
        self._batches_done += 1
        self._windows_done += len(item.batch)
        self._handed = time.perf_counter()
        return self._copy.receive(item)

    @property
    def progress(self) -> LoaderProgress:
        """What was handed out so far, and the time spent waiting for it."""
        return LoaderProgress(
            batches_done=self._batches_done,
            batches_total=self._total,
            windows_done=self._windows_done,
            wait_s=self._wait_s,
            depth=self._depth if self._ahead.has_thread else 0,
            tier=getattr(self._source, "tier", ""),
            device_bytes=self._copy.nbytes + getattr(self._source, "device_bytes", 0),
        )

    def state_dict(self) -> dict[str, Any]:
        """Where to go on after the batches handed out so far, however many were prepared beyond them.

        Raises:
            DataError: the source cannot tell; streams of ``Prepared`` can.
        """
        if not hasattr(self._source, "state_dict"):
            raise DataError(
                f"a source of batches of type {type(self._source).__name__} has no position to save; give "
                "one with state_dict(consumed), such as a stream of Prepared"
            )
        state: dict[str, Any] = self._source.state_dict(self._batches_done)
        return state

    def close(self) -> None:
        """Stop the worker and drop what it prepared; from then on ``next_batch`` gives None, or its error."""
        self._end = self._end or End()
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

    def _wait(self) -> _Ready | End:
        started = time.perf_counter()
        try:
            return self._ahead.get()
        finally:
            self._wait_s += time.perf_counter() - started

    def _adapt(self, item: _Ready, *, wait_s: float, step_s: float) -> None:
        assert self._adaptive is not None
        depth = self._adaptive.after(wait_s=wait_s, step_s=step_s, batch_bytes=item.batch.nbytes)
        if depth != self._depth:
            self._depth = depth
            self._ahead.resize(depth)


def place_near(device: torch.device) -> None:
    """Put the calling thread on the cores beside a GPU, where a machine has several sockets."""
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        domain, bus, slot = (getattr(about, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
        if domain is not None and bus is not None and slot is not None:  # torch tells it since 2.9
            place_thread(pci_address(domain, bus, slot))


def beside(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[object]:
    """A context in which what runs on the device runs on ``stream``, and pinning is for its device."""
    return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)


@dataclass(frozen=True)
class _Ready:
    """A batch on the device, and what the consumer's stream has to wait for before it may read it."""

    batch: Batch
    copied: torch.cuda.Event | None = None


class _Copy:
    """Host to device; for CUDA on a stream of its own, so that copies overlap what the consumer computes."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.nbytes = device, 0
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, batch: Batch) -> _Ready:
        """Start the copy, on the worker's side and ``beside`` the consumer."""
        if self.stream is None:
            return _Ready(batch if batch.features.device == self.device else batch.to(self.device))
        if not batch.features.is_cuda:
            self.nbytes += batch.nbytes
            batch = batch.pin_memory().to(self.stream.device, non_blocking=True)
        return _Ready(batch, self.stream.record_event())

    def receive(self, ready: _Ready) -> Batch:
        """Order the consumer's current stream after the copy, without waiting on the host."""
        if ready.copied is not None:
            batch = ready.batch
            stream = torch.cuda.current_stream(batch.features.device)
            stream.wait_event(ready.copied)
            for tensor in batch.tensors():
                tensor.record_stream(stream)  # its memory belongs to the copying stream's pool
        return ready.batch


def _prepared(
    source: Iterable[Batch] | Callable[[], Iterable[Batch]], copy: _Copy
) -> Generator[_Ready, None, None]:
    """Batches on their way to the device. As in any generator a leaked StopIteration is a RuntimeError."""
    with beside(copy.stream):
        batches = iter(source if isinstance(source, Iterable) else source())
    try:
        while (ready := _next(batches, copy)) is not None:
            yield ready
            del ready  # hold no batch while the source works on the next
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _next(batches: Iterator[Batch], copy: _Copy) -> _Ready | None:
    with beside(copy.stream):
        batch = next(batches, None)
        return None if batch is None else copy.send(batch)

"""Items of an iterator, in order, made on a thread a bounded number ahead of whoever takes them.

    items -> pull (worker) -> queue -> get (consumer)
               ^-- one free slot for each item handed on --'

The worker takes a slot before it pulls, so a slow consumer holds the iterator back. Errors of any kind cross
the queue as values. With a depth of 0, or where the system refuses a thread, items are made on demand: the
same ones.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class End:
    """Nothing follows; with the reason unless the iterator just ended."""

    error: BaseException | None = None


class Ahead(Generic[T]):
    """Look-ahead over a generator, which is closed on the thread that ran it.

    Attributes:
        has_thread: whether items are made ahead.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        depth: int,
        *,
        name: str,
        join_s: float,
        note: str = "",
        on_start: Callable[[], object] | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> None:
        """A look-ahead that has begun to work.

        Args:
            items: what is to be taken.
            depth: most items made beside the one in use; 0 = no thread.
            name: of the thread.
            join_s: longest that ``stop`` waits for the thread, which then ends when the generator gives in.
            note: added to an error, with the number of the item that it came for in place of "{}".
            on_start: called first on the thread, and only there.
            cancel: called by ``stop``, on its caller's thread, to wake a pull that waits for something.
        """
        self._items, self._join_s, self._note, self._cancel = items, join_s, note, cancel
        self._on_start, self._pulled = on_start, 0
        self._depth, self._owed = depth, 0
        # Slots as a semaphore would count them, but safe to give back in a destructor.
        self._slots: SimpleQueue[None] = SimpleQueue()
        for _ in range(depth):
            self._slots.put(None)
        self._queue: SimpleQueue[T | End] = SimpleQueue()
        self._stopped = False
        self._thread = self._start(name) if depth else None
        self.has_thread = self._thread is not None

    def get(self) -> T | End:
        """The next item, or the end; waits for it."""
        return self._pull() if self._thread is None else self._queue.get()

    def __iter__(self) -> Iterator[T]:
        """All items, each in use until the next is asked for; raises what the generator raised."""
        while not isinstance(item := self.get(), End):
            self.free_slot()
            yield item
        if item.error is not None:
            raise item.error

    def free_slot(self) -> None:
        """Let one more item be made: the one that ``get`` gave is in use from now on."""
        if self._owed:
            self._owed -= 1
        else:
            self._slots.put(None)

    def resize(self, depth: int) -> None:
        """Change the depth; a smaller one takes effect as items are handed on.

        Called by the consumer, as ``get`` and ``free_slot`` are.
        """
        more = depth - self._depth
        self._depth = depth
        self._owed -= more
        while self._owed < 0:
            self._owed += 1
            self._slots.put(None)

    def stop(self) -> None:
        """End the work and drop what was made; ``get`` gives the end from now on. May be called twice."""
        if self._thread is None:
            self._items.close()
            return
        self._stopped = True
        self._slots.put(None)
        if self._cancel is not None:
            self._cancel()
        if self._thread is not threading.current_thread():  # the garbage collector may run on any
            self._thread.join(self._join_s)
        self._drop()
        self._queue.put(End())  # for a consumer that waits in another thread

    def wake(self) -> None:
        """Give the end to a consumer that waits, and stop working; ``stop`` is still to be called."""
        self._stopped = True
        self._slots.put(None)
        self._queue.put(End())

    def _start(self, name: str) -> threading.Thread | None:
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None
        return thread

    def _work(self) -> None:
        try:
            if self._on_start is not None:
                self._on_start()
        except BaseException as error:
            self._queue.put(End(error))
            return
        with closing(self._items):
            while True:
                self._slots.get()
                if self._stopped:
                    return
                item = self._pull()
                self._queue.put(item)
                if isinstance(item, End):
                    return
                del item  # the consumer may free it while the generator works on the next

    def _pull(self) -> T | End:
        try:
            item: T | End = next(self._items, End())
        except BaseException as error:  # any kind: the consumer may be on another thread
            if self._note:
                error.add_note(self._note.format(self._pulled))
            return End(error)
        self._pulled += 1
        return item

    def _drop(self) -> None:
        while True:
            try:
                self._queue.get_nowait()
            except Empty:
                return


def warn_of_no_thread() -> None:
    """Say that what was to be made ahead is made on demand."""
    warnings.warn(
        "no thread to load ahead (the system refuses one); loading on demand, which gives the same and is "
        "slower; raise the limit on processes (ulimit -u), or ask for no loading ahead",
        RuntimeWarning,
        stacklevel=3,
    )

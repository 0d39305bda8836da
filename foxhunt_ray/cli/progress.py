"""A bar for reading that takes longer than two seconds: rich in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

_SILENT_S = 2.0
_LINE_EVERY_S = 30.0


@contextmanager
def reading_progress() -> Iterator[Callable[[int, int], None]]:
    """A function to be called with the rows done and in all; shows them on stderr."""
    with ExitStack() as shown:
        begun = time.monotonic()
        due = begun + _SILENT_S
        update: Callable[[int, int], None] | None = None

        def report(done: int, total: int) -> None:
            nonlocal update, due
            now = time.monotonic()
            if now < due or done >= total:
                return
            if not sys.stderr.isatty():
                print(f"reading: {done:,} of {total:,} rows", file=sys.stderr, flush=True)
                due = now + _LINE_EVERY_S
                return
            update = update or _bar(shown)
            update(done, total)

        yield report


def _bar(shown: ExitStack) -> Callable[[int, int], None]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = shown.enter_context(
        Progress(
            TextColumn("reading"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
    )
    task = bar.add_task("", total=None)
    return lambda done, total: bar.update(task, completed=done, total=total)

"""What the steps between two reports took: waiting, computing, memory, and how busy the device was."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch


class Meter:
    """Measures from its making to ``stop``.

    Attributes:
        wait_s: seconds spent waiting for batches.
    """

    def __init__(self, device: str) -> None:
        self.wait_s = 0.0
        self._device = torch.device(device)
        self._windows, self._spent_s = 0, 0.0
        self._steps: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._started = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What runs inside waits for a batch."""
        asked = time.perf_counter()
        yield
        self.wait_s += time.perf_counter() - asked

    @contextmanager
    def stepping(self, windows: int) -> Iterator[None]:
        """What runs inside is a step on so many windows."""
        self._windows += windows
        if self._device.type != "cuda":
            yield
            return
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        yield
        ended.record()
        self._steps.append((began, ended))

    def stop(self) -> None:
        """The steps are done; what follows is not measured."""
        self._spent_s = time.perf_counter() - self._started

    def metrics(self) -> dict[str, float]:
        """Rates and shares by metric key.

        ``device/busy_frac`` is the share of the time that the device's stream spent inside steps; of a CPU,
        which is busy with nothing else, that spent outside of waiting. ``device/nvml_util_frac``, the
        driver's own figure for the last moments, is there where NVML can be asked.
        """
        busy_s = self._spent_s - self.wait_s
        if self._steps:
            torch.cuda.synchronize(self._device)
            busy_s = sum(began.elapsed_time(ended) for began, ended in self._steps) / 1000
        found = {
            "train/windows_per_s": self._windows / self._spent_s,
            "data/wait_frac": self.wait_s / self._spent_s,
            "device/busy_frac": min(1.0, busy_s / self._spent_s),
            "device/memory_peak_bytes": self._memory_peak_bytes(),
        }
        share = self._nvml_util_frac()
        return found if share is None else found | {"device/nvml_util_frac": share}

    def _memory_peak_bytes(self) -> float:
        """Most memory in use so far: of the GPU since ``fit`` began, else resident in this process."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak if sys.platform == "darwin" else peak * 1024)  # Linux counts kibibytes

    def _nvml_util_frac(self) -> float | None:
        if self._device.type != "cuda":
            return None
        try:
            nvml = import_module("pynvml")
        except ImportError:  # torch asks by way of it
            return None
        try:
            return torch.cuda.utilization(self._device) / 100
        except (RuntimeError, nvml.NVMLError):  # no driver, or one that does not tell, as for a part of a GPU
            return None

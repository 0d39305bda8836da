"""Shares lie between none and all, waits are counted, and only a GPU has the driver's figure."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest
import torch

from foxhunt_ray.train.meter import Meter

WINDOWS, STEPS = 16, 3


def measured(
    device: str = "cpu", *, wait_s: float = 0.0, step=lambda: None
) -> tuple[Meter, dict[str, float]]:
    """A meter after three steps, and what it says."""
    meter = Meter(device)
    for _ in range(STEPS):
        with meter.waiting():
            time.sleep(wait_s)
        with meter.stepping(WINDOWS):
            step()
    meter.stop()
    return meter, meter.metrics()


@pytest.mark.parametrize("wait_s", [0.0, 0.002])
def test_shares_lie_between_none_and_all_and_those_of_a_cpu_add_up(wait_s):
    _, found = measured(wait_s=wait_s)
    assert 0 <= found["data/wait_frac"] <= 1 and 0 <= found["device/busy_frac"] <= 1
    assert found["data/wait_frac"] + found["device/busy_frac"] == pytest.approx(1)
    assert found["device/memory_peak_bytes"] > 10**7


def test_waits_are_counted_and_nothing_after_the_stop_is():
    meter, found = measured(wait_s=0.01)
    time.sleep(0.01)
    assert meter.wait_s >= STEPS * 0.01
    assert meter.metrics()["data/wait_frac"] == found["data/wait_frac"]
    spent_s = meter.wait_s / found["data/wait_frac"]
    assert found["train/windows_per_s"] == pytest.approx(STEPS * WINDOWS / spent_s)


def test_a_cpu_that_waits_for_nothing_is_busy_all_the_time():
    meter = Meter("cpu")
    with meter.stepping(WINDOWS):
        time.sleep(0.001)
    meter.stop()
    found = meter.metrics()
    assert (found["device/busy_frac"], found["data/wait_frac"]) == (1, 0)


def test_a_cpu_has_no_figure_of_the_driver():
    assert "device/nvml_util_frac" not in measured()[1]


class NVMLError(Exception):
    """As in pynvml: no kind of RuntimeError."""


@pytest.mark.parametrize("error", [RuntimeError("the driver is not loaded"), NVMLError("not supported")])
def test_a_driver_that_does_not_tell_is_no_error(monkeypatch, error):
    def silent(device):
        raise error

    meter = Meter("cuda")  # of which nothing but the driver is asked here
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError))
    monkeypatch.setattr(torch.cuda, "utilization", silent)
    assert meter._nvml_util_frac() is None
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 37)
    assert meter._nvml_util_frac() == 0.37
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert meter._nvml_util_frac() is None


@pytest.mark.gpu
def test_a_gpu_that_only_computes_is_busy_all_the_time():
    torch.cuda._sleep(1)  # loads the kernel
    torch.cuda.synchronize()
    meter = Meter("cuda")
    for _ in range(STEPS):
        with meter.stepping(WINDOWS):
            torch.cuda._sleep(200_000_000)  # cycles, about a tenth of a second
    torch.cuda.synchronize()
    meter.stop()
    found = meter.metrics()
    assert 0.9 < found["device/busy_frac"] <= 1
    assert 0 <= found.get("device/nvml_util_frac", 0) <= 1


@pytest.mark.gpu
def test_a_gpu_that_waits_for_batches_is_not_busy():
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    _, found = measured("cuda", wait_s=0.05, step=lambda: torch.cuda._sleep(1000))
    assert found["device/busy_frac"] < 0.1 and found["data/wait_frac"] > 0.9

"""Durations and sizes."""

import pytest

from foxhunt_ray.config import parse_bytes, parse_duration
from foxhunt_ray.errors import ConfigError

DURATIONS = {
    "90s": 90.0,
    "2h": 7200.0,
    "15m": 900.0,
    "15min": 900.0,
    "0s": 0.0,
    "1.5h": 5400.0,
    "1d": 86400.0,
}
DURATIONS |= {"250ms": 0.25, "7 us": 7e-6, "3ns": 3e-9}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations_are_nanoseconds(text, seconds):
    assert parse_duration(text) == round(seconds * 1e9)


@pytest.mark.parametrize(
    ("text", "size"), [("512MB", 512 * 10**6), ("2GiB", 2 * 1024**3), ("7 kB", 7000), ("5B", 5)]
)
def test_sizes_are_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "h", "-1s", "3 weeks", "1e3s", "5"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match="expected a number and a unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "5", "3XB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="expected a number and a unit"):
        parse_bytes(text)

"""Spans are cut at the instants that the fractions or dates say."""

from __future__ import annotations

import pytest

from foxhunt_ray.config import load_config
from foxhunt_ray.data.split import iso, split_spans
from foxhunt_ray.errors import ConfigError

FIRST = 1_600_000_000 * 10**9
LAST = FIRST + 1000 * 3600 * 10**9
OPEN = 2**63 - 1


def spans(*overrides: str):
    return split_spans(load_config(None, overrides), FIRST, LAST)


def test_fractions_are_of_the_whole_time_span():
    found = spans()
    assert found["train"].end == found["val"].start == FIRST + 700 * 3600 * 10**9
    assert found["val"].end == found["test"].start == FIRST + 850 * 3600 * 10**9
    assert found["test"].end == OPEN


def test_the_last_span_that_there_is_has_an_open_end():
    assert list(spans("split.train=1", "split.val=0", "split.test=0")) == ["train"]
    two = spans("split.train=0.8", "split.val=0.2", "split.test=0")
    assert list(two) == ["train", "val"]
    assert two["val"].end == OPEN
    skip = spans("split.train=0.8", "split.val=0", "split.test=0.2")
    assert list(skip) == ["train", "test"]
    assert skip["train"].end == skip["test"].start


def test_an_embargo_follows_each_boundary():
    found = spans("split.embargo=2h")
    assert found["val"].start - found["train"].end == 2 * 3600 * 10**9
    assert found["test"].start - found["val"].end == 2 * 3600 * 10**9


def test_dates_are_starts_in_utc():
    found = spans("split.val=2020-09-20", "split.test=2020-10-01T12:00:00+02:00")
    assert iso(found["val"].start) == "2020-09-20T00:00:00+00:00"
    assert iso(found["val"].end) == "2020-10-01T10:00:00+00:00"
    late = spans("split.train=2020-09-15", "split.val=2020-09-20", "split.test=2020-10-01")
    assert iso(late["train"].start) == "2020-09-15T00:00:00+00:00"


@pytest.mark.parametrize(
    "dates", [("2020-10-01", "2020-09-20"), ("2010-01-01", "2020-09-20"), ("2020-09-20", "2031-01-01")]
)
def test_dates_outside_the_data_are_refused(dates):
    with pytest.raises(ConfigError, match="inside the data, 2020-09-13"):
        spans(f"split.val={dates[0]}", f"split.test={dates[1]}")

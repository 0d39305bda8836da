"""How deep the queue gets: arithmetic on waits that are given, so nothing here depends on a clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foxhunt_ray.data.prefetch.depth import AdaptiveDepth


def run(depth, waits, *, step_s=1.0, batch_bytes=1):
    return [depth.after(wait_s=w, step_s=step_s, batch_bytes=batch_bytes) for w in waits]


def test_a_stall_makes_it_deeper_by_half_and_at_least_by_one():
    assert run(AdaptiveDepth(10**9), [0.1] * 5) == [4, 6, 9, 13, 19]


def test_a_wait_of_so_many_steps_makes_it_deeper_by_as_many():
    assert run(AdaptiveDepth(10**9), [7.5]) == [11]
    assert run(AdaptiveDepth(10**9), [1.0], step_s=0.0) == [64]


def test_a_wait_of_less_than_a_fiftieth_of_the_step_is_no_stall():
    assert run(AdaptiveDepth(10**9), [0.02] * 5) == [3] * 5


def test_it_shrinks_by_one_after_512_quiet_batches_and_a_stall_begins_the_count_anew():
    depth = AdaptiveDepth(10**9)
    assert run(depth, [0.0] * 511)[-1] == 3 and run(depth, [0.0]) == [2]
    assert run(depth, [0.0] * 511 + [1.0])[-1] == 3
    assert run(depth, [0.0] * 511)[-1] == 3 and run(depth, [0.0]) == [2]


def test_bytes_cap_it_and_one_batch_is_always_prepared():
    assert run(AdaptiveDepth(10), [1.0] * 4, batch_bytes=2)[-1] == 5
    assert run(AdaptiveDepth(10), [1.0] * 4, batch_bytes=100)[-1] == 1


@given(st.lists(st.floats(0, 2), max_size=50), st.integers(1, 1000), st.integers(0, 1000))
def test_it_is_always_a_count_within_its_bounds(waits, max_bytes, batch_bytes):
    for depth in run(AdaptiveDepth(max_bytes), waits, batch_bytes=batch_bytes):
        assert 1 <= depth <= max(1, min(64, max_bytes // max(batch_bytes, 1)))


def burst(depth_of, *, batches=3000, every=50, burst_steps=10):
    """Share of the time that a consumer of steps of 1 waits for a producer of 0.1 with bursts."""
    ready, made, consumed_at, waited, now = [], 0.0, [], 0.0, 0.0
    for number in range(batches):
        depth = depth_of(number)
        free = consumed_at[number - depth - 1] if number > depth else 0.0
        made = max(made, free) + 0.1 + (burst_steps if number % every == every - 1 else 0)
        ready.append(made)
        wait = max(0.0, ready[number] - now)
        waited, now = waited + wait, now + wait
        consumed_at.append(now)
        now += 1.0
        if isinstance(depth_of, Feedback):
            depth_of.hear(wait)
    return waited / now


class Feedback:
    def __init__(self):
        self.adaptive, self.depth = AdaptiveDepth(10**9), 3

    def __call__(self, number):
        return self.depth

    def hear(self, wait):
        self.depth = self.adaptive.after(wait_s=wait, step_s=1.0, batch_bytes=1)


def test_bursts_that_a_depth_of_three_does_not_hide_are_hidden_after_a_few():
    # Simulated exactly: a burst of ten steps in fifty costs a fixed depth of three about a tenth of the time.
    assert burst(lambda n: 3) > 0.1
    assert burst(Feedback()) < 0.005

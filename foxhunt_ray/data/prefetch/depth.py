"""How far ahead to prepare, found while the consumer runs: deeper after a stall, shallower when it is quiet.

A queue of k batches hides a burst of k steps, so a wait of w steps asks for w more; deeper costs memory and
nothing else. What a two-stage loader leaves to hide is seldom more than a few steps: the depth starts low.
"""

from __future__ import annotations

import math

_START = 3
_MOST = 64
_STALL = 0.02  # of a step: a wait that is worth a deeper queue
_QUIET = 512  # batches without a stall before the depth shrinks by one


class AdaptiveDepth:
    """The depth after each batch; capped by the bytes that prepared batches may take.

    Attributes:
        depth: batches to prepare ahead.
    """

    def __init__(self, max_bytes: int) -> None:
        """A depth of 3 to begin with.

        Args:
            max_bytes: most that all prepared batches together may take; at least one is prepared.
        """
        self.depth = _START
        self._max_bytes, self._quiet = max_bytes, 0

    def after(self, *, wait_s: float, step_s: float, batch_bytes: int) -> int:
        """The depth from now on.

        Args:
            wait_s: how long the consumer waited for this batch.
            step_s: how long it worked on the one before.
            batch_bytes: size of this batch.
        """
        cap = max(1, min(_MOST, self._max_bytes // max(batch_bytes, 1)))
        self._quiet += 1
        if wait_s > _STALL * step_s:
            self._quiet = 0
            missed = math.ceil(min(wait_s / max(step_s, 1e-9), _MOST))
            self.depth += max(missed, self.depth // 2)
        elif self._quiet >= _QUIET:
            self._quiet = 0
            self.depth -= 1
        self.depth = max(1, min(self.depth, cap))
        return self.depth

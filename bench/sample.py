"""Many observations of one figure, and the two numbers that are told of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """The middle of some observations, and where nine in ten of them are at least as good.

    Attributes:
        median: the middle one.
        p90: the one that nine in ten do not exceed; of a rate, the one that nine in ten reach.
        count: how many there were.
    """

    median: float
    p90: float
    count: int

    def scaled(self, factor: float) -> Sample:
        """The same observations in another unit."""
        return Sample(self.median * factor, self.p90 * factor, self.count)


def durations(observed: Sequence[float]) -> Sample:
    """A sample of what should be small."""
    ordered = sorted(observed)
    return Sample(statistics.median(ordered), ordered[math.ceil(0.9 * len(ordered)) - 1], len(ordered))


def rates(observed: Sequence[float]) -> Sample:
    """A sample of what should be large."""
    ordered = sorted(observed)
    return Sample(statistics.median(ordered), ordered[len(ordered) - math.ceil(0.9 * len(ordered))], len(ordered))

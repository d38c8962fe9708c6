"""Intervals of shares."""

import math


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n (Wilson 1927, with z = 1.96)."""
    z2 = 1.96**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n) / (1 + z2 / n)
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))  # rounding

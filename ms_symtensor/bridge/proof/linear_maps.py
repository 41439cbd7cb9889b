"""Means and interpolations along one dim of an image, as matrices [elements after, elements before]."""

from collections.abc import Sequence

import numpy


def adaptive_mean(size: int, wanted: int) -> numpy.ndarray:
    """Means over `wanted` parts of `size` elements, as even as they go."""
    found = numpy.zeros((wanted, size))
    for i in range(wanted):
        first, last = i * size // wanted, -(-(i + 1) * size // wanted)
        found[i, first:last] = 1.0 / (last - first)
    return found


def window_mean(size: int, wanted: int, window: int, stride: int, padding: int, counts_padding: bool) -> numpy.ndarray:
    """Means over `wanted` windows of `size` elements with `padding` zeros at both ends, which count or do not."""
    found = numpy.zeros((wanted, size))
    for i in range(wanted):
        first = i * stride - padding
        last = min(first + window, size + padding)
        inside = range(max(first, 0), min(last, size))
        found[i, inside] = 1.0 / (last - first if counts_padding else len(inside))
    return found


def interpolation(size: int, wanted: int, aligns_corners: bool, scale: float | None) -> numpy.ndarray:
    """`wanted` values on straight lines between the neighbours of `size`."""
    found = numpy.zeros((wanted, size))
    for i in range(wanted):
        if aligns_corners:
            at = i * (size - 1) / (wanted - 1) if wanted > 1 else 0.0
        else:
            at = max((i + 0.5) * (1.0 / scale if scale else size / wanted) - 0.5, 0.0)
        low = min(int(at), size - 1)
        found[i, low] += 1.0 - (at - low)
        found[i, min(low + 1, size - 1)] += at - low
    return found


def pair(value: object) -> tuple[int, int]:
    """One number, or one for each of two dims, as two."""
    numbers = tuple(value) if isinstance(value, Sequence) else (value,)
    return (numbers[0], numbers[-1])

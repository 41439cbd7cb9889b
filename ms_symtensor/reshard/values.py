"""Tensors as bits, in slices and in cells, and the casts between types: what a proof moves.

A tensor with `grid` cells has cells of `ELEMENTS` elements: 2 along its last dim, so that an order that is wrong shows.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.generic]
ELEMENTS = 2
_OF_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def whole(name: str, grid: tuple[int, ...], dtype: str, size_B: int) -> Bits:
    """The bits of the tensor `name`, drawn by its name; floats are finite."""
    shape = (*grid[:-1], grid[-1] * ELEMENTS) if grid else (ELEMENTS,)
    drawn = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "bfloat16" or dtype in _FLOATS:
        return cast(drawn.standard_normal(shape).astype(np.float32).view(np.uint32), "float32", dtype)
    return drawn.integers(0, 1 << 7, shape).astype(_OF_SIZE[size_B])


def to_cells(values: Bits, counts: tuple[int, ...]) -> Bits:
    """A slice of `counts` cells per dim as an array [cells, ELEMENTS]."""
    return np.ascontiguousarray(values).reshape(int(np.prod(counts, dtype=int)), ELEMENTS)


def from_cells(cells: Bits, counts: tuple[int, ...]) -> Bits:
    """The slice that `to_cells` made `cells` of."""
    return cells.reshape((*counts[:-1], counts[-1] * ELEMENTS) if counts else (ELEMENTS,))


def box(row: NDArray[np.bool_], grid: tuple[int, ...]) -> tuple[range, ...]:
    """The cells per dim of a slice, whose cells are true in `row`."""
    where = np.unravel_index(np.flatnonzero(row), grid) if grid else ()
    return tuple(range(int(one.min()), int(one.max()) + 1) for one in where)


def slice_of(tensor: Bits, ranges: tuple[range, ...]) -> Bits:
    """The part of a whole tensor that has the cells `ranges`."""
    if not ranges:
        return tensor.copy()
    inner = tuple(slice(one.start, one.stop) for one in ranges[:-1])
    index = (*inner, slice(ranges[-1].start * ELEMENTS, ranges[-1].stop * ELEMENTS))
    return np.array(tensor[index])


def cast(bits: Bits, source: str, target: str) -> Bits:
    """`bits` of type `source` as bits of type `target`, rounded to the nearest, ties to even."""
    if source == target:
        return bits
    return _from_float32(_to_float32(bits, source), target)


def can_cast(source: str, target: str) -> bool:
    """Whether `cast` knows the way."""
    floats = {"bfloat16", *_FLOATS}
    return source == target or {source, target} <= floats - {"float64"}


def _to_float32(bits: Bits, dtype: str) -> NDArray[np.float32]:
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(_FLOATS[dtype]).astype(np.float32)


def _from_float32(values: NDArray[np.float32], dtype: str) -> Bits:
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    known = _FLOATS[dtype]
    return values.astype(known).view(_OF_SIZE[np.dtype(known).itemsize])

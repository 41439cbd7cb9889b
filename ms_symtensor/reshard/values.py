"""Tensors as bits, cell by cell, and the casts between types: what a proof moves.

A cell has `ELEMENTS` elements, 2 along the last dim of its tensor, so that an order that is wrong shows.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.generic]
ELEMENTS = 2
_OF_SIZE = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


def whole(name: str, cells: int, dtype: str, size_B: int) -> Bits:
    """The bits of the tensor `name`, [cells, ELEMENTS], drawn by its name; floats are finite."""
    drawn = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "bfloat16" or dtype in _FLOATS:
        return cast(drawn.standard_normal((cells, ELEMENTS)).astype(np.float32).view(np.uint32), "float32", dtype)
    return drawn.integers(0, 1 << 7, (cells, ELEMENTS)).astype(_OF_SIZE[size_B])


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

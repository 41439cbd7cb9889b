"""Numbers of the delta rule that its cells and their graphs share."""

import numpy as np
from numpy.typing import NDArray

KEY_EPSILON = 1e-6  # of the squares of a key or a query: what transformers' class and its kernels add


def log2_of(number: int) -> int:
    """Of a power of two."""
    return number.bit_length() - 1


def doublings(chunk: int) -> int:
    """How many squares of a strictly triangular matrix of a chunk's tokens are not zero: those to the 2nd, 4th, … power."""
    return max(0, log2_of(chunk) - 1)


HIDDEN = -1e30
"""Added to the exponents of later tokens: finite, and exp of it is zero in float32."""


def levels_of(chunk: int) -> int:
    """How many kinds of pairs a chunk's tokens make: those that the middle of a block of 2, 4, … tokens parts, and a token with
    itself.
    """
    return log2_of(chunk) + 1


def pairs_of(chunk: int) -> NDArray[np.float32]:
    """[levels, later token, earlier token]: 1 where a pair is of that level."""
    later, earlier = np.arange(chunk)[:, None], np.arange(chunk)
    halves = [
        (later // size % 2 == 1) & (earlier // size == later // size - 1) for size in 1 << np.arange(log2_of(chunk))
    ]
    found: NDArray[np.float32] = np.stack([*halves, later == earlier]).astype(np.float32)
    return found


def sums_of(chunk: int) -> NDArray[np.float32]:
    """[token, (level or end, token)]: 1 where a token's decay counts. Of a pair of a level the later token has what stands behind
    the middle up to itself, the earlier one what stands behind it up to the middle. The last two are all up to a token, and all
    behind it.
    """
    of, token = np.arange(chunk)[:, None], np.arange(chunk)
    found = []
    for size in 1 << np.arange(log2_of(chunk)):
        is_same = of // size == token // size
        found.append(is_same & np.where(token // size % 2 == 1, of <= token, of > token))
    ends = [np.zeros((chunk, chunk)), of <= token, of > token]
    counted: NDArray[np.float32] = np.concatenate([*found, *ends], axis=1).astype(np.float32)
    return counted

"""Numbers of the delta rule that its cells and their graphs share."""

KEY_EPSILON = 1e-6  # of the squares of a key or a query: what transformers' class and its kernels add


def log2_of(number: int) -> int:
    """Of a power of two."""
    return number.bit_length() - 1


def doublings(chunk: int) -> int:
    """How many squares of a strictly triangular matrix of a chunk's tokens are not zero: those to the 2nd, 4th, … power."""
    return max(0, log2_of(chunk) - 1)


HIDDEN = -1e30
"""Added to the exponents of later tokens: finite, and exp of it is zero in float32."""

"""Biases of scores by distance: ALiBi (Press et al., arXiv:2108.12409), in dims of queries and keys that flash attention sums."""

import math
from typing import Any

import numpy as np
from mindspore import Tensor, nn, ops

from model_zoo.config import BIASED_DIMS, TransformerConfig

_BASE, _OF_QUERY = 128, 16
"""Positions are written in digits of this base, which bfloat16 holds exactly; of a digit's weight queries carry a part, so that
float16 holds either."""


def distance_slopes(heads: int) -> list[float]:
    """The slope of every head: of 2^n heads 2^(-8 i / 2^n); those behind the first 2^n have every other one of 2^(n + 1)."""
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * number / whole) for number in range(1, whole + 1)]
    return slopes + [2.0 ** (-4.0 * number / whole) for number in range(1, 2 * whole, 2)][: heads - whole]


def distance_tables(config: TransformerConfig, dtype: Any) -> tuple[Tensor, Tensor]:
    """What queries [heads, size] and keys [seq, 1, size] carry behind a head's dims: their product biases the score.

    It is slope * (position of the key), and not of the distance: what is alike for all keys of a query falls out of the softmax.
    """
    places, size = np.arange(config.seq_length), config.head_dim + BIASED_DIMS
    slopes = np.array(distance_slopes(config.num_heads)) * math.sqrt(config.score_size or config.head_dim)
    query, key = np.zeros((config.num_heads, size), np.float32), np.zeros((config.seq_length, 1, size), np.float32)
    for digit in range(max(1, math.ceil(math.log(config.seq_length, _BASE)))):
        query[:, config.head_dim + digit] = slopes * _OF_QUERY**digit
        key[:, 0, config.head_dim + digit] = places // _BASE**digit % _BASE * (_BASE // _OF_QUERY) ** digit
    return Tensor(query, dtype), Tensor(key, dtype)


class DistanceBias(nn.Cell):
    """x [batch, seq, heads, head_dim] with the dims of `table` behind it."""

    def __init__(self, config: TransformerConfig, table: Tensor) -> None:
        super().__init__()
        wide = np.eye(config.head_dim, config.head_dim + BIASED_DIMS, dtype=np.float32)
        self.wide, self.table = Tensor(wide, table.dtype), table
        self.widen, self.add_table = ops.BatchMatMul(), ops.Add()

    def construct(self, x: Tensor) -> Tensor:
        return self.add_table(self.widen(x, self.wide), self.table)
